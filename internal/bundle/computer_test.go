package bundle

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
)

const (
	deployDesk = `[{"id": "d", "type": "deploy_env", "env_id": "desk"}]`
	notesToml  = "[linux]\npaths = [\"Notes\"]\n"
)

// Rows A2 to A6, A8: what is refused of computers, apps and drivers before anything is written.
func TestComputersAreCheckedAtPut(t *testing.T) {
	for name, tt := range map[string]struct {
		files files
		want  string // the problems; "" for none
	}{
		"A8 a computer of its driver alone": {files{"envs/desk/env.toml": "type = 'computer'"}, ""},
		"A3 names of folders": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes', 'clock']", "envs/notes/env.toml": "type = 'computer_app'", "envs/notes/app.toml": notesToml,
			"envs/clock/env.toml": "type = 'computer_app'", "envs/clock/app.toml": "",
		}, ""},
		"A4 the computer's env.toml": {
			files{"envs/desk/env.toml": "type = 'computer'\napp = []\n[settings]\ntap_hold_ms = 5000"},
			"envs/desk: env.toml: settings.tap_hold_ms: must be from 0 to 1000, not 5000 (line 4)\nenvs/desk: env.toml: unknown key 'app'; did you mean 'apps'?",
		},
		"A5 paths in one place": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes', 'more']", "envs/notes/env.toml": "type = 'computer_app'", "envs/notes/app.toml": notesToml,
			"envs/more/env.toml": "type = 'computer_app'", "envs/more/app.toml": "[linux]\npaths = ['Notes/more', 'NotesToo']",
		}, "envs/desk: apps[1]: the app 'more' keeps its data in 'Notes/more', and 'notes' (apps[0]) in 'Notes'; no two apps keep data in one place (line 2)"},
		"A5 an app named like the computer": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nenvironment_name = 'desk'", "envs/notes/app.toml": notesToml,
		}, "envs/desk: apps[0]: the app 'desk' is named like the computer; give one another environment_name (line 2)"},
		"A5 two apps of one name": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes', 'more']", "envs/notes/env.toml": "type = 'computer_app'\nenvironment_name = 'a'", "envs/notes/app.toml": notesToml,
			"envs/more/env.toml": "type = 'computer_app'\nenvironment_name = 'a'", "envs/more/app.toml": "",
		}, "envs/desk: apps[1]: the app 'a' is named like that of apps[0]; each app needs a name of its own (line 2)"},
		"A6 an app's name": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nenvironment_name = 'My Notes'", "envs/notes/app.toml": "",
		}, "envs/notes/app.toml: 'My Notes' can't be the name of an app: lower-case letters, digits, - and _, at most 63, a letter or digit first"},
		"A2 an app's own paths": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'", "envs/notes/app.toml": "[linux]\npaths = ['a', 'a/b']",
		}, "envs/notes/app.toml: linux.paths: 'a/b' lies inside 'a', which is there too (line 2)"},
		"apps are apps": {
			files{"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer'"},
			"envs/desk: apps[0]: 'notes' is this bundle's computer, but this field takes computer_app (line 2)",
		},
		"a driver's file": {
			files{"envs/desk/env.toml": "type = 'computer'\ndriver = 'drv'", "envs/drv/env.toml": "type = 'computer_driver'\ncommand = ['./drive']", "envs/drv/x": ""},
			"envs/drv: env.toml: command: there is no file 'drive' in this folder; write it, or name another (line 2)",
		},
		"a skill": {files{"envs/desk/env.toml": "type = 'computer'\nskill = 'skill'", "envs/desk/skill/x": ""}, "envs/desk: env.toml: skill: 'skill/SKILL.md' can't be read"},
		"A8 an app's skill": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nskill = 'skill'", "envs/notes/app.toml": "",
			"envs/notes/skill/SKILL.md": "---\nname: notes\ndescription: d\n---\n",
		}, ""},
		"A8 an app's skill that isn't there": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nskill = 'skill'", "envs/notes/app.toml": "",
		}, "envs/notes: env.toml: skill: 'skill/SKILL.md' can't be read"},
		"A8 an app's skill in two places": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nskill = 'skill'", "envs/notes/app.toml": "skill = 'more'",
			"envs/notes/skill/SKILL.md": "---\nname: notes\ndescription: d\n---\n", "envs/notes/more/SKILL.md": "---\nname: notes\ndescription: d\n---\n",
		}, "envs/notes: env.toml: skill: app.toml names another, 'more'"},
		"A8 an app's skill outside": {files{
			"envs/desk/env.toml": "type = 'computer'\napps = ['notes']", "envs/notes/env.toml": "type = 'computer_app'\nskill = '../skill'", "envs/notes/app.toml": "",
		}, "envs/notes: env.toml: skill: must be a folder of this folder"},
		"a name that no snapshot can hold": {files{"envs/desk/env.toml": "type = 'computer'\nenvironment_name = 'metadata'"}, "envs/desk: env.toml: environment_name: 'metadata' can't be a computer's name"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["tasks/t.json"] = deployDesk
			_, got := planOf(t, tt.files, nil)
			if tt.want == "" && len(got) > 0 || !prefixes(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

// planOf plans a bundle and answers its errors, sorted.
func planOf(t *testing.T, f files, v View) (*Plan, []string) {
	t.Helper()
	p, l := stages(t, open(t, f), v, Selection{})
	if !l.HasErrors() {
		return p, nil
	}
	return nil, strings.Split(l.Of(diag.Error).Err().Error(), "\n")
}

func jsonOf(v any) string { return string(doc.JSON(doc.Build(v))) }

// prefixes tells whether lines begin as those of want do.
func prefixes(lines []string, want string) bool {
	if want == "" {
		return len(lines) == 0
	}
	wants := strings.Split(want, "\n")
	if len(lines) != len(wants) {
		return false
	}
	for i, w := range wants {
		if !strings.HasPrefix(lines[i], w) {
			return false
		}
	}
	return true
}

// Row A1: what is kept of an app has paths only where it declares some.
func TestA1TheDeclarationOfAnApp(t *testing.T) {
	p, problems := planOf(t, files{
		"tasks/t.json": deployDesk, "envs/desk/env.toml": "type = 'computer'\napps = ['notes', 'clock']\ndata_paths = ['Documents']",
		"envs/notes/env.toml": "type = 'computer_app'", "envs/notes/app.toml": notesToml, "envs/clock/env.toml": "type = 'computer_app'", "envs/clock/app.toml": "[linux]\nlaunch = ['sh']\n",
	}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got := map[string]string{}
	var order []string
	for _, w := range p.Writes {
		order = append(order, ref.Last(w.ID))
		if d, ok := w.Fields["declaration"]; ok {
			got[ref.Last(w.ID)] = jsonOf(d)
		}
	}
	if got["notes"] != `{"linux":{"paths":["Notes"]}}` || got["clock"] != `{"linux":{"launch":["sh"]}}` {
		t.Error(got)
	}
	if s := strings.Join(order, " "); s != "clock__files clock notes__files notes desk t" && s != "notes__files notes clock__files clock desk t" {
		t.Error(s)
	}
	desk := p.Writes[4]
	if desk.Type != env.Computer || len(desk.Pins) != 2 || desk.Pins[0].Field != "apps" || desk.Fields["environment_name"] != "desk" || jsonOf(desk.Fields["data_paths"]) != `["Documents"]` {
		t.Errorf("%+v", desk)
	}
	if files := p.Writes[0]; files.Type != artifact.FileUniverse || len(files.Files) != 1 || !files.Files[0].HashMode {
		t.Errorf("%+v", files)
	}
}

// Row A46: the data of a bundle that a step loads into a computer are named after it or an app of it, of this bundle and of the store.
func TestA46SeedsAreNamed(t *testing.T) {
	seeds := func(names ...string) files {
		f := files{
			"artifacts/w/artifact.toml": "type = 'environment_universe'",
			"tasks/t.json":              `[{"id": "d", "type": "deploy_env", "env_id": "desk"}, {"id": "l", "type": "load_artifact", "env_id": "desk", "artifact_id": "w"}]`,
		}
		for _, n := range names {
			f["artifacts/w/"+n+"/x.json"] = "{}"
		}
		return f
	}
	here := func(f files) files {
		f["envs/desk/env.toml"] = "type = 'computer'\napps = ['notes', '@local/o/clock']"
		f["envs/notes/env.toml"], f["envs/notes/app.toml"] = "type = 'computer_app'", notesToml
		return f
	}
	there := func(f files) files {
		for name, text := range f {
			f[name] = strings.ReplaceAll(text, `"desk"`, `"@local/o/desk"`)
		}
		return f
	}
	store := fakeView{
		"env @local/o/clock": {Type: env.ComputerApp, Version: 3, Body: []byte(`{"environment_name":"clock","declaration":{"linux":{"paths":["Alarms"]}}}`)},
		"env @local/o/pad":   {Type: env.ComputerApp, Version: 2, Body: []byte(`{"environment_name":"pad","declaration":{}}`)},
		"env @local/o/desk": {Type: env.Computer, Version: 1, Body: []byte(`{"environment_name":"station","apps":[{"id":"@local/o/clock","version":3,"type":"computer_app"},
			{"id":"@local/o/pad","version":2,"type":"computer_app"}]}`)},
	}
	for name, tt := range map[string]struct {
		files files
		want  string
	}{
		"here":            {here(seeds("desk", "notes", "clock")), ""},
		"here, misnamed":  {here(seeds("desk", "note")), "tasks/t.json: step 'l': artifacts/w/note holds data for 'note', and env '@local/~/b/desk' has no app of that name; it has 'clock', 'desk', 'notes'"},
		"there":           {there(seeds("station", "clock", "pad")), ""},
		"there, misnamed": {there(seeds("desk", "clock")), "tasks/t.json: step 'l': artifacts/w/desk holds data for 'desk', and env '@local/o/desk' has no app of that name; it has 'clock', 'pad', 'station'"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := planOf(t, tt.files, store); !prefixes(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
	// Gate 1 knows the paths of apps that are in the store.
	f := here(seeds("desk"))
	f["envs/notes/app.toml"] = "[linux]\npaths = ['Alarms/x']\n"
	if _, got := planOf(t, f, store); !prefixes(got, "envs/desk: apps[1]: the app 'clock' keeps its data in 'Alarms', and 'notes' (apps[0]) in 'Alarms/x'") {
		t.Error(got)
	}
}
