package secrets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
)

func file(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecret(t *testing.T) {
	env := map[string]string{"both": "from env", "empty": "", "only-env": "e"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	yaml := "# keys\nboth: from file\nonly-file: f\nempty: \"\"\nnumber: 007\nyes-no: on\nquoted: '007'\n\"wide key ä\": \"a: b # c\"\n"
	c := Config{Values: map[string]string{"both": "from values", "only-values": "v", "blank": ""}, File: file(t, "s.yaml", yaml, 0o600), UseEnv: true, LookupEnv: lookup}
	noEnv := c
	noEnv.UseEnv = false
	json := Config{File: file(t, "s.json", `{"a": "x", "n": 1.50, "t": true}`, 0o600)}
	for _, tt := range []struct {
		c    Config
		key  string
		want string
		err  error
	}{
		{c, "both", "from env", nil},
		{c, "only-env", "e", nil},
		{c, "only-values", "v", nil},
		{c, "blank", "", nil},
		{c, "only-file", "f", nil},
		{c, "empty", "", nil}, // from the file: an empty variable counts as missing
		{c, "number", "007", nil},
		{c, "quoted", "007", nil},
		{c, "yes-no", "on", nil},
		{c, "wide key ä", "a: b # c", nil},
		{c, "Both", "", store.ErrNotFound},
		{noEnv, "both", "from values", nil},
		{noEnv, "only-env", "", store.ErrNotFound},
		{json, "a", "x", nil},
		{json, "n", "1.50", nil},
		{json, "t", "true", nil},
		{json, "b", "", store.ErrNotFound},
		{Config{}, "b", "", store.ErrNotFound},
	} {
		got, err := New(tt.c).Secret(t.Context(), tt.key)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tt.key, got, err, tt.want, tt.err)
		}
	}
	if _, err := New(c).Secret(t.Context(), ""); err == nil {
		t.Error("an empty key")
	}
	_, err := New(c).Secret(t.Context(), "gone\n")
	if err == nil || !strings.Contains(err.Error(), `'gone\n'`) || !strings.Contains(err.Error(), "the environment, the config's values, "+c.File) {
		t.Errorf("the error says %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(c).Secret(ctx, "both"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The file is read once, and only when a key isn't found before it.
func TestFileIsReadLate(t *testing.T) {
	path := file(t, "s.yaml", "k: one\n", 0o600)
	s := New(Config{Values: map[string]string{"v": "x"}, File: path})
	if err := os.WriteFile(path, []byte("k: two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Secret(t.Context(), "k"); v != "two" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Secret(t.Context(), "k"); v != "two" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	s = New(Config{Values: map[string]string{"v": "x"}, File: path})
	if v, err := s.Secret(t.Context(), "v"); v != "x" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := s.Secret(t.Context(), "k"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestCheck(t *testing.T) {
	const value = "hunter2"
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		path string
		want []string // texts of the problems, in order; a file that people may read is fine in its content
	}{
		"none":     {"", nil},
		"fine":     {file(t, "s.yaml", "a: b\n", 0o600), nil},
		"empty":    {file(t, "s.yaml", "", 0o600), nil},
		"readable": {file(t, "s.yaml", "a: b\n", 0o644), []string{"mode 0644: other users may reach it; run chmod 600 on it"}},
		"group":    {file(t, "s.yaml", "a: b\n", 0o640), []string{"mode 0640"}},
		"missing":  {filepath.Join(dir, "gone"), []string{"can't be read: no such file"}},
		"folder":   {dir, []string{"no regular file"}},
		"syntax":   {file(t, "s.yaml", "a: b\nb: ["+value+"\n", 0o600), []string{"is no plain YAML"}},
		"json":     {file(t, "s.JSON", "{\"a\": \""+value+"\",, \"b\": 1}", 0o600), []string{":1: the secrets file is no plain JSON"}},
		"anchor":   {file(t, "s.yaml", "a: &x "+value+"\nb: *x\n", 0o600), []string{"is no plain YAML"}},
		"list":     {file(t, "s.yaml", "- "+value+"\n", 0o600), []string{"holds a list instead of keys"}},
		"scalar":   {file(t, "s.yaml", value+"\n", 0o600), []string{"holds a string instead of keys"}},
		"nested":   {file(t, "s.yaml", "a: b\nc:\n  d: "+value+"\ne: ["+value+"]\nf:\n", 0o600), []string{":2: secret 'c' is a table", ":4: secret 'e' is a list", ":5: secret 'f' is null"}},
		"twice":    {file(t, "s.yaml", "a: "+value+"\na: "+value+"x\n", 0o600), []string{":2: the secrets file is no plain YAML"}},
		"large":    {file(t, "s.yaml", "a: "+strings.Repeat("x", maxFile), 0o600), []string{"larger than"}},
	} {
		s := New(Config{File: tt.path})
		l := s.Check()
		var got []string
		for _, p := range append(l.Of(diag.Error), l.Of(diag.Warning)...) {
			got = append(got, p.String())
		}
		if len(got) < len(tt.want) || len(tt.want) == 0 && len(got) > 0 {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(got[i], want) || !strings.HasPrefix(got[i], tt.path) {
				t.Errorf("%s: %q, want %q", name, got[i], want)
			}
		}
		_, err := s.Secret(t.Context(), "nothing")
		if err == nil || errors.Is(err, store.ErrNotFound) == l.HasErrors() {
			t.Errorf("%s: %v", name, err)
		}
		if all := strings.Join(got, "\n") + err.Error(); strings.Contains(all, value) {
			t.Errorf("%s: a value in %q", name, all)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("s.yaml", "a: b\nc: 'd'\n")
	f.Add("s.json", `{"a": "b", "n": 1}`)
	f.Add("s.yaml", "a: {b: c}\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		values, l := parse(name, []byte(text))
		if l.HasErrors() {
			_ = l.Err().Error()
			return
		}
		s := New(Config{Values: values})
		for k, want := range values {
			if k == "" {
				continue
			}
			if got, err := s.Secret(t.Context(), k); got != want || err != nil {
				t.Errorf("%q: %q, %v; want %q", k, got, err, want)
			}
		}
	})
}
