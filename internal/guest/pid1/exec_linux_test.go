package pid1

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestMergeEnv(t *testing.T) {
	for _, c := range []struct{ a, b, want []string }{
		{nil, nil, []string{}},
		{[]string{"A=1", "B=2"}, []string{"A=3"}, []string{"A=3", "B=2"}},
		{[]string{"A=1"}, []string{"C=x=y", "C=z"}, []string{"A=1", "C=z"}},
		{[]string{"A=1"}, []string{"A="}, []string{"A="}},
		{[]string{"none", "=x", "Z=\x00"}, []string{"OK=1"}, []string{"OK=1"}},
	} {
		if got := mergeEnv(c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("%q and %q: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a/tool": 0o755, "b/tool": 0o755, "a/text": 0o644, "b/text": 0o755, "a/only": 0o600} {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "a", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + dir + "/none:" + dir + "/a:" + dir + "/b"}
	for _, c := range []struct {
		name string
		env  []string
		want string
		err  error
	}{
		{"tool", env, dir + "/a/tool", nil},
		{"text", env, dir + "/b/text", nil}, // what can't be executed is passed by
		{"only", env, "", syscall.EACCES},
		{"folder", env, "", syscall.ENOENT},
		{"nothing", env, "", syscall.ENOENT},
		{"tool", nil, "", syscall.ENOENT},
		{"./tool", nil, dir + "/a/tool", nil},
		{"../b/tool", nil, dir + "/b/tool", nil},
		{dir + "/b/text", nil, dir + "/b/text", nil},
		{dir + "/a/text", nil, "", syscall.EACCES},
		{dir + "/a/folder", nil, "", syscall.EISDIR},
		{"tool", []string{"PATH=:/x"}, dir + "/a/tool", nil}, // an empty element is the folder
	} {
		got, err := lookPath(c.name, dir+"/a", c.env)
		if c.err != nil {
			if !errors.Is(err, c.err) {
				t.Errorf("%s: %q, %v, want %v", c.name, got, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestMemoryKills(t *testing.T) {
	for text, want := range map[string]int64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":                3, // v1
		"low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n": 1, // v2
		"":                    0,
		"oom_kill nonsense\n": 0,
	} {
		name := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m := &memory{events: &counter{f, "oom_kill "}}
		m.own.Add(10)
		if got := m.kills(); got != want+10 {
			t.Errorf("%q: %d kills, want %d", text, got, want+10)
		}
	}
	if sum, largest := usage(); sum <= 0 || largest <= 0 {
		t.Errorf("the processes here use %d bytes, the largest is %d", sum, largest)
	}
}
