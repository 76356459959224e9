package hostcalls_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/hostcalls"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// conf is a configuration that grants GRANTED and ABSENT.
type conf struct{}

func (conf) Granted(name string) bool {
	return name == "GRANTED" || name == "ABSENT" || name == "BROKEN"
}

func (conf) Secret(_ context.Context, name string) (string, bool, error) {
	switch name {
	case "BROKEN":
		return "", false, errors.New("the keyring is locked")
	case "ABSENT":
		return "", false, nil
	}
	return "open sesame", true, nil
}

func (conf) Settings(_ context.Context, d string) (any, []string, error) {
	return map[string]any{"of": d}, []string{"hidden"}, nil
}

func (conf) GitSettings(_ context.Context, id string) (any, []string, error) {
	return map[string]any{"git": id}, nil, nil
}
func (conf) Value(key string) (any, error) { return "value of " + key, nil }

// keeper keeps what it is given in memory.
type keeper struct{ kept map[string]string }

func (k keeper) Keep(_ context.Context, run string, in io.Reader) (deploy.Piece, error) {
	b, err := io.ReadAll(in)
	k.kept[run] = string(b)
	return deploy.Piece{Size: int64(len(b))}, err
}

// TestCalls: what is answered, and what is refused with words for people.
func TestCalls(t *testing.T) {
	var hidden []string
	kept := keeper{map[string]string{}}
	calls := hostcalls.New(hostcalls.Options{
		Config: conf{}, Hide: func(v string) { hidden = append(hidden, v) },
		Keeper: func(context.Context) (hostcalls.Keeper, error) { return kept, nil },
	})
	t.Cleanup(func() {
		if err := calls.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	funcs := calls.Funcs()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	if err := errors.Join(os.WriteFile(file, []byte("from a file"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	quote := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	of := &host.Caller{Run: "run-1", Distribution: "agentenv-acme"}
	for _, c := range []struct {
		method, params string
		by             *host.Caller
		want           string // the answer, or a part of the error
		code           int
	}{
		{"host/secret.get", `{"key":"GRANTED"}`, of, `{"value":"open sesame"}`, 0},
		{"host/secret.get", `{"key":"OTHER"}`, of, "isn't granted to plugins", plugin.CodeRefused},
		{"host/secret.get", `{"key":"ABSENT"}`, of, "there is no secret 'ABSENT'", plugin.CodeRefused},
		{"host/secret.get", `{"key":"BROKEN"}`, of, "the keyring is locked", plugin.CodeRefused},
		{"host/secret.get", `{"key":5}`, of, "the parameters can't be read", rpc.CodeParams},
		{"host/settings.get", `{"distribution":"AgentEnv_Acme"}`, of, `{"settings":{"of":"AgentEnv_Acme"}}`, 0},
		{"host/settings.get", `{"distribution":"other"}`, of, "are not those of agentenv-acme, which asks", plugin.CodeRefused},
		{"host/settings.get", `{"distribution":"other"}`, &host.Caller{}, `{"settings":{"of":"other"}}`, 0}, // the host of Python classes serves all
		{"host/settings.get", `{"distribution":"board"}`, &host.Caller{Distribution: "board", Git: true}, `{"settings":{"git":"board"}}`, 0},
		{"host/config.get", `{"key":"agents.default"}`, of, `{"value":"value of agents.default"}`, 0},
		{"host/object.put", `{"text":"hello"}`, of, `"size":5`, 0},
		{"host/object.put", `{"file":` + quote(file) + `}`, of, `"size":11`, 0},
		{"host/object.put", `{"text":"hello"}`, &host.Caller{}, "this call has none", plugin.CodeRefused},
		{"host/object.put", `{}`, of, "one of them", rpc.CodeParams},
		{"host/object.put", `{"text":"a","file":"/b"}`, of, "one of them", rpc.CodeParams},
		{"host/object.put", `{"file":"f"}`, of, "absolute path", rpc.CodeParams},
		{"host/object.put", `{"file":` + quote(link) + `}`, of, "is no file", plugin.CodeRefused},
		{"host/object.put", `{"file":` + quote(dir) + `}`, of, "is no file", plugin.CodeRefused},
		{"host/object.put", `{"file":"/nowhere/x"}`, of, "can't be read", plugin.CodeRefused},
		{"host/object.get", `{"url":"file:///etc/passwd"}`, of, "is no address of an object", plugin.CodeRefused},
		{"host/object.get", `{"url":"object:../../x"}`, of, "is no address of an object", plugin.CodeRefused},
	} {
		out, err := funcs[c.method](t.Context(), c.by, json.RawMessage(c.params))
		if c.code != 0 {
			if err == nil || rpc.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v (%d), want %q (%d)", c.method, c.params, err, rpc.CodeOf(err), c.want, c.code)
			}
			continue
		}
		if got := quote(out); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, %v; want %s", c.method, c.params, got, err, c.want)
		}
	}
	if want := []string{"open sesame", "hidden", "hidden"}; !slices.Equal(hidden, want) {
		t.Errorf("hidden are %q, want %q", hidden, want)
	}
	if kept.kept["run-1"] != "from a file" {
		t.Errorf("kept is %q", kept.kept)
	}
}
