package bundlerun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
)

// acme is a machine on which one distribution brings one step type.
type acme struct{ version string }

func (a acme) Installed(context.Context) (requirement.Installed, error) { return a, nil }

func (a acme) Find(name string) (requirement.Dist, bool) {
	return requirement.Dist{Name: "agentenv-acme", Version: a.version}, name == "agentenv-acme" && a.version != ""
}

func (acme) Environment(context.Context) (requirement.Environment, string, error) {
	return requirement.Newest(), "", nil
}

func (a acme) Origin(_ context.Context, group, name string) (catalog.Origin, bool) {
	return a.origin(), group == bundle.StepTypes && name == "acme_check" && a.version != ""
}

func (a acme) origin() catalog.Origin {
	return catalog.Origin{Kind: catalog.Distribution, Package: "agentenv-acme", Version: a.version}
}

// passes is an executor that does nothing.
type passes struct{}

func (passes) Run(context.Context, *step.Call) error { return nil }

func withAcme(t *testing.T, version string) *rig {
	t.Helper()
	r := newRig(t, fake.Options{})
	a := acme{version}
	r.Engine.Bundle.Plugins = a
	if version != "" {
		r.Engine.Bundle.Kinds.Add("acme_check", a.origin(), &step.Kind{Name: "acme_check", Fields: doc.Schema{Open: true}})
		r.Engine.Executors.Add("acme_check", a.origin(), passes{})
	}
	return r
}

// declare is what a walk does about a bundle.toml.
func declare(ctx context.Context, b *bundle.Bundle, r Request) (*Declared, diag.List, error) {
	d, err := declaration(ctx, b, r)
	if err != nil {
		return nil, d.Hints, err
	}
	declared, hints := d.write()
	return declared, hints, nil
}

const acmeTask = `[{"id":"a","type":"acme_check"}]`

// folder is a bundle on disk, opened by its path.
func folder(t *testing.T, kv ...string) bundle.Source {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "b")
	for i := 0; i < len(kv); i += 2 {
		at := filepath.Join(dir, kv[i])
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(kv[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src, err := bundle.OpenFolder(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// said are the lines of a reporter that speak of bundle.toml.
func (r *reporter) said() []string {
	var out []string
	for _, l := range r.lines {
		if strings.Contains(l, "bundle.toml") {
			out = append(out, l)
		}
	}
	return out
}

func manifest(t *testing.T, src bundle.Source) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(src.Dir, "bundle.toml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func noLeavings(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s stays", e.Name())
		}
	}
}

func TestDeclare(t *testing.T) {
	const line = `requires = ["agentenv-acme>=1.2.0"]`
	r := withAcme(t, "1.2.0+acme.1")
	src := folder(t, "tasks/t.json", acmeTask)
	dry, err := r.Register(t.Context(), Request{Source: src, DryRun: true}, r.rep)
	if err != nil || manifest(t, src) != "" || !slices.Equal(r.rep.said(), []string{"would write bundle.toml: " + line}) || !dry.Declared.DryRun {
		t.Fatalf("%v, %q, %+v", err, r.rep.said(), dry.Declared)
	}
	r.rep.lines = nil
	sum, err := r.Run(t.Context(), Request{Source: src}, r.rep)
	if err != nil || sum.Failed > 0 || manifest(t, src) != line+"\n" || !slices.Equal(r.rep.said(), []string{"wrote bundle.toml: " + line}) {
		t.Fatalf("%v, %q, %q", err, manifest(t, src), r.rep.said())
	}
	if info, err := os.Stat(filepath.Join(src.Dir, "bundle.toml")); err != nil || info.Mode().Perm()&^0o644 != 0 || info.Mode().Perm()&0o400 == 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	noLeavings(t, src.Dir)
	r.rep.lines = nil
	if sum, err := r.Register(t.Context(), Request{Source: src}, r.rep); err != nil || sum.Declared != nil || len(r.rep.said()) > 0 {
		t.Errorf("%v, %q", err, r.rep.said())
	}
}

// TestDeclaringSettings: one setting decides (S20), and an installed bundle says nothing (S21).
func TestDeclaringSettings(t *testing.T) {
	const hint = `bundle.toml: there is none, and this bundle uses the step type 'acme_check' of agentenv-acme 1.2.0; declare it with: requires = ["agentenv-acme>=1.2.0"]`
	r := withAcme(t, "1.2.0")
	for name, c := range map[string]struct {
		change func(*Request)
		hints  []string
	}{
		"hint":      {func(r *Request) { r.Declare = DeclareHint }, []string{hint}},
		"silent":    {func(r *Request) { r.Declare = DeclareSilent }, nil},
		"installed": {func(r *Request) { r.Source.ByPath = false }, nil},
		"a part":    {func(r *Request) { r.Source.Part = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			req := Request{Source: folder(t, "tasks/t.json", acmeTask)}
			c.change(&req)
			b, l := bundle.Parse(req.Source, r.Engine.Bundle)
			if l = append(l, b.Resolve()...); l.HasErrors() {
				t.Fatal(l)
			}
			d, hints, err := declare(t.Context(), b, req)
			if err != nil || d != nil || manifest(t, req.Source) != "" || !slices.Equal(texts(hints), c.hints) {
				t.Errorf("%+v, %q, %v", d, texts(hints), err)
			}
		})
	}
}

func texts(l diag.List) []string {
	var out []string
	for _, p := range l {
		out = append(out, p.String())
	}
	return out
}

// TestExistingManifestStays: a file that is there is never touched (S19).
func TestExistingManifestStays(t *testing.T) {
	r := withAcme(t, "1.2.0")
	src := folder(t, "tasks/t.json", acmeTask, "bundle.toml", "requires = []")
	b, _ := bundle.Parse(src, r.Engine.Bundle)
	_ = b.Resolve()
	d, hints, err := declare(t.Context(), b, Request{Source: src})
	want := []string{`bundle.toml: it doesn't require what brings the step type 'acme_check' of agentenv-acme 1.2.0; declare it with: requires = ["agentenv-acme>=1.2.0"]`}
	if err != nil || d != nil || !slices.Equal(texts(hints), want) || manifest(t, src) != "requires = []" {
		t.Errorf("%+v, %q, %v", d, texts(hints), err)
	}
}

// TestRacingDeclarers: of many at once exactly one writes, and none replaces what appeared meanwhile (S17).
func TestRacingDeclarers(t *testing.T) {
	r := withAcme(t, "1.2.0")
	src := folder(t, "tasks/t.json", acmeTask)
	b, _ := bundle.Parse(src, r.Engine.Bundle)
	_ = b.Resolve()
	wrote := make([]bool, 12)
	var wg sync.WaitGroup
	for i := range wrote {
		wg.Go(func() {
			d, hints, err := declare(t.Context(), b, Request{Source: src})
			if err != nil || len(hints) > 0 {
				t.Errorf("%q, %v", texts(hints), err)
			}
			wrote[i] = d != nil
		})
	}
	wg.Wait()
	n := 0
	for _, w := range wrote {
		if w {
			n++
		}
	}
	if n != 1 || manifest(t, src) != "requires = [\"agentenv-acme>=1.2.0\"]\n" {
		t.Errorf("%d wrote %q", n, manifest(t, src))
	}
	noLeavings(t, src.Dir)
	if err := os.WriteFile(filepath.Join(src.Dir, "bundle.toml"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if d, hints, err := declare(t.Context(), b, Request{Source: src}); d != nil || len(hints) > 0 || err != nil || manifest(t, src) != "mine" {
		t.Errorf("%+v, %q, %v", d, texts(hints), err)
	}
}

// TestUnmetRefusal: nothing is written or run while a requirement isn't met, types that nobody knows are held back, and everything else is told (S4, S8).
func TestUnmetRefusal(t *testing.T) {
	const unmet = "bundle.toml: requires 'agentenv-acme>=2', which isn't installed; install it with: agent-env plugin add 'agentenv-acme>=2'"
	for name, c := range map[string]struct {
		version string
		more    []string
		want    string
		only    bool
	}{
		"a type nobody knows": {more: []string{"tasks/t.json", acmeTask}, want: unmet, only: true},
		"another problem": {
			more: []string{"tasks/t.json", `[{"id":"a","type":"acme_check"},{"id":"b","type":"deploy_sandbox","sandbox_mode":"vm"}]`},
			want: unmet + "\ntasks/t.json: step 'b': sandbox_name is missing; write it: a string (line 1)",
		},
		"a fault of the form": {
			more: []string{"tasks/t.json", acmeTask, "tasks/u.json", "{}"},
			want: unmet + "\ntasks/u.json: a task file must be a JSON array of step objects, not a table (line 1)",
		},
		"too old": {version: "1.2.0", more: []string{"tasks/t.json", acmeTask}, only: true, want: strings.Replace(unmet, ", which isn't installed", ", and agentenv-acme 1.2.0 is installed", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := withAcme(t, c.version)
			src := folder(t, append(c.more, "bundle.toml", `requires = ["agentenv-acme>=2"]`)...)
			for _, dry := range []bool{true, false} {
				_, err := r.Run(t.Context(), Request{Source: src, DryRun: dry}, r.rep)
				u, ok := errors.AsType[*UnmetRequirements](err)
				if !ok || err.Error() != c.want || u.Only != c.only || !slices.Equal(u.Install, []string{"agentenv-acme>=2"}) {
					t.Errorf("%v\nwant %s", err, c.want)
				}
				if _, listed := diag.From(err); !listed {
					t.Error("it holds no list")
				}
				if _, err := r.Register(t.Context(), Request{Source: src, DryRun: dry}, r.rep); !ok || err == nil || err.Error() != c.want {
					t.Errorf("register: %v", err)
				}
			}
			l, err := r.Check(t.Context(), src, false)
			if err != nil || l.Err() == nil || l.Err().Error() != c.want {
				t.Errorf("check: %v, %v", l, err)
			}
			if len(r.rep.lines) > 0 {
				t.Errorf("it says %q", r.rep.lines)
			}
		})
	}
}

// TestNothingToDeclareIn: what keeps the file from being written is a hint and no error.
func TestNothingToDeclareIn(t *testing.T) {
	r := withAcme(t, "1.2.0")
	src := folder(t, "tasks/t.json", acmeTask)
	b, _ := bundle.Parse(src, r.Engine.Bundle)
	_ = b.Resolve()
	src.Dir = filepath.Join(src.Dir, "gone")
	for _, dry := range []bool{true, false} {
		d, hints, err := declare(t.Context(), b, Request{Source: src, DryRun: dry})
		want := `bundle.toml: it can't be written (no such file or directory), and this bundle uses the step type 'acme_check' of agentenv-acme 1.2.0; declare it with: requires = ["agentenv-acme>=1.2.0"]`
		if err != nil || d != nil || !slices.Equal(texts(hints), []string{want}) {
			t.Errorf("%+v, %q, %v", d, texts(hints), err)
		}
	}
}
