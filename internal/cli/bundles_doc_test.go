package cli_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store/mem"
)

// shown is a file that a text shows: a block of code below a line that is nothing but its path.
type shown struct{ path, text string }

var pathLine = regexp.MustCompile("^`([^`]+)`$")

// filesOf takes the files out of a text. A block without a path, but for sessions, is a fault of the text: nothing would check it.
func filesOf(t *testing.T, text string) []shown {
	t.Helper()
	var out []shown
	var path string
	var block []string
	inside, console := false, false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !inside && strings.HasPrefix(line, "```"):
			inside, console, block = true, strings.HasPrefix(line, "```console"), nil
			if path == "" && !console {
				t.Errorf("line %d: a block of code that no path stands above", i+1)
			}
		case inside && line == "```":
			if !console {
				out = append(out, shown{path, strings.Join(block, "\n") + "\n"})
			}
			inside, path = false, ""
		case inside:
			block = append(block, line)
		case line != "":
			path = ""
			if m := pathLine.FindStringSubmatch(line); m != nil {
				path = m[1]
			}
		}
	}
	return out
}

// layOut writes files below a folder.
func layOut(t *testing.T, dir string, files []shown) {
	t.Helper()
	for _, f := range files {
		at := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(f.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBundlesPage: the bundle of docs/bundles.md is one, has an example of everything, and the commands shown there print what is shown.
func TestBundlesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "bundles.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := filesOf(t, string(page))
	home := newHome(t)
	layOut(t, home, files)
	everything(t, filepath.Join(home, "desk"), home)
	editors(t, home, files)

	// What is shown after the commands of the main session isn't there yet when they run.
	late := []string{"desk/envs/notes/env.toml"}
	for _, path := range late {
		if err := os.RemoveAll(filepath.Dir(filepath.Join(home, path))); err != nil {
			t.Fatal(err)
		}
	}
	cmds := sessions(string(page))
	if len(cmds) < 12 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, home, "docs/bundles.md", cmds)
	for _, path := range late {
		i := slices.IndexFunc(files, func(f shown) bool { return f.path == path })
		layOut(t, home, files[i:i+1])
	}
	checkSchemas(t, home, files)
}

// play runs the commands of a page in a home folder and compares what they print.
func play(t *testing.T, home, page string, cmds []command) {
	t.Helper()
	for _, c := range cmds {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", c.input)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		refused := len(c.want) > 0 && strings.HasPrefix(c.want[0], "Error: ")
		if (err != nil) != refused || refused && cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("%s:%d: %s: %v\n%s%s", page, c.line, c.input, err, out, stderr.String())
		}
		want := strings.Join(c.want, "\n")
		if got := strings.TrimSuffix(string(out), "\n"); steady(got) != steady(want) {
			t.Errorf("%s:%d: %s prints\n%s\nthe page says\n%s", page, c.line, c.input, got, want)
		}
	}
}

// everything plans and stores the whole bundle, what no command of the page reaches included, and counts what is in it.
func everything(t *testing.T, dir, home string) {
	t.Helper()
	src, err := bundle.OpenFolder(dir, home)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	b, l := bundle.Parse(src, bundle.Options{Kinds: step.Kinds()})
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve().Err(); err != nil {
		t.Fatal(err)
	}
	sel := bundle.Selection{}
	types := map[string]bool{}
	for _, e := range b.Entries {
		switch e.Group {
		case bundle.Tasks:
			sel.Tasks = append(sel.Tasks, e.Name)
		case bundle.Evals:
			sel.Evals = append(sel.Evals, e.Name)
		default:
		}
		types[e.Type] = true
	}
	wanted := slices.Concat(artifact.Types(), env.Types(), agent.Types(), []string{"task", "eval"})
	for _, typ := range wanted {
		if !types[typ] && typ != env.ComputerDriver { // which has a page of its own
			t.Errorf("docs/bundles.md has no example of type %s; it has %v", typ, slices.Sorted(maps.Keys(types)))
		}
	}
	if b.Description == "" || len(b.Requires) == 0 || len(b.Aliases()) != 2 {
		t.Errorf("the page's bundle lacks a README, a bundle.toml or an aliases.toml: %+v", b)
	}
	st := mem.New(mem.Options{})
	p, l, err := b.Plan(t.Context(), ledger.View(st), sel)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	written, err := ledger.Write(t.Context(), st, p, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Entries {
		if !slices.ContainsFunc(p.Writes, func(w *bundle.Write) bool { return w.ID == e.ID && w.Kind == e.Store() }) && e.Name != "notes" {
			t.Errorf("no task of the page reaches %s", e.Label)
		}
	}
	if written.Written() != len(p.Writes) {
		t.Error(written.Lines)
	}
}

// editors checks the settings shown for editors: they are JSON, and the schemas that they name are those that the page writes.
func editors(t *testing.T, home string, files []shown) {
	t.Helper()
	var settings struct {
		JSON []struct {
			FileMatch []string `json:"fileMatch"`
			URL       string
		} `json:"json.schemas"`
		TOML map[string]string `json:"evenBetterToml.schema.associations"`
	}
	src, err := os.ReadFile(filepath.Join(home, ".vscode/settings.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(src, &settings); err != nil || len(settings.JSON) != 1 {
		t.Fatal(settings, err)
	}
	for _, pattern := range settings.JSON[0].FileMatch {
		if ok, _ := filepath.Match(strings.TrimPrefix(pattern, "**/"), "tasks/greet.json"); !ok {
			t.Errorf("%s matches no task", pattern)
		}
	}
	for pattern, schema := range settings.TOML {
		re := regexp.MustCompile(pattern)
		if !slices.ContainsFunc(files, func(f shown) bool {
			return re.MatchString("/"+f.path) && strings.HasSuffix(schema, "/"+schemaOf(f.path)+".json")
		}) {
			t.Errorf("%s: %s fits no file of the page", pattern, schema)
		}
	}
}

// schemaOf is the name of a file's schema.
func schemaOf(path string) string {
	dir, base := filepath.Split(path)
	switch {
	case strings.HasSuffix(dir, "/tasks/"):
		return "task"
	case strings.HasSuffix(dir, "/evals/"):
		return "eval.toml"
	default:
		return base
	}
}

// checkSchemas finds the schemas that the page's commands have written where its files and settings say they are.
func checkSchemas(t *testing.T, home string, files []shown) {
	t.Helper()
	directives := 0
	for _, f := range files {
		if path, ok := strings.CutPrefix(f.text, "#:schema "); ok {
			directives++
			path, _, _ = strings.Cut(path, "\n")
			var schema map[string]any
			src, err := os.ReadFile(filepath.Join(home, filepath.Dir(f.path), path))
			if err != nil || json.Unmarshal(src, &schema) != nil || schema["$schema"] == nil {
				t.Errorf("%s names the schema %s: %v", f.path, path, err)
			}
		}
	}
	if directives == 0 {
		t.Error("the page shows no #:schema line")
	}
	for _, name := range []string{"task.json", "env.toml.json", "artifact.toml.json", "eval.toml.json"} {
		if info, err := os.Stat(filepath.Join(home, "schemas", name)); err != nil || info.Size() < 500 {
			t.Errorf("the page's commands write no schemas/%s: %v", name, err)
		}
	}
}
