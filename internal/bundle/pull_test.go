package bundle

import (
	"errors"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
)

// shelf holds installed bundles by name; their distribution is "dist". A name that begins with "!" can't be opened.
type shelf map[string]files

func (s shelf) find(id string) (Source, bool, error) {
	rest, ok := strings.CutPrefix(id, "@local/dist/")
	if !ok {
		return Source{}, false, nil
	}
	name, _, _ := strings.Cut(rest, "/")
	if _, broken := s["!"+name]; broken {
		return Source{}, false, errors.New("no access")
	}
	f, ok := s[name]
	if !ok {
		return Source{}, false, nil
	}
	return Source{FS: treeOf(textOf(f)), Name: name, Root: "dist/" + name, IDRoot: ref.InstalledRoot("dist", name)}, true, nil
}

// pulled is what the stages say of a bundle beside a shelf: the problems, or the labels of what would be written with the bundle that each counts to.
func pulled(t *testing.T, src Source, s shelf, v View) (*Plan, string) {
	t.Helper()
	o := options()
	o.Installed = s.find
	o.Aliases = map[ref.Kind]map[string]string{ref.Agent: {"helper": "@local/dist/agents/bot", "lost": "@local/dist/agents/nobody"}}
	b, l := Parse(src, o)
	if l.HasErrors() {
		return nil, l.Err().Error()
	}
	if l = b.Resolve(); l.HasErrors() {
		return nil, l.Err().Error()
	}
	p, l, err := b.Plan(t.Context(), v, Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if l.HasErrors() {
		return nil, l.Err().Error()
	}
	var out []string
	for _, w := range p.Writes {
		text := w.Label
		if w.Bundle != p.IDRoot {
			text += " of " + w.Bundle
		}
		out = append(out, text)
	}
	return p, strings.Join(out, ", ")
}

const card = "@environment_card(name=\"mail\")\nclass Mail: pass\n"

func installed() shelf {
	return shelf{
		"data": {
			"artifacts/f/a.txt":             "1",
			"artifacts/u/x":                 "1",
			"artifacts/u/y":                 "2",
			"artifacts/e/artifact.toml":     "type = 'environment'\nenvironment_name = 'mail'\nfile = 'f'",
			"artifacts/bad/SKILL.md":        "",
			"artifacts/worse/artifact.toml": "type = 'environment'\nenvironment_name = 'mail'\ncolour = 1\nfile = 'nothing'",
			"artifacts/empty/artifact.toml": "type = 'environment'\nenvironment_name = 'mail'",
			"artifacts/far/artifact.toml":   "type = 'environment'\nenvironment_name = 'far'\nfile = '@local/dist/more/f'",
			"tasks/broken.json":             "{}",
		},
		"more":   {"artifacts/f/a.txt": "1", "artifacts/img/Dockerfile": "FROM scratch"},
		"agents": {"agents/bot/agent.toml": "image = '@local/dist/more/img'", "agents/plain/Dockerfile": "FROM scratch", "aliases.toml": "[agents]\nbot = ['helper']"},
		"envs":   {"envs/mail/Dockerfile": "FROM scratch", "envs/mail/server.py": card},
		"clash":  {"Tasks/": "", "artifacts/f/a.txt": "1"},
		"!shut":  {},
	}
}

func TestPull(t *testing.T) {
	agent := func(id string) files {
		return files{"tasks/t.json": `[{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"` + id + `"}]`}
	}
	for _, tc := range []struct {
		name  string
		files files
		want  string
	}{
		{"an artifact", files{"tasks/t.json": load("@local/dist/data/u")}, "dist/data:artifacts/u of @local/dist/data, tasks/t.json"},
		{"with what it needs", files{"tasks/t.json": load("@local/dist/data/e")}, "dist/data:artifacts/f of @local/dist/data, dist/data:artifacts/e of @local/dist/data, tasks/t.json"},
		{"once", files{"tasks/t.json": load("@local/dist/data/f", "@local/dist/data/e"), "tasks/u.json": load("@local/dist/data/f")}, "dist/data:artifacts/f of @local/dist/data, dist/data:artifacts/e of @local/dist/data, tasks/t.json, tasks/u.json"},
		{"from a toml", files{"tasks/t.json": load("w"), "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts = ['@local/dist/data/e']"}, "dist/data:artifacts/f of @local/dist/data, dist/data:artifacts/e of @local/dist/data, artifacts/w, tasks/t.json"},
		{"by way of another", files{"tasks/t.json": load("@local/dist/data/far")}, "dist/more:artifacts/f of @local/dist/more, dist/data:artifacts/far of @local/dist/data, tasks/t.json"},
		{"an agent", agent("@local/dist/agents/bot"), "dist/more:artifacts/img (Dockerfile image) of @local/dist/more, dist/agents:agents/bot of @local/dist/agents, tasks/t.json"},
		{"an agent that is built", agent("@local/dist/agents/plain"), "dist/agents:agents/plain (Dockerfile image) of @local/dist/agents, dist/agents:agents/plain of @local/dist/agents, tasks/t.json"},
		{"an alias", agent("helper"), "dist/more:artifacts/img (Dockerfile image) of @local/dist/more, dist/agents:agents/bot of @local/dist/agents, tasks/t.json"},
		{"an env, named by its card", files{"tasks/t.json": resets("@local/dist/envs/mail")}, "dist/envs:envs/mail (Dockerfile image) of @local/dist/envs, dist/envs:envs/mail of @local/dist/envs, tasks/t.json"},
		{"data for a server that it lacks", files{"tasks/t.json": "[" + `{"id":"l","type":"load_artifact","env_id":"@local/dist/envs/mail","artifact_id":"@local/dist/data/far"}]`}, "tasks/t.json: step 'l': dist/data:artifacts/far holds data for 'far', and env '@local/dist/envs/mail' has no server of that name; it has 'mail' (line 1)"},
		{"a pin", files{"tasks/t.json": "[" + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"@local/dist/data/u","artifact_version":1}]`}, "tasks/t.json: step 'l': artifact_id: '@local/dist/data/u' comes with the installed bundle dist/data, so it has no fixed version; drop the pin (line 1)"},
		{"nothing of that id", files{"tasks/t.json": load("@local/dist/data/U")}, "tasks/t.json: step 'l0': artifact_id: there is no artifact '@local/dist/data/U' in the installed bundle dist/data; did you mean '@local/dist/data/u'? (line 2)"},
		{"another kind", files{"tasks/t.json": load("@local/dist/envs/mail")}, "tasks/t.json: step 'l0': artifact_id: there is no artifact '@local/dist/envs/mail' in the installed bundle dist/envs; dist/envs:envs/mail has that name, but here an artifact is named (line 2)"},
		{"another type", files{"tasks/t.json": load("w"), "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts = ['@local/dist/data/f']"}, "artifacts/w: environment_artifacts[0]: '@local/dist/data/f' is the file of the installed bundle dist/data, but this field takes environment (line 2)"},
		{"an alias of nothing", agent("lost"), "tasks/t.json: step 'v': a2a_agent_id: there is no agent '@local/dist/agents/nobody' in the installed bundle dist/agents (line 1)"},
		{"a task stays the store's", files{"tasks/t.json": load("f"), "artifacts/f/x": "1", "evals/e.toml": "tasks = ['t', '@local/dist/data/broken']"}, "evals/e.toml: tasks[1]: there is no task '@local/dist/data/broken' in this bundle or in the store (line 1)"},
		{"no such bundle", files{"tasks/t.json": load("@local/dist/nobody/x")}, "tasks/t.json: step 'l0': artifact_id: there is no artifact '@local/dist/nobody/x' in this bundle or in the store (line 2)"},
		{"a bundle that can't be read", files{"tasks/t.json": load("@local/dist/shut/x")}, "tasks/t.json: step 'l0': artifact_id: the installed bundle that '@local/dist/shut/x' names can't be read: no access (line 2)"},
		{"found wrong by parsing", files{"tasks/t.json": load("@local/dist/data/bad")}, "dist/data:artifacts/bad: this looks like a skill, and skills live in skills/<name>/; move it"},
		{"what it needs is missing", files{"tasks/t.json": load("@local/dist/data/worse")}, "dist/data:artifacts/worse: artifact.toml: unknown key 'colour'; known here: description, environment_name, file, id, type (line 3)\ndist/data:artifacts/worse: file: there is no artifact 'nothing' in this bundle or in the store (line 4)"},
		{"found wrong by planning", files{"tasks/t.json": load("@local/dist/data/empty")}, "dist/data:artifacts/empty: an environment artifact holds one file, and this folder has none"},
		{"the bundle itself is wrong", files{"tasks/t.json": load("@local/dist/clash/f")}, "dist/clash:Tasks: rename to tasks; names are case-sensitive"},
		{"several at once", files{"tasks/t.json": load("@local/dist/data/bad", "@local/dist/data/nope", "missing")}, "dist/data:artifacts/bad: this looks like a skill, and skills live in skills/<name>/; move it\ntasks/t.json: step 'l1': artifact_id: there is no artifact '@local/dist/data/nope' in the installed bundle dist/data"},
		{"two writers", files{"tasks/t.json": load("@local/dist/data/e", "mine"), "artifacts/mine/artifact.toml": "id = '@local/dist/data/f'", "artifacts/mine/x": "1"}, "dist/data:artifacts/f: the id '@local/dist/data/f' is also written by artifacts/mine; rename one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, got := pulled(t, open(t, tc.files), installed(), fakeView{})
			if p == nil && !strings.HasPrefix(got, tc.want) || p != nil && got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// A bundle that is run by its name may be what another one pulls from.
func TestPullFromEachOther(t *testing.T) {
	s := shelf{
		"a": {"tasks/t.json": load("w"), "artifacts/f/x": "1", "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts = ['@local/dist/b/e']"},
		"b": {"artifacts/e/artifact.toml": "type = 'environment'\nenvironment_name = 'mail'\nfile = '@local/dist/a/f'"},
	}
	src, _, _ := s.find("@local/dist/a/x")
	_, got := pulled(t, src, s, fakeView{})
	if got != "artifacts/f, dist/b:artifacts/e of @local/dist/b, artifacts/w, tasks/t.json" {
		t.Error(got)
	}
}

// An entity of the store that has the name comes before an alias; without a store the alias is meant.
func TestPulledAlias(t *testing.T) {
	src := open(t, files{"tasks/t.json": `[{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"helper"}]`})
	p, got := pulled(t, src, installed(), fakeView{"agent helper": {Version: 2, Type: "a2a_agent"}})
	if got != "tasks/t.json" || p.Run[0].Task.Steps[0].Doc.Get("a2a_agent_id").Text() != "helper" {
		t.Errorf("%s", got)
	}
	p, got = pulled(t, src, installed(), nil)
	if !strings.HasSuffix(got, "dist/agents:agents/bot of @local/dist/agents, tasks/t.json") || p.Run[0].Task.Steps[0].Doc.Get("a2a_agent_id").Text() != "@local/dist/agents/bot" {
		t.Errorf("%s", got)
	}
}

func TestPulls(t *testing.T) {
	o := options()
	o.Installed = installed().find
	for id, want := range map[string]string{
		"@local/dist/data/f": "dist/data", "@local/dist/data/nope": "", "@local/dist/nobody/x": "", "@local/dist/shut/x": "", "f": "", "@local/~/b/f": "", "@local/dist/data/bad": "",
	} {
		got, ok := o.Pulls(ref.Artifact, id)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", id, got, ok)
		}
	}
	if _, ok := options().Pulls(ref.Artifact, "@local/dist/data/f"); ok {
		t.Error("pulled from nothing")
	}
}

// Data whose environment has no name is told of once, not also as data that no server takes.
func TestNamelessDataIsOneProblem(t *testing.T) {
	_, got := pulled(t, open(t, files{
		"tasks/t.json": `[{"id":"l","type":"load_artifact","env_id":"k","artifact_id":"w"}]`, "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='crm'",
		"artifacts/w/artifact.toml": "type='environment'", "artifacts/w/a": "1",
	}), installed(), fakeView{})
	if got != "artifacts/w: artifact.toml: environment_name is missing; write it: a string (line 1)" {
		t.Error(got)
	}
}
