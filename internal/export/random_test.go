package export

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
)

// random makes bundles whose entries need each other in every way that they can.
type random struct {
	*rand.Rand
	files files
	names map[string][]string // by folder, and for artifacts by type
}

func (r *random) name(folder string) string {
	words := []string{"a", "B", "crm", "é", "日本", "with space", "x.y", "v1.0", "(p)", "t~1", "a,b", "n-2", "file", "UPPER", "ok"}
	for {
		name := words[r.IntN(len(words))]
		if r.IntN(3) == 0 {
			name += fmt.Sprint(r.IntN(100))
		}
		key := folder
		if folder == "skills" {
			key, name = "artifacts", fmt.Sprintf("s%d", r.IntN(1000))
		}
		if !slices.ContainsFunc(r.names[key], func(n string) bool { return ref.Fold(n) == ref.Fold(name) }) {
			r.names[key] = append(r.names[key], name)
			return name
		}
	}
}

// one is the name of an entity, or "" when there is none.
func (r *random) one(of string) string {
	if len(r.names[of]) == 0 {
		return ""
	}
	return r.names[of][r.IntN(len(r.names[of]))]
}

func (r *random) add(of, name string) { r.names[of] = append(r.names[of], name) }

func (r *random) text() string {
	if r.IntN(3) == 0 {
		return "#!/bin/sh\n"
	}
	return strings.Repeat("x", r.IntN(50))
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

func (r *random) artifact() {
	name := r.name("artifacts")
	at := "artifacts/" + name + "/"
	switch r.IntN(6) {
	case 0:
		r.files[at+"some file.txt"] = r.text()
		if r.IntN(2) == 0 {
			r.files[at+"artifact.toml"] = "type = 'file'\ndescription = " + quote(r.text())
		}
		r.add("file", name)
	case 1:
		for i := range 2 + r.IntN(3) {
			r.files[fmt.Sprintf("%sd%d/é %d", at, r.IntN(2), i)] = r.text()
		}
		r.add("any", name)
	case 2:
		toml := "type = 'environment'\nenvironment_name = " + quote([]string{"mail", "a/b:c", "日本", "x y"}[r.IntN(4)]+fmt.Sprint(r.IntN(1000)))
		if f := r.one("file"); f != "" && r.IntN(2) == 0 {
			toml += "\nfile = " + quote(f)
		} else {
			r.files[at+"data.json"] = r.text()
			if r.IntN(2) == 0 {
				toml += "\ndescription = 'about'"
			}
		}
		r.files[at+"artifact.toml"] = toml
		r.add("environment", name)
	case 3:
		r.files[at+"artifact.toml"] = "type = 'environment_universe'"
		r.files[at+"crm/c"] = r.text()
		if e := r.one("environment"); e != "" {
			r.files[at+"artifact.toml"] += "\nenvironment_artifacts = [" + quote(e) + "]"
		}
		if r.IntN(2) == 0 {
			r.files[at+"metadata/k"+fmt.Sprint(r.IntN(9))+"/m"] = r.text()
			r.files[at+"é x/c"] = r.text()
		}
		r.add("any", name)
	case 4:
		r.files[at+"artifact.toml"] = "type = 'cli'\ncommand_name = 'tool'\nentrypoint = 'bin/run'"
		r.files[at+"bin/run"] = r.text()
		r.add("cli", name)
	default:
		r.files[at+"Dockerfile"] = "FROM scratch\n"
		r.files[at+"app"] = r.text()
		if r.IntN(2) == 0 {
			r.files[at+"artifact.toml"] = "description = 'img'"
		}
		r.add("image", name)
	}
}

func (r *random) env() {
	name := r.name("envs")
	at := "envs/" + name + "/"
	title := fmt.Sprintf("environment_name = 'e%d'\n", r.IntN(1e6))
	image := r.one("image")
	switch r.IntN(3) {
	case 0:
		if image != "" && r.IntN(2) == 0 {
			title += "image = " + quote(image)
		} else {
			r.files[at+"Dockerfile"], r.files[at+"server.py"] = "FROM scratch\n", r.text()
		}
		r.files[at+"env.toml"] = title
		r.add("server", name)
	case 1:
		r.files[at+"Dockerfile.backend"], r.files[at+"sub/front"] = "FROM scratch\n", "FROM scratch\n"
		r.files[at+"env.toml"] = "type = 'website'\n" + title + "frontend_image = { dockerfile = 'sub/front' }"
		r.add("website", name)
	default:
		s := r.one("server")
		if s == "" {
			r.files[at+"Dockerfile"], r.files[at+"env.toml"] = "FROM scratch\n", title
			r.add("server", name)
			return
		}
		r.files[at+"env.toml"] = "type = 'multi'\nname = 'm'\nmcp_server_envs = [" + quote(s) + "]"
		if w := r.one("website"); w != "" {
			r.files[at+"env.toml"] += "\nwebsite_envs = [" + quote(w) + "]"
		}
	}
}

func (r *random) step(i int) string {
	id := fmt.Sprintf(`"id":"s%d",`, i)
	switch r.IntN(6) {
	case 0:
		if e := r.one("envs"); e != "" {
			return id + `"type":"reset_env","env_id":` + quote(e)
		}
	case 1:
		if a := r.one("agents"); a != "" {
			return id + `"type":"verify_a2a_agent_card","a2a_agent_id":` + quote(a)
		}
	case 2:
		if c, s := r.one("cli"), r.one("skill"); c != "" && s != "" {
			return id + `"type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":` + quote(s) + `}],"cli_artifact_ids":[` + quote(c) + `]`
		}
	case 3:
		if e := r.one("envs"); e != "" {
			return id + fmt.Sprintf(`"type":"snapshot_env","snapshot_id":"out%d","env_id":`, i) + quote(e)
		}
	}
	if a := r.one("loadable"); a != "" {
		return id + `"type":"load_artifact","sandbox_name":"box","artifacts":[{"id":` + quote(a) + `}]`
	}
	return id + `"type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","env_vars":{"A":"b"}`
}

func (r *random) bundle() files {
	for range 3 + r.IntN(8) {
		r.artifact()
	}
	r.names["loadable"] = slices.Concat(r.names["file"], r.names["any"], r.names["environment"])
	for range r.IntN(3) {
		s := r.name("skills")
		r.files["skills/"+s+"/SKILL.md"] = "---\nname: " + s + "\ndescription: Hi\n---\n"
		r.files["skills/"+s+"/x/y"] = r.text()
		r.add("skill", s)
	}
	for range r.IntN(5) {
		r.env()
	}
	for range r.IntN(3) {
		a := r.name("agents")
		r.files["agents/"+a+"/Dockerfile"] = "FROM scratch\n"
		if r.IntN(2) == 0 {
			r.files["agents/"+a+"/agent.toml"] = "[default_env_vars]\nA = 'é'\n"
		}
	}
	var tasks []string
	for range 1 + r.IntN(3) {
		name := r.name("tasks")
		var steps []string
		for i := range 1 + r.IntN(6) {
			steps = append(steps, "{"+r.step(i)+"}")
		}
		r.files["tasks/"+name+".json"] = "[" + strings.Join(steps, ",\n") + "]"
		tasks = append(tasks, quote(name))
	}
	r.files["evals/all.toml"] = "tasks = [" + strings.Join(tasks, ", ") + "]"
	return r.files
}

// Whatever a bundle holds that its eval reaches comes back as it was: documents, names and all.
func TestRoundTripRandomly(t *testing.T) {
	n := 16
	if testing.Short() {
		n = 4
	}
	for seed := range uint64(n) {
		rnd := &random{rand.New(rand.NewPCG(seed, 7)), files{}, map[string][]string{}}
		f := rnd.bundle()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // mostly it waits for the disk
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%q", f)
				}
			})
			r := newRig(t)
			r.bundle("b", f)
			rep, err := r.init("out", From{Kind: ref.Eval, ID: "@local/~/b/all"})
			if err != nil {
				t.Fatal(err)
			}
			if len(rep.Store)+len(rep.Floating)+len(rep.LeftOut)+len(rep.Needs) > 0 {
				t.Errorf("%v", rep.Sections())
			}
			r.register("out")
			was, now := r.docs("@local/~/b"), r.docs("@local/~/out")
			for name := range was {
				if _, there := now[name]; !there { // nothing needs it
					delete(was, name)
				}
			}
			for _, w := range append(slices.Clone(rep.Written), rep.Tasks...) {
				if _, there := was[string(w.Kind)+" "+ref.Last(w.ID)]; !there {
					t.Errorf("%s isn't there under its name", w)
				}
			}
			sameDocs(t, was, now)
		})
	}
}
