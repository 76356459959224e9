package bundle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/step"
)

// machine is what is installed in these tests. Every question is counted.
type machine struct {
	dists   map[string]requirement.Dist
	origins map[string]catalog.Origin // by group and name, "agent_env.envs x"
	note    string
	broken  error
	asked   int // for the set
	python  int // for the environment
}

func (m *machine) Installed(context.Context) (requirement.Installed, error) {
	m.asked++
	return m, m.broken
}

func (m *machine) Find(name string) (requirement.Dist, bool) { d, ok := m.dists[name]; return d, ok }

func (m *machine) Environment(context.Context) (requirement.Environment, string, error) {
	m.python++
	e := requirement.Newest()
	e.SysPlatform = "linux"
	return e, m.note, nil
}

func (m *machine) Origin(_ context.Context, group, name string) (catalog.Origin, bool) {
	o, ok := m.origins[group+" "+name]
	return o, ok
}

func newMachine() *machine {
	return &machine{
		dists: map[string]requirement.Dist{
			"agentenv-framework":          {Name: "agentenv-framework", Version: "0.9.1375"},
			"agentenv-framework-protocol": {Name: "agentenv-framework-protocol", Version: "0.1.379"},
			"agentenv-e2e-acme":           {Name: "agentenv-e2e-acme", Version: "1.2.0", Requires: []string{"pillow>=10; extra == 'img'"}},
			"agentenv-b":                  {Name: "Agentenv_B", Version: "1.2.0+acme.1"},
			"odd":                         {Name: "odd", Version: "foobar"},
		},
		origins: map[string]catalog.Origin{},
	}
}

// withTypes gives a machine step types by the distribution that they come from.
func (m *machine) withTypes(o *Options, types map[string]catalog.Origin) {
	for name, from := range types {
		m.origins[StepTypes+" "+name] = from
		o.Kinds.Add(name, from, &step.Kind{Name: name, Fields: doc.Schema{Open: true}})
	}
	o.Plugins = m
}

func errorsOf(l diag.List) []string {
	var out []string
	for _, p := range l.Of(diag.Error) {
		out = append(out, p.String())
	}
	return out
}

const oneTask = `[{"id":"a","type":"aggregate_verifiers"}]`

func TestUnmetRequirements(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		want     []string
		install  []string
	}{
		"S1": {manifest: "", want: nil},
		"S5": {`requires = ["agentenv-acme>=1.2"]`, []string{
			"bundle.toml: requires 'agentenv-acme>=1.2', which isn't installed; install it with: agent-env plugin add 'agentenv-acme>=1.2'",
		}, []string{"agentenv-acme>=1.2"}},
		"a bare name": {`requires = ["agentenv-acme"]`, []string{
			"bundle.toml: requires 'agentenv-acme', which isn't installed; install it with: agent-env plugin add agentenv-acme",
		}, []string{"agentenv-acme"}},
		"S6": {`requires = ["agentenv-e2e-acme>=2"]`, []string{
			"bundle.toml: requires 'agentenv-e2e-acme>=2', and agentenv-e2e-acme 1.2.0 is installed; install it with: agent-env plugin add 'agentenv-e2e-acme>=2'",
		}, []string{"agentenv-e2e-acme>=2"}},
		"S7": {`requires = ["z>=1", "win; sys_platform == 'win32'", "a", "agentenv-framework>=0.9"]`, []string{
			"bundle.toml: requires 'a', which isn't installed",
			"bundle.toml: requires 'z>=1', which isn't installed; install them with: agent-env plugin add 'z>=1' a",
		}, []string{"z>=1", "a"}},
		"S9": {`requires = ["agentenv-e2e-acme[img]>=1"]`, []string{
			"bundle.toml: requires 'agentenv-e2e-acme[img]>=1', whose extra needs 'pillow>=10', which isn't installed; " +
				"install it with: agent-env plugin add 'agentenv-e2e-acme[img]>=1'",
		}, []string{"agentenv-e2e-acme[img]>=1"}},
		"S10": {`requires = ["agentenv-framework>=99", "agentenv-framework-protocol==0.1.1", "x"]`, []string{
			"bundle.toml: requires 'agentenv-framework-protocol==0.1.1', and agentenv-framework-protocol 0.1.379 is installed; upgrade agent-env with the installer that installed it",
			"bundle.toml: requires 'agentenv-framework>=99', and agentenv-framework 0.9.1375 is installed; upgrade agent-env with the installer that installed it",
			"bundle.toml: requires 'x', which isn't installed; install it with: agent-env plugin add x",
		}, []string{"x"}},
		"agent-env by another name": {`requires = ["agent-env"]`, []string{
			"bundle.toml: requires 'agent-env', which isn't installed and can't be; require agentenv-framework in place of it",
		}, nil},
		"V65": {`requires = ["agentenv-e2e-acme>=1.2", "agentenv_e2e_acme>=2", "agentenv_e2e_acme>=2"]`, []string{
			"bundle.toml: requires 'agentenv_e2e_acme>=2', and agentenv-e2e-acme 1.2.0 is installed; install it with: agent-env plugin add 'agentenv_e2e_acme>=2'",
		}, []string{"agentenv_e2e_acme>=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Plugins = newMachine()
			b, l := Parse(open(t, files{"tasks/t.json": oneTask, "bundle.toml": c.manifest}), o)
			if l.HasErrors() {
				t.Fatal(l)
			}
			u, err := b.Unmet(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := errorsOf(u.Problems()); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if got := u.Install(); !slices.Equal(got, c.install) {
				t.Errorf("installs %q, want %q", got, c.install)
			}
		})
	}
}

// TestNothingAskedForNothing: a bundle that requires nothing asks of no installation, and one whose requirements have no markers of no Python.
func TestNothingAskedForNothing(t *testing.T) {
	for manifest, want := range map[string][2]int{
		"": {0, 0}, "requires = []": {0, 0}, `requires = ["agentenv-e2e-acme"]`: {1, 0}, `requires = ["x; os_name == 'nt'"]`: {1, 1}, `requires = ["x[y]"]`: {1, 1},
	} {
		m, o := newMachine(), options()
		o.Plugins = m
		b, _ := Parse(open(t, files{"tasks/t.json": oneTask, "bundle.toml": manifest}), o)
		l := b.Resolve()
		if _, err := b.Unmet(t.Context()); err != nil || l.HasErrors() {
			t.Fatal(err, l)
		}
		if d, err := b.Declaration(t.Context()); err != nil || len(d.Missing)+len(d.Hints) > 0 {
			t.Errorf("%s: declares %+v, %v", manifest, d, err)
		}
		if got := [2]int{m.asked, m.python}; got != want {
			t.Errorf("%s: asked %v times, want %v", manifest, got, want)
		}
	}
}

func TestUnmetNotesAndFaults(t *testing.T) {
	m, o := newMachine(), options()
	m.note, o.Plugins = "markers are taken for CPython 3.14, since there is no python3 here", m
	b, _ := Parse(open(t, files{"tasks/t.json": oneTask, "bundle.toml": `requires = ["x; os_name == 'posix'"]`}), o)
	u, err := b.Unmet(t.Context())
	if h := u.Problems().Of(diag.Hint); err != nil || len(h) != 1 || h[0].String() != "bundle.toml: "+m.note {
		t.Errorf("%v, %v", h, err)
	}
	m.broken = errors.New("no")
	if _, err := b.Unmet(t.Context()); !errors.Is(err, m.broken) {
		t.Error(err)
	}
}

// TestBadManifests: each fault is one line of its own (S2, S3, S27).
func TestBadManifests(t *testing.T) {
	for name, c := range map[string]struct {
		f    files
		want string
	}{
		"no TOML":     {files{"bundle.toml": "requires = [\n"}, "bundle.toml: not valid TOML: array is incomplete (line 1)"},
		"not UTF-8":   {files{"bundle.toml": "requires = ['\xff']\n"}, "bundle.toml: not UTF-8: byte 0xff; save the file as UTF-8 (line 1)"},
		"no list":     {files{"bundle.toml": "requires = 'a'\n"}, `bundle.toml: requires must be a list of strings, not "a" (line 1)`},
		"unknown key": {files{"bundle.toml": "name = 'b'\n"}, "bundle.toml: unknown key 'name'; bundle.toml takes requires (line 1)"},
		"a URL": {
			files{"bundle.toml": "requires = ['a @ https://x.invalid/a.whl']\n"},
			"bundle.toml: requires: 'a @ https://x.invalid/a.whl' names a URL; " +
				"name a package and its versions, such as agentenv-acme>=1.2 (line 1)",
		},
		"a password": {files{"bundle.toml": "requires = ['a@git+https://user:s3cret@h/x']\n"}, "bundle.toml: requires: 'a@git+https://***@h/x' names a URL"},
		"no requirement": {
			files{"bundle.toml": "requires = ['a>=1 <2']\n"},
			"bundle.toml: requires: 'a>=1 <2' isn't a requirement: versions are separated by commas, and ; begins a marker; " +
				"name a package and its versions, such as agentenv-acme>=1.2 (line 1)",
		},
		"nothing":          {files{"bundle.toml": "requires = ['']\n"}, "bundle.toml: requires: '' isn't a requirement: it is empty; name a package"},
		"no text":          {files{"bundle.toml": "requires = ['a', 3]\n"}, "bundle.toml: requires[1] must be a requirement between quotes, not 3 (line 1)"},
		"an option":        {files{"bundle.toml": "requires = ['--index-url=https://x.invalid']\n"}, "bundle.toml: requires: '--index-url=https://x.invalid' isn't a requirement: it must begin"},
		"a folder":         {files{"bundle.toml/x": "1"}, "bundle.toml: must be a file, not a folder"},
		"another spelling": {files{"Bundle.TOML": ""}, "Bundle.TOML: rename to bundle.toml; names are case-sensitive"},
		"an escape": {
			files{"bundle.toml": `requires = ["evil; os_name != \"\u001b[2K\ragentenv-browser\""]` + "\n"},
			`bundle.toml: requires: 'evil; os_name != "\x1b[2K\ragentenv-browser"' holds a character that can't be printed; write it anew, without what can't be seen (line 1)`,
		},
		"a mark":  {files{"bundle.toml": "requires = [\"a; os_name != '\\u202ex'\"]\n"}, `bundle.toml: requires: "a; os_name != '\u202ex'" holds a character that can't be printed`},
		"a space": {files{"bundle.toml": "requires = [\"a\\u00a0>=1\"]\n"}, `bundle.toml: requires: 'a\xa0>=1' holds a character that can't be printed`},
	} {
		t.Run(name, func(t *testing.T) {
			c.f["tasks/t.json"] = oneTask
			_, l := Parse(open(t, c.f), options())
			got := errorsOf(l)
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) || strings.ContainsAny(got[0], "\x1b\r\n\u202e") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, l := Parse(open(t, files{"tasks/t.json": oneTask, "needs": "requires = []", "bundle.toml": "-> needs"}), options()); l.HasErrors() {
		t.Errorf("a link isn't followed: %v", l)
	}
}

func TestDeclaration(t *testing.T) {
	types := map[string]catalog.Origin{
		"acme_check":    {Kind: catalog.Distribution, Package: "agentenv-e2e-acme", Version: "1.2.0"},
		"b_check":       {Kind: catalog.Distribution, Package: "agentenv-b", Version: "1.2.0+acme.1"},
		"odd_check":     {Kind: catalog.Distribution, Package: "odd", Version: "foobar"},
		"gone_check":    {Kind: catalog.Distribution, Package: "gone", Version: "1!2.0rc1"},
		"mine":          {Kind: catalog.Config},
		"shipped_check": {Kind: catalog.Config, Package: "agentenvhub-sdk", Version: "0.21.2"},
		"git_check":     {Kind: catalog.GitPlugin, Package: "desk", Where: "https://x.invalid/desk"},
	}
	steps := func(names ...string) string {
		var out []string
		for i, n := range names {
			out = append(out, `{"id":"s`+string(rune('a'+i))+`","type":"`+n+`"}`)
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	for name, c := range map[string]struct {
		f     files
		line  string // "" for nothing missing
		hints []string
	}{
		"S15":                         {f: files{"tasks/t.json": steps("acme_check", "acme_check")}, line: `requires = ["agentenv-e2e-acme>=1.2.0"]`},
		"S16":                         {f: files{"tasks/t.json": steps("b_check"), "tasks/u.json": steps("acme_check")}, line: `requires = ["Agentenv_B>=1.2.0", "agentenv-e2e-acme>=1.2.0"]`},
		"no version":                  {f: files{"tasks/t.json": steps("odd_check", "gone_check")}, line: `requires = ["gone>=1!2.0rc1", "odd"]`},
		"S19":                         {f: files{"tasks/t.json": steps("acme_check"), "bundle.toml": `requires = ["x; os_name == \"nt\""]`}, line: `requires = ["x; os_name == \"nt\"", "agentenv-e2e-acme>=1.2.0"]`},
		"declared whatever its bound": {f: files{"tasks/t.json": steps("acme_check"), "bundle.toml": `requires = ["agentenv_e2e.acme>9; os_name == 'nt'"]`}},
		"S22": {f: files{"tasks/t.json": steps("mine")}, hints: []string{
			"tasks/t.json: uses the step type 'mine', which this machine's configuration registers; whoever runs it needs that configuration",
		}},
		"S23": {f: files{"tasks/t.json": steps("shipped_check")}, hints: []string{
			"tasks/t.json: uses the step type 'shipped_check', which this machine's configuration registers, from agentenvhub-sdk 0.21.2; " +
				"whoever runs it needs that package and its configuration",
		}},
		"a git plugin": {f: files{"tasks/t.json": steps("git_check")}, hints: []string{
			"tasks/t.json: uses the step type 'git_check' of the git plugin desk; whoever runs it installs that with: agent-env plugin install https://x.invalid/desk",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			newMachine().withTypes(&o, types)
			b, l := Parse(open(t, c.f), o)
			if l = append(l, b.Resolve()...); l.HasErrors() {
				t.Fatal(l)
			}
			d, err := b.Declaration(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			line := ""
			if len(d.Missing) > 0 {
				line = d.Line()
			}
			var hints []string
			for _, h := range d.Hints {
				hints = append(hints, h.String())
			}
			if line != c.line || !slices.Equal(hints, c.hints) {
				t.Errorf("declares %s\nhints %q", line, hints)
			}
			if len(d.Missing) == 0 {
				return
			}
			o.Plugins = nil
			again, l := Parse(open(t, files{"tasks/t.json": oneTask, "bundle.toml": d.Text()}), o)
			if l.HasErrors() || !slices.Equal(again.Requires, d.Requires) {
				t.Errorf("%s\nreads as %q, %v", d.Text(), again.Requires, l)
			}
		})
	}
}

// TestReplacedTypeIsNoRequirement: a type that configuration serves in the place of a distribution is the configuration's; names in the bundle that are no
// types, such as a provider of sandboxes, are nobody's (S26).
func TestReplacedTypeIsNoRequirement(t *testing.T) {
	m, o := newMachine(), options()
	m.withTypes(&o, map[string]catalog.Origin{"acme_check": {Kind: catalog.Config}})
	from := catalog.Origin{Kind: catalog.Distribution, Package: "agentenv-e2e-acme", Version: "1.2.0"}
	m.origins[StepTypes+" acme_check"] = from
	m.origins["agent_env.sandbox_providers acme_boxes"] = from
	b, l := Parse(open(t, files{"tasks/t.json": `[{"id":"a","type":"acme_check"},{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_type":"acme_boxes","sandbox_mode":"vm"}]`}), o)
	if l = append(l, b.Resolve()...); l.HasErrors() {
		t.Fatal(l)
	}
	d, err := b.Declaration(t.Context())
	if err != nil || len(d.Missing) > 0 || len(d.Hints) != 1 || !strings.Contains(d.Hints[0].String(), "'acme_check', which this machine's configuration registers") {
		t.Errorf("declares %+v, %v", d, err)
	}
}

// TestUsesOfEveryGroup: needs come from step, env and artifact types, of the bundle's own entries (S26).
func TestUsesOfEveryGroup(t *testing.T) {
	m, o := newMachine(), options()
	from := catalog.Origin{Kind: catalog.Distribution, Package: "agentenv-e2e-acme", Version: "1.2.0"}
	m.withTypes(&o, map[string]catalog.Origin{"acme_check": from})
	m.origins[EnvTypes+" acme_env"], m.origins[ArtifactTypes+" acme_data"] = from, from
	b, l := Parse(open(t, files{
		"tasks/t.json": `[{"id":"a","type":"acme_check"}]`, "envs/e/env.toml": "type = 'acme_env'\n", "artifacts/d/artifact.toml": "type = 'acme_data'\n", "artifacts/d/x": "1",
		"artifacts/plain/x": "1",
	}), o)
	if l.HasErrors() {
		t.Fatal(l)
	}
	_ = b.Resolve()
	var got []string
	for _, u := range b.Uses(t.Context()) {
		got = append(got, u.String()+" at "+u.Where)
	}
	want := []string{"artifact type 'acme_data' at artifacts/d", "env type 'acme_env' at envs/e", "step type 'acme_check' at tasks/t.json"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A bundle may list more than anybody means: telling what of it is missing takes time by its length, no more. Each is told once.
func TestRequiresWithoutEnd(t *testing.T) {
	u := Unmet{}
	for i := range 100_000 {
		for range 2 {
			r, err := requirement.Parse("agentenv-p" + strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			u.List = append(u.List, requirement.Unmet{Requirement: r})
		}
	}
	begin := time.Now()
	if got := u.Install(); len(got) != 100_000 || time.Since(begin) > 5*time.Second {
		t.Errorf("%d after %s", len(got), time.Since(begin))
	}
}
