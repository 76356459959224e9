package bundle

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
)

// files are a bundle's files by path. A content "-> x" makes a link to x, "fifo" a FIFO, and a path that ends with "/" a folder.
type files map[string]string

func (fs files) write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range fs {
		at := filepath.Join(dir, name)
		parent := filepath.Dir(at)
		if strings.HasSuffix(name, "/") {
			parent = at
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
		case link:
			err = os.Symlink(strings.ReplaceAll(target, "$B", dir), at)
		case text == "fifo":
			err = syscall.Mkfifo(at, 0o644)
		default:
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// with is fs and more files.
func (fs files) with(more files) files {
	out := files{}
	for _, m := range []files{fs, more} {
		maps.Copy(out, m)
	}
	return out
}

// fakeView is a store of the tests: "artifact @local/x/y" -> type and body.
type fakeView map[string]Stored

func (v fakeView) Stored(_ context.Context, k ref.Kind, id string, version int) (Stored, bool, error) {
	s, ok := v[string(k)+" "+id]
	if !ok || version > s.Version {
		return Stored{}, false, nil
	}
	if version > 0 {
		s.Version = version
	}
	return s, true, nil
}

// open makes a source of a folder named b below a home folder of its own.
func open(t *testing.T, f files) Source {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.write(t, dir)
	src, err := OpenFolder(dir, home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

func options() Options {
	return Options{Kinds: step.Kinds(), TypeAliases: map[string]string{"bundle_of_files": "file_artifact_universe"}}
}

// stages runs Parse, Resolve and Plan until one finds errors.
func stages(t *testing.T, src Source, v View, sel Selection) (*Plan, diag.List) {
	t.Helper()
	b, l := Parse(src, options())
	if l.HasErrors() {
		return nil, l
	}
	if l = b.Resolve(); l.HasErrors() {
		more, err := b.Missing(t.Context(), v, sel)
		if err != nil {
			t.Fatal(err)
		}
		return nil, append(l, more...)
	}
	p, l, err := b.Plan(t.Context(), v, sel)
	if err != nil {
		t.Fatal(err)
	}
	return p, l
}

// answer is what the stages say: the errors, or the labels of what would be written.
func answer(t *testing.T, src Source, v View, sel Selection) string {
	t.Helper()
	p, l := stages(t, src, v, sel)
	if l.HasErrors() {
		if p != nil {
			t.Error("a plan in spite of errors")
		}
		return strings.ReplaceAll(l.Err().Error(), src.Root, "$B")
	}
	labels := make([]string, 0, len(p.Writes))
	for _, w := range p.Writes {
		labels = append(labels, w.Label)
	}
	return "ok: " + strings.Join(labels, ", ")
}

const boxStep = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}`

// load is a task that loads artifacts into a sandbox.
func load(names ...string) string {
	var out strings.Builder
	out.WriteString("[" + boxStep)
	for i, n := range names {
		out.WriteString(`,
{"id":"l` + string(rune('0'+i)) + `","type":"load_artifact","sandbox_name":"box","artifact_id":"` + n + `"}`)
	}
	return out.String() + "]"
}

// resets is a task that resets envs.
func resets(names ...string) string {
	var out strings.Builder
	out.WriteString("[" + boxStep)
	for i, n := range names {
		out.WriteString(`,
{"id":"r` + string(rune('0'+i)) + `","type":"reset_env","env_id":"` + n + `"}`)
	}
	return out.String() + "]"
}

var _ fs.FS = (*folder)(nil)
