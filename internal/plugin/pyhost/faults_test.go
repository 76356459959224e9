package pyhost_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var fault = stepEntry("fault", "faults:Fault")

func how(name string) map[string]any { return map[string]any{"id": "s", "type": "fault", "how": name} }

// Whatever a plugin does, its step ends with an honest line, and the next one runs in the same process.
func TestFaults(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "faults"), map[string]func(json.RawMessage) (any, error){
		"host/settings.get": func(raw json.RawMessage) (any, error) {
			return map[string]any{"settings": map[string]string{"a": "b"}}, nil
		},
		"host/secret.get": func(json.RawMessage) (any, error) { return nil, errors.New("not granted") },
	})
	const at = " (faults.py:"
	for _, r := range []struct {
		how  string
		want string // the diff, or "code type message" up to the line number
	}{
		{"prints", `set metadata/read=""`},
		{"exits", "-32010 SystemExit called sys.exit('enough')" + at},
		{"exits_in_thread", "-32010 SystemExit called sys.exit(4)" + at},
		{"interrupts", "-32010 KeyboardInterrupt raised KeyboardInterrupt without a message" + at},
		{"surrogates", "-32010 ValueError caf? second\x00line" + at},
		{"mute", "-32010 RuntimeError raised RuntimeError without a message" + at},
		{"unprintable", "-32010 Odd raised Odd without a message" + at},
		{"sets", "-32603  metadata/acme/seen is a set ({1, 2}), which a JSON document can't hold" + at},
		{"dates", "-32603  metadata/when is a datetime (datetime.datetime(2026, 1, 1, 0, 0)), which a JSON document can't hold" + at},
		{"nan", "-32603  metadata/score is nan, which JSON has no number for" + at},
		{"circles", "-32603  metadata is nested deeper than 200 levels, or holds itself" + at},
		{"keys", "-32603  metadata/pairs has the name (1, 2), which is a tuple and no text" + at},
		{"wrong_result", "-32603  execute answered dict and no context" + at},
		{"surrogate_value", `set metadata/name="caf?"|set metadata/more/1="one"|set metadata/more/null=[1,2]`},
		{"forks", "set metadata/parent=true"},
		{"forks_and_asks", `set metadata/child="a fork of the plugin's process can't ask AgentEnv anything; ask before forking"`},
		{"threads", `set metadata/seen=[{"a":"b"},{"a":"b"}]`},
		{"cancels_itself", "-32010 CancelledError raised CancelledError without a message" + at},
		{"unreachable", "-32010 infra Unreachable POST http://127.0.0.1:9/env/agentenv: [Errno 111] Connection refused" + at},
		{"secret", "set metadata/secret=null"},
		{"bad_log", ""},
		{"large", "-32603  a message has 34603"},
		{"nothing", "-32010 AttributeError 'Fault' object has no attribute 'nothing'" + at},
		{"ok", "set metadata/ok=0"},
	} {
		ops, err := b.execute(fault, how(r.how), nil)
		got := strings.Join(ops, "|")
		var f *failure
		if errors.As(err, &f) {
			got = fmt.Sprintf("%d %s %s", f.Code, f.Data.Type, f.Message)
			if f.Data.Infra {
				got = fmt.Sprintf("%d infra %s %s", f.Code, f.Data.Type, f.Message)
			}
		} else if err != nil {
			t.Fatalf("%s: %v", r.how, err)
		}
		if got != r.want && (f == nil || !strings.HasPrefix(got, r.want)) || strings.Contains(got, "\n") {
			t.Errorf("%s:\n got %s\nwant %s", r.how, got, r.want)
		}
	}
	for _, line := range []string{"info %d of %s (its arguments don't fit:", "warning caf?", "error it broke: division by zero (faults.py:"} {
		if !strings.Contains(b.logged(), line) {
			t.Errorf("no line %q in the log:\n%s", line, b.logged())
		}
	}
	stop(t, b)
	for _, text := range []string{"printed at import", `{"jsonrpc":"2.0","id":1,"result":"forged"}`, "no line end", "raw bytes on descriptor 1", "from a child", "''"} {
		if !strings.Contains(b.err.String(), text) {
			t.Errorf("%q is not in what the process printed:\n%s", text, &b.err)
		}
	}
}

// stop closes the connection, as the host does, and waits for the process.
func stop(t *testing.T, b *bridge) {
	t.Helper()
	from := time.Now()
	_ = b.in.Close()
	<-b.done
	if err := b.cmd.Wait(); err != nil || time.Since(from) > 4*time.Second {
		t.Errorf("the Python host ended with %v after %s", err, time.Since(from))
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "faults"), nil)
	for name, want := range map[string]string{"waits": "-32800: cancelled", "swallows": "set metadata/swallowed", "blocks": "set metadata/blocked"} {
		id, c := b.send("step/execute", executeParams(fault, how(name), nil))
		time.Sleep(100 * time.Millisecond)
		b.write(map[string]any{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": map[string]any{"id": id}})
		raw, err := await(c)
		got := string(raw)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(strings.ReplaceAll(got, `{"op":"set","path":"`, "set "), want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if !strings.Contains(b.logged(), "info cleaning up") {
		t.Errorf("log: %s", b.logged())
	}
}

// The connection's end cancels what runs, and what doesn't end then doesn't hold the process.
func TestTheEndOfTheConnection(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "faults"), nil)
	b.send("step/execute", executeParams(fault, how("waits"), nil))
	b.send("step/execute", executeParams(fault, how("threads"), nil)) // asks the host, which doesn't have it
	time.Sleep(200 * time.Millisecond)
	stop(t, b)
}

// A process that crashes takes every call with it, and says on stderr what it can.
func TestACrash(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "faults"), nil)
	_, waiting := b.send("step/execute", executeParams(fault, how("waits"), nil))
	if _, err := b.execute(fault, how("crashes"), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the crash is told as %v", err)
	}
	if _, err := await(waiting); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a call beside it is told %v", err)
	}
	if err := b.cmd.Wait(); err == nil || !strings.Contains(b.err.String(), "about to crash") {
		t.Errorf("ended with %v, saying %s", err, &b.err)
	}
}

// Many calls at once, each with its own context and token, more than there are threads.
func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	python := generation(t)
	install(t, python, map[string]string{"echo.py": `
import asyncio
from agent_env.plugins import settings
from agent_env.task_step.task_step import TaskStep


class Echo(TaskStep):
    type = "echo"

    @classmethod
    def from_dict(cls, data):
        return cls(**cls._base_from_dict(data))

    async def execute(self, context):
        await asyncio.sleep(0.05)
        answer = await asyncio.to_thread(settings, self.id)
        context.metadata.setdefault("echo", {})[self.id] = answer["call"]
`})
	b := start(t, python, map[string]func(json.RawMessage) (any, error){
		"host/settings.get": func(raw json.RawMessage) (any, error) {
			var p struct{ Call, Distribution string }
			err := json.Unmarshal(raw, &p)
			return map[string]any{"settings": map[string]string{"call": p.Call}}, err
		},
	})
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			token, id := fmt.Sprintf("c-%d", i), fmt.Sprintf("s%d", i)
			p := executeParams(stepEntry("echo", "echo:Echo"), map[string]any{"id": id, "type": "echo"}, nil)
			p["call"] = token
			raw, err := b.call("step/execute", p)
			want := `{"diff":[{"op":"set","path":"metadata/echo/` + id + `","value":"` + token + `"}]}`
			if err != nil || string(raw) != want {
				t.Errorf("%s: %s, %v", id, raw, err)
			}
		})
	}
	all.Wait()
}

// What the other end may say wrongly.
func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "faults"), nil)
	for _, r := range []struct {
		method string
		params any
		code   int
	}{
		{"nope/nope", map[string]any{}, -32601},
		{"step/remove", map[string]any{}, -32601},
		{"step/execute", map[string]any{}, -32602},
		{"step/execute", map[string]any{"entry": fault}, -32602},
		{"step/execute", map[string]any{"entry": fault, "step": "x"}, -32602},
		{"step/execute", map[string]any{"entry": fault, "step": how("ok"), "context": map[string]any{"deployed_envs": 3}}, -32602},
		{"step/execute", map[string]any{"entry": stepEntry("a", "nowhere:A"), "step": how("ok")}, -32603},
		{"load", map[string]any{"entries": 3}, -32602},
		{"initialize", map[string]any{"protocol_versions": []int{99}}, -32001},
	} {
		_, err := b.call(r.method, r.params)
		var f *failure
		if !errors.As(err, &f) || f.Code != r.code || f.Message == "" {
			t.Errorf("%s %v: %v, want %d", r.method, r.params, err, r.code)
		}
	}
	ops, err := b.execute(fault, how("ok"), map[string]any{"metadata": map[string]any{"a": 1}})
	if want := []string{"set metadata/ok=1"}; err != nil || !slices.Equal(ops, want) {
		t.Errorf("after all that: %v, %v", ops, err)
	}
	b.writing.Lock()
	_, _ = io.WriteString(b.in, "\n  \n{no json\n")
	b.writing.Unlock()
	<-b.done
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("what is no message ends the process with %v", err)
	}
}
