package schema

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/examples"
	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

func validatorOf(t testing.TB, name string) *validator {
	t.Helper()
	for _, d := range documents() {
		if d.name == name {
			return newValidator(t, d.make())
		}
	}
	t.Fatalf("no schema %s", name)
	return nil
}

// structural tells whether a check found what a schema can know: names, kinds of values, choices, ranges, emptiness.
func structural(l diag.List) bool {
	return slices.ContainsFunc(l, func(p diag.Problem) bool { return strings.HasPrefix(p.Code, "doc.") && p.Code != doc.CodeQuote })
}

// least is a value of a type: the smallest that says what it must.
func least(t *doc.Type) any {
	if len(t.OneOf) > 0 {
		return t.OneOf[0]
	}
	if len(t.Kinds) == 0 {
		return "x"
	}
	switch t.Kinds[0] {
	case doc.Bool:
		return true
	case doc.Int:
		if t.Min != nil {
			return int64(*t.Min)
		}
		return int64(1)
	case doc.Float:
		return 1.5
	case doc.Array:
		if t.NonEmpty && t.Elem != nil {
			return []any{least(t.Elem)}
		}
		return []any{}
	case doc.Object:
		if t.Fields != nil {
			return leastOf(t.Fields)
		}
		if t.NonEmpty && t.Elem != nil {
			return map[string]any{"k": least(t.Elem)}
		}
		return map[string]any{}
	default:
		return "x"
	}
}

func leastOf(s *doc.Schema) map[string]any {
	out := map[string]any{}
	for i := range s.Fields {
		if f := &s.Fields[i]; f.Required {
			out[f.Name] = least(&f.Type)
		}
	}
	return out
}

// wrongs are values to try in the place of every field.
func wrongs(t *doc.Type) []any {
	out := []any{nil, true, int64(0), int64(-1), int64(3), int64(70000), 2.5, "", "text", []any{}, []any{nil}, []any{"x"}, []any{int64(1)}, map[string]any{}, map[string]any{"zz": int64(1)}, least(t)}
	if t.Fields != nil {
		more := leastOf(t.Fields)
		more["zz"] = "x"
		out = append(out, more)
	}
	if e := t.Elem; e != nil {
		out = append(out, []any{least(e)})
		for _, w := range []any{int64(5), "", map[string]any{"zz": true}, least(e)} {
			out = append(out, []any{w}, map[string]any{"k": w})
		}
		if e.Fields != nil {
			more := leastOf(e.Fields)
			more["zz"] = "x"
			out = append(out, []any{more})
		}
	}
	return out
}

// compare holds a schema to what reading checks, over documents that differ from a good one in one place. wrap puts a table into a document.
func compare(t *testing.T, v *validator, s *doc.Schema, fixed map[string]any, skip []string, wrap func(map[string]any) any) int {
	t.Helper()
	tried := 0
	try := func(m map[string]any, what string) {
		tried++
		n := doc.Build(m)
		var l diag.List
		s.Check(n, "", &l)
		switch valid := v.valid(doc.Build(wrap(m))); {
		case valid && structural(l):
			t.Errorf("%s: the schema takes what reading refuses: %s: %s", what, doc.JSON(n), l[0])
		case !valid && len(l) == 0:
			t.Errorf("%s: the schema refuses what reading takes: %s", what, doc.JSON(n))
		}
	}
	good := leastOf(s)
	maps.Copy(good, fixed)
	try(good, "the least")
	with := func(name string, value any) map[string]any {
		m := maps.Clone(good)
		m[name] = value
		return m
	}
	try(with("zz_unknown", int64(1)), "an unknown member")
	for i := range s.Fields {
		f := &s.Fields[i]
		if _, given := fixed[f.Name]; given || slices.Contains(skip, f.Name) {
			continue
		}
		m := maps.Clone(good)
		delete(m, f.Name)
		try(m, "without "+f.Name)
		for _, w := range wrongs(&f.Type) {
			if w == nil && len(f.Type.Kinds) == 0 {
				continue // any value but null: a schema without words takes null too
			}
			try(with(f.Name, w), f.Name)
		}
	}
	return tried
}

// TestSchemasSayWhatReadingChecks makes thousands of documents wrong in one place and asks both.
func TestSchemasSayWhatReadingChecks(t *testing.T) {
	tried := 0
	alone := func(m map[string]any) any { return m }
	v := validatorOf(t, "task")
	kinds := step.Kinds()
	for _, name := range kinds.Names() {
		e, _ := kinds.Get(name)
		tried += compare(t, v, e.Value.Schema(), map[string]any{"type": name}, nil, func(m map[string]any) any { return []any{m} })
	}
	v = validatorOf(t, "env.toml")
	for _, typ := range env.Types() {
		s, _ := env.Schema(typ)
		skip := []string{"id"}
		for _, img := range env.Images(typ) {
			skip = append(skip, img.Key)
		}
		for _, r := range env.Refs(typ) {
			skip = append(skip, r.Key)
		}
		tried += compare(t, v, s, map[string]any{"type": typ}, skip, alone)
	}
	v = validatorOf(t, "artifact.toml")
	for _, typ := range artifact.Types() {
		if s, ok := artifact.Schema(typ); ok {
			tried += compare(t, v, s, map[string]any{"type": typ}, []string{"id", "file", "environment_artifacts"}, alone)
		}
	}
	tried += compare(t, validatorOf(t, "agent.toml"), agent.Schema(), nil, []string{"id", agent.ImageKey}, alone)
	tried += compare(t, validatorOf(t, "eval.toml"), task.EvalSchema(), map[string]any{"tasks": []any{"a"}}, []string{"id"}, alone)
	if tried < 5000 {
		t.Errorf("only %d documents", tried)
	}
}

// base is a bundle with something of every kind, to put one file into.
var base = map[string]string{
	"tasks/t.json":                          `[{"id":"r","type":"review"}]`,
	"artifacts/f/a.txt":                     "a",
	"artifacts/e/artifact.toml":             "type = 'environment'\nenvironment_name = 'mail'\nfile = 'f'",
	"artifacts/img/Dockerfile":              "FROM scratch\n",
	"envs/mail/Dockerfile":                  "FROM scratch\n",
	"envs/mail/env.toml":                    "environment_name = 'mail'",
	"envs/shop/Dockerfile.backend":          "FROM scratch\n",
	"envs/shop/Dockerfile.frontend":         "FROM scratch\n",
	"envs/shop/env.toml":                    "type = 'website'\nenvironment_name = 'shop'",
	"agents/bot/Dockerfile":                 "FROM scratch\n",
	"skills/help/SKILL.md":                  "---\nname: help\ndescription: d\n---\n",
	"envs/x/Dockerfile":                     "FROM scratch\n",
	"envs/x/other/Dockerfile":               "FROM scratch\n",
	"envs/x/driver.py":                      "class Driver: pass\n",
	"envs/x/app.toml":                       "",
	"envs/x/requirements.txt":               "",
	"envs/x/env.toml":                       "environment_name = 'x'",
	"agents/x/Dockerfile":                   "FROM scratch\n",
	"artifacts/x/a.txt":                     "x",
	"artifacts/empty/artifact.toml":         "type = 'environment_universe'\nenvironment_artifacts = ['e']",
	"artifacts/from-registry/artifact.toml": "type = 'docker_image'\nref = 'localhost/x:1'",
}

// refused tells whether a bundle is refused with the text in the place of a file.
func refused(t *testing.T, file, text string) (bool, []string) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, content := range base {
		fsys[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	fsys[file] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	if reach := reaches(file, text); reach != "" { // what nothing names isn't read whole
		fsys["tasks/reach.json"] = &fstest.MapFile{Data: []byte(reach), Mode: 0o644}
	}
	b, l := bundle.Parse(bundle.Source{FS: fsys, Name: "b", Root: "/b", IDRoot: "@local/~/b"}, bundle.Options{Kinds: step.Kinds()})
	if !l.HasErrors() {
		l = append(l, b.Resolve()...)
	}
	if !l.HasErrors() {
		_, more, err := b.Plan(t.Context(), nil, bundle.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, more...)
	}
	var texts []string
	for _, p := range l.Of(diag.Error) {
		texts = append(texts, p.String())
	}
	return len(texts) > 0, texts
}

// reaches is a task that names the entry of a file.
func reaches(file, text string) string {
	parts := strings.Split(file, "/")
	switch parts[0] {
	case "envs":
		return `[{"id":"d","type":"deploy_env","env_id":"` + parts[1] + `"}]`
	case "agents":
		return `[{"id":"d","type":"deploy_agent","a2a_agent_id":"` + parts[1] + `"}]`
	case "artifacts":
		if strings.Contains(text, "'cli'") { // it is installed into an agent
			return `[{"id":"l","type":"load_artifact","agent_name":"a","env_id":"mail","artifact_id":"` + parts[1] + `"}]`
		}
		return `[{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm"},{"id":"l","type":"load_artifact","sandbox_name":"b","artifact_id":"` + parts[1] + `"}]`
	default:
		return ""
	}
}

// TestSchemasAndBundles holds the schemas to what a bundle says, where a schema is put together by hand: references, images, ids, the small tomls.
func TestSchemasAndBundles(t *testing.T) {
	const (
		env1, agent1, art, eval1 = "envs/x/env.toml", "agents/x/agent.toml", "artifacts/x/artifact.toml", "evals/e.toml"
	)
	for _, tt := range []struct {
		file, text string
		ok         bool
	}{
		{env1, "environment_name = 'x'\nid = '@local/a/b'", true},
		{env1, "environment_name = 'x'\nid = 'a/b'", false},
		{env1, "environment_name = 'x'\nid = 3", false},
		{env1, "environment_name = 'x'\nimage = 'img'", true},
		{env1, "environment_name = 'x'\nimage = { artifact = '@local/other/i', version = 2 }", true},
		{env1, "environment_name = 'x'\nimage = { artifact = 'img', version = 0 }", false},
		{env1, "environment_name = 'x'\nimage = { dockerfile = 'other/Dockerfile' }", true},
		{env1, "environment_name = 'x'\nimage = { ref = 'localhost/x:1' }", true},
		{env1, "environment_name = 'x'\nimage = { ref = 'localhost/x:1', version = 1 }", false},
		{env1, "environment_name = 'x'\nimage = { dockerfile = 'Dockerfile', ref = 'localhost/x:1' }", false},
		{env1, "environment_name = 'x'\nimage = 3", false},
		{env1, "environment_name = 'x'\nimage = ''", false},
		{env1, "environment_name = 'x'\nimage = {}", false},
		{env1, "type = 'multi'\nname = 'all'\nmcp_server_envs = ['mail']\nwebsite_envs = [{ env = 'shop' }]", true},
		{env1, "type = 'multi'\nname = 'all'\nmcp_server_envs = [{ env = '@local/o/e', version = 3 }]", true},
		{env1, "type = 'multi'\nname = 'all'\nmcp_server_envs = [{ artifact = 'mail' }]", false},
		{env1, "type = 'multi'\nname = 'all'\nmcp_server_envs = 'mail'", false},
		{env1, "type = 'multi'\nname = 'all'\nmcp_server_envs = ['mail', 3]", false},
		{env1, "type = 'computer_driver'\nmodule = 'driver.py:Driver'", true},
		{env1, "type = 'computer_driver'\nmodule = 3", false},
		{env1, "type = 'computer_driver'\ncommand = ['driver']\npython = 'requirements.txt'", true},
		{env1, "type = 'computer_app'\nenvironment_name = 'notes'", true},
		{env1, "type = 'computer_app'\napps = []", false},
		{env1, "type = 'computer'", true},
		{env1, "type = 'computer'\ndriver = 'd'\napps = ['a', {env = 'b', version = 2}]\ndata_paths = ['Documents']\n[display]\nwidth = 800", true},
		{env1, "type = 'computer'\ndriver = ['d']", false},
		{env1, "type = 'computer'\n[display]\nwidth = 0", false},
		{env1, "type = 'computer_driver'\nmodule = 'driver.py:Driver'\nimage = 'img'", false},
		{env1, "type = 'website'\nenvironment_name = 'y'\nbackend_image = 'img'\nfrontend_image = { ref = 'localhost/x:1' }", true},
		{env1, "type = 'website'\nenvironment_name = 'y'\nbackend_image = 'img'\nfrontend_image = { file = 'x' }", false},
		{env1, "type = 'server'", false},
		{env1, "environment_name = 'x'\nname = 'x'", false},
		{agent1, "image = 'img'\n[default_env_vars]\nA = 'b'\n[metadata]\ndefault_model = 'm'\nmin_disk_size_gb = 2.5\ntakes_credentials = false", true},
		{agent1, "[default_env_vars]\nA = 1", false},
		{agent1, "[metadata]\nmin_disk_size_gb = true", false},
		{agent1, "[metadata]\nother = 1", false},
		{agent1, "type = 'agent'", false},
		{art, "", true},
		{art, "description = 'd'", true},
		{art, "type = 'file'\ndescription = 'd'", true},
		{art, "type = 'file'\ndescription = 3", false},
		{art, "type = 'file'\nref = 'localhost/x:1'", false},
		{art, "type = 'file_artifact_universe'", true},
		{art, "type = 'file_artifact_universe'\ndescription = 'd'", false},
		{art, "type = 'environment'\nenvironment_name = 'mail'", true},
		{art, "type = 'environment'", false},
		{art, "type = 'cli'\ncommand_name = 'x'\nentrypoint = 'a.txt'", true},
		{art, "type = 'cli'\ncommand_name = 'x'", false},
		{art, "type = 'zip'", false},
		{art, "type = ''", false},
		{art, "colour = 'red'", false},
		{"artifacts/e/artifact.toml", "type = 'environment'\nenvironment_name = 'mail'\nfile = { artifact = '@local/o/f', version = 1 }", true},
		{"artifacts/e/artifact.toml", "type = 'environment'\nenvironment_name = 'mail'\nfile = { artifact = '@local/o/f', version = 0 }", false},
		{"artifacts/e/artifact.toml", "type = 'environment'\nenvironment_name = 'mail'\nfile = 3", false},
		{"artifacts/empty/artifact.toml", "type = 'environment_universe'\nenvironment_artifacts = ['e', { artifact = '@local/o/e' }]", true},
		{"artifacts/empty/artifact.toml", "type = 'environment_universe'\nenvironment_artifacts = 'e'", false},
		{"artifacts/empty/artifact.toml", "type = 'environment_universe'\nenvironment_artifacts = [{ env = 'e' }]", false},
		{eval1, "tasks = ['t']", true},
		{eval1, "type = 'eval'\nid = '@local/o/e'\ntasks = [{ task = 't' }]", true},
		{eval1, "tasks = []", false},
		{eval1, "", false},
		{eval1, "tasks = 't'", false},
		{eval1, "tasks = [{ task = 't', version = 0 }]", false},
		{eval1, "tasks = [{ task_id = 't' }]", false},
		{eval1, "tasks = ['t']\nname = 'e'", false},
		{"aliases.toml", "[agents]\nbot = ['robot', 'r2']\n[envs]\nmail = ['post']", true},
		{"aliases.toml", "[envs]\nmail = []", false},
		{"aliases.toml", "[agents]\nbot = 'robot'", false},
		{"aliases.toml", "[agents]\nbot = ['Robot']", false},
		{"aliases.toml", "[agents]\nbot = ['robot', 'robot']", false},
		{"aliases.toml", "[agents]\nbot = ['a-']", false},
		{"aliases.toml", "[tasks]\nt = ['u']", false},
		{"aliases.toml", "agents = ['robot']", false},
		{"bundle.toml", "requires = ['agentenv-framework>=0.9']", true},
		{"bundle.toml", "", true},
		{"bundle.toml", "requires = 'agentenv-framework'", false},
		{"bundle.toml", "requires = [3]", false},
		{"bundle.toml", "requires = [' ']", false},
		{"bundle.toml", "name = 'b'", false},
		{"tasks/t.json", `[{"id":"r","type":"review","label":"look"}]`, true},
		{"tasks/t.json", `[]`, false},
		{"tasks/t.json", `{}`, false},
		{"tasks/t.json", `[{"id":"r"}]`, false},
		{"tasks/t.json", `[{"id":"r","type":"revew"}]`, false},
		{"tasks/t.json", `[{"id":"r","type":"review","labl":"look"}]`, false},
		{"tasks/t.json", `["review"]`, false},
	} {
		tree, l := doc.Parse(tt.file, []byte(tt.text))
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		no, why := refused(t, tt.file, tt.text)
		if no == tt.ok {
			t.Errorf("%s %q: refused: %v: %q", tt.file, tt.text, no, why)
		}
		if got := validatorOf(t, nameOf(tt.file)).valid(tree.Root()); got != tt.ok {
			t.Errorf("%s %q: valid by its schema: %v", tt.file, tt.text, got)
		}
	}
}

// nameOf is the schema of a file of a bundle; "" for a file without one.
func nameOf(file string) string {
	dir, base := path.Split(file)
	switch {
	case strings.HasPrefix(dir, "tasks/") && path.Ext(base) == ".json":
		return "task"
	case strings.HasPrefix(dir, "evals/") && path.Ext(base) == ".toml":
		return "eval.toml"
	case slices.ContainsFunc(documents(), func(d document) bool { return d.name == base }):
		return base
	default:
		return ""
	}
}

// TestExamples: what comes with the program is what the schemas describe.
func TestExamples(t *testing.T) {
	seen := map[string]int{}
	err := fs.WalkDir(examples.FS(), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, inside, _ := strings.Cut(file, "/")
		name := nameOf(inside)
		if name == "" {
			return nil
		}
		src, err := fs.ReadFile(examples.FS(), file)
		if err != nil {
			return err
		}
		seen[name]++
		tree, l := doc.Parse(file, src)
		if err := l.Err(); err != nil {
			return err
		}
		if !validatorOf(t, name).valid(tree.Root()) {
			t.Errorf("%s isn't what the schema describes", file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen["task"] < 2 || seen["eval.toml"] < 1 || seen["artifact.toml"] < 1 {
		t.Errorf("looked at %v", seen)
	}
}

// TestPage: the files that docs/bundles.md shows are what the schemas describe. internal/cli checks that the page is right otherwise.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "bundles.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	blocks := regexp.MustCompile("(?ms)^`desk/([^`\n]+)`\n\n```[a-z]+\n(.*?)^```$")
	for _, m := range blocks.FindAllStringSubmatch(string(page), -1) {
		name := nameOf(m[1])
		if name == "" {
			continue
		}
		seen[name]++
		tree, l := doc.Parse(m[1], []byte(m[2]))
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if !validatorOf(t, name).valid(tree.Root()) {
			t.Errorf("%s isn't what the schema describes", m[1])
		}
	}
	for _, d := range documents() {
		if seen[d.name] == 0 && d.name != "config.toml" {
			t.Errorf("the page shows no %s", d.name)
		}
	}
}

func TestConfig(t *testing.T) {
	v := validatorOf(t, "config.toml")
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"", true},
		{"[model]\nbase_url = 'env:URL'\napi_key = 'secret:K'\n[model.roles]\nagent = 'm'\n[model.params]\ntemperature = 0.5", true},
		{"[stores]\ndocument = 'local'", true},
		{"[stores]\ndocument = 'mongo'", false},
		{"[stores.document]\nimpl = 'a.b:C'\n[stores.document.config]\nanything = 1", true},
		{"[stores.document.config]\npath = '/x'", true},
		{"[stores.document.config]\nroot = '/x'", false},
		{"[stores.document]\nimpl = 'local'\nconfig = { root = '/x' }", false},
		{"[stores.object.config]\ngrants = 'sometimes'", false},
		{"[runner.config]\nworkers = 4", true},
		{"[runner.config]\nworkers = 0", false},
		{"[runner.config]\nworkers = 'many'", false},
		{"[sandbox]\ndefault = 'local'\n[sandbox.local]\ntools = ['/opt/go']\nisolation = 'none'", true},
		{"[sandbox.local]\nisolation = 'some'", false},
		{"[sandbox.local]\ntool = ['/opt/go']", false},
		{"[sandbox.providers.mine]\nimpl = 'a:B'", true},
		{"[sandbox.providers]\nmine = 'a:B'", true},
		{"[plugins.mail-pack]\nany = { thing = [1, 2] }", true},
		{"[[projects]]\nname = 'a'\npath = '.'", true},
		{"[[projects]]\nname = 'a'", false},
		{"[explorer]\nport = 70000", false},
		{"[modle]\ndefault = 'm'", false},
		{"allow_unknown_fields = 'yes'", false},
	} {
		tree, l := doc.ParseTOML("config.toml", []byte(tt.text))
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if got := v.valid(tree.Root()); got != tt.ok {
			t.Errorf("%q: %v", tt.text, got)
		}
	}
}

// TestNoPaths: a schema is the same on every machine.
func TestNoPaths(t *testing.T) {
	for _, d := range documents() {
		a, b := string(doc.JSON(d.make())), string(doc.JSON(d.make()))
		if a != b || strings.Contains(a, "/root") || strings.Contains(a, "/home") || strings.Contains(a, "/tmp/") && d.name == "config.toml" {
			t.Errorf("%s depends on the machine", d.name)
		}
		if !strings.Contains(a, fmt.Sprintf("%q:", "title")) {
			t.Errorf("%s has no title", d.name)
		}
	}
}
