package export

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}`

// load is a task that loads artifacts, each "id" or "id@version".
func load(ids ...string) string {
	var out strings.Builder
	out.WriteString("[" + box)
	for i, id := range ids {
		id, version, pinned := strings.Cut(id, "@v")
		fmt.Fprintf(&out, `,{"id":"l%d","type":"load_artifact","sandbox_name":"box","artifact_id":%q`, i, id)
		if pinned {
			out.WriteString(`,"artifact_version":` + version)
		}
		out.WriteString("}")
	}
	return out.String() + "]"
}

func lineOf[T fmt.Stringer](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return strings.Join(out, "\n")
}

// file stores a file artifact and answers its document's id.
func (r *rig) file(id, name, text string) {
	r.t.Helper()
	r.artifact(artifact.NewFile(artifact.Pin{ID: id}, artifact.Bytes{Path: name, Digest: r.put(text), Size: int64(len(text)), Mode: 0o644}, ""))
}

// artifact stores a document of an artifact, at the next version.
func (r *rig) artifact(d artifact.Document) {
	r.t.Helper()
	latest, err := r.store.Latest(r.t.Context(), store.Artifact, []string{d.ID})
	if err != nil {
		r.t.Fatal(err)
	}
	d.Version = latest[d.ID].Version + 1
	r.doc(store.Doc{Kind: store.Artifact, ID: d.ID, Type: d.Type, Body: d.Body(time.Now()), Objects: d.Objects})
}

// universe stores a universe of files.
func (r *rig) universe(id string, entries ...artifact.Bytes) {
	r.t.Helper()
	for i := range entries {
		if entries[i].Link == "" && !entries[i].Folder {
			entries[i].Digest, entries[i].Size, entries[i].Mode = r.put("x"), 1, 0o644
		}
	}
	docs := artifact.NewFileUniverse(artifact.Pin{ID: id}, entries, func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: 1} })
	for _, d := range docs {
		r.artifact(d)
	}
}

func TestNamesAreUnique(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"@local/a/data", "@local/b/data", "@local/b/DATA", "@local/c/x__files", "@local/c/..x", "bare:id", "@local/c/日本"} {
		r.file(id, "a.txt", id)
	}
	r.file("@local/a/data", "a.txt", "second")
	r.task("@local/x/my task", load("@local/a/data", "@local/b/data", "@local/b/DATA", "@local/a/data@v1", "@local/a/data@v2", "@local/c/x__files", "@local/c/..x", "bare:id", "@local/c/日本"))
	rep := r.must("out", fromTask("@local/x/my task"))
	const want = `artifacts/data: file @local/a/data v2
artifacts/data-2: file @local/b/data v1
artifacts/DATA-3: file @local/b/DATA v1
artifacts/data-4: file @local/a/data v1
artifacts/x-files: file @local/c/x__files v1
artifacts/x: file @local/c/..x v1
artifacts/bare-id: file bare:id v1
artifacts/日本: file @local/c/日本 v1`
	if got := lineOf(rep.Written); got != want {
		t.Errorf("written\n%s", got)
	}
	out := read(t, r.path("out"))
	if out["artifacts/data/a.txt"] != "second" || out["artifacts/data-4/a.txt"] != "@local/a/data" {
		t.Errorf("%q", out)
	}
	// A pin names what the folder holds, without the version.
	var steps []map[string]any
	if err := json.Unmarshal([]byte(out["tasks/my task.json"]), &steps); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"data", "data-2", "DATA-3", "data-4", "data", "x-files", "x", "bare-id", "日本"} {
		if s := steps[i+1]; s["artifact_id"] != name || s["artifact_version"] != nil {
			t.Errorf("step %d: %v", i, s)
		}
	}
}

func TestUserScope(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	r.task("@local/x/t", `[
	 {"id":"a","type":"deploy_agent","env_ids":[],"a2a_agent_id":"@local/~/b/bot","a2a_agent_version":1,"env_vars":{"MODE":"x","API_KEY":"k"},"litellm_base_url":"https://u:p@h","sandbox_type":"local",
	  "metadata":{"attribution":{"team":"x"},"note":"kept"}},
	 {"id":"p","type":"prompt_agent","prompt":"hi","model":"m","model_params":{"t":1},"effort":"low","max_thinking_tokens":1,"harness":"h","user_model":"u","trajectory_output_prefix":"x"},
	 {"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
	 {"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"@local/~/b/u","urls":null}
	]`)
	rep := r.must("out", fromTask("@local/x/t"))
	var got []string
	for _, l := range rep.LeftOut {
		got = append(got, strings.TrimPrefix(l.Where, "tasks/t.json: "))
		if l.Why != "dropped: it belongs to who runs the task; --include-scope user keeps it" {
			t.Error(l)
		}
	}
	slices.Sort(got)
	want := []string{
		"step 'a': a2a_agent_id", "step 'a': a2a_agent_version", "step 'a': env_vars", "step 'a': litellm_base_url", "step 'a': metadata.attribution", "step 'a': sandbox_type",
		"step 'box': sandbox_type", "step 'p': effort", "step 'p': harness", "step 'p': max_thinking_tokens", "step 'p': model", "step 'p': model_params",
		"step 'p': trajectory_output_prefix", "step 'p': user_model",
	}
	if !slices.Equal(got, want) {
		t.Errorf("left out\n%s", strings.Join(got, "\n"))
	}
	if got := lineOf(rep.Floating); got != "agent (the configured default): tasks/t.json: step 'a': a2a_agent_id: the step names none, so a run takes the configured default" {
		t.Errorf("floating %s", got)
	}
	if got := lineOf(rep.Written); got != "artifacts/u: file_artifact_universe @local/~/b/u v1" {
		t.Errorf("written %s", got)
	}
	out := read(t, r.path("out"))["tasks/t.json"]
	for _, gone := range []string{"sandbox_type", "a2a_agent", "env_vars", "attribution", "model", "u:p"} {
		if strings.Contains(out, gone) {
			t.Errorf("%s is there:\n%s", gone, out)
		}
	}
	if !strings.Contains(out, `"note": "kept"`) {
		t.Error(out)
	}

	rep = r.must("kept", From{Kind: ref.Task, ID: "@local/x/t", User: true})
	if got := lineOf(rep.LeftOut); got != "tasks/t.json: step 'a': env_vars.API_KEY: dropped: its name looks like a secret\ntasks/t.json: step 'a': litellm_base_url: masked: a URL's credentials" {
		t.Errorf("left out\n%s", got)
	}
	if len(rep.Floating) > 0 || len(rep.Written) != 2 || rep.Written[0].Folder != "agents/bot" {
		t.Errorf("%+v", rep)
	}
	out = read(t, r.path("kept"))["tasks/t.json"]
	for _, there := range []string{`"a2a_agent_id": "bot"`, `"MODE": "x"`, `"https://***@h"`, `"sandbox_type": "local"`, `"team": "x"`} {
		if !strings.Contains(out, there) {
			t.Errorf("%s is missing:\n%s", there, out)
		}
	}
	if strings.Contains(out, "a2a_agent_version") {
		t.Error("the version is kept")
	}
}

// TestUserFields holds every field that an export leaves out.
func TestUserFields(t *testing.T) {
	got := map[string][]string{}
	kinds := step.Kinds()
	for _, name := range kinds.Names() {
		e, _ := kinds.Get(name)
		fields := map[string]bool{}
		userFields(e.Value.Schema(), "", fields)
		for f := range fields {
			got[f] = append(got[f], name)
		}
	}
	for field, want := range map[string]string{
		"sandbox_type": "deploy_agent deploy_env deploy_sandbox", "a2a_agent_id": "deploy_agent install_agent", "a2a_agent_version": "deploy_agent install_agent",
		"env_vars": "deploy_agent", "litellm_base_url": "deploy_agent", "env_state_type": "deploy_env", "env_state_instance_id": "deploy_env", "a2a_url": "deploy_human_agent",
		"urls": "load_artifact", "model": "prompt_agent", "model_params": "prompt_agent", "effort": "prompt_agent rubrics_verifier",
		"max_thinking_tokens": "prompt_agent rubrics_verifier", "harness": "prompt_agent", "user_model": "prompt_agent", "trajectory_output_prefix": "prompt_agent",
		"judge_a2a_agent_id": "rubrics_verifier", "default_model": "rubrics_verifier", "default_model_api_base": "rubrics_verifier", "judge_sandbox_type": "rubrics_verifier",
		"judge_batch_size": "rubrics_verifier", "judge_batch_concurrency": "rubrics_verifier", "docker_context_url": "run_docker_container",
	} {
		slices.Sort(got[field])
		if have := strings.Join(got[field], " "); have != want {
			t.Errorf("%s is a user's field of %q, want %q", field, have, want)
		}
	}
	if len(got["env_instance_id"]) == 0 || len(got["metadata.attribution"]) < 3 {
		t.Errorf("env_instance_id of %v, metadata.attribution of %v", got["env_instance_id"], got["metadata.attribution"])
	}
}

func TestVersions(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	wider := wide.with(files{"artifacts/u/a": "second", "envs/a/Dockerfile": "FROM scratch\nENV x=1\n"})
	r.bundle("b", wider)

	// The versions that a task names; an env that is named with one elsewhere means that one.
	r.task("@local/x/t", `[
	 {"id":"e","type":"deploy_env","env_id":"@local/~/b/a","env_version":1},
	 {"id":"r","type":"reset_env","env_id":"@local/~/b/a"},
	 `+box+`,
	 {"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"@local/~/b/u","version":1},{"id":"@local/~/b/u"}]}]`)
	rep := r.must("out", fromTask("@local/x/t"))
	const want = `envs/a: mcp_server @local/~/b/a v1
artifacts/u: file_artifact_universe @local/~/b/u v1
artifacts/u-2: file_artifact_universe @local/~/b/u v2`
	if got := lineOf(rep.Written); got != want {
		t.Errorf("written\n%s", got)
	}
	if got := lineOf(rep.LeftOut); got != "tasks/t.json: step 'r': env_id: pinned: it names no version, and takes v1, which the task names elsewhere" {
		t.Errorf("left out\n%s", got)
	}
	out := read(t, r.path("out"))
	if out["envs/a/Dockerfile"] != "FROM scratch\n" || out["artifacts/u/a"] != "a" || out["artifacts/u-2/a"] != "second" || strings.Contains(out["tasks/t.json"], "version") {
		t.Errorf("%q", out)
	}

	// An older version of a task.
	r.task("@local/x/t", "["+box+"]")
	if rep := r.must("new", fromTask("@local/x/t")); rep.From.Version != 2 || len(rep.Written) != 0 {
		t.Errorf("%+v", rep)
	}
	if rep := r.must("old", From{Kind: ref.Task, ID: "@local/x/t", Version: 1}); rep.From.Version != 1 || len(rep.Written) != 3 {
		t.Errorf("%+v", rep)
	}
}

func TestEvals(t *testing.T) {
	r := newRig(t)
	r.task("@local/x/a", "["+box+"]")
	r.task("@local/x/a", `[{"id":"second","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}]`)
	r.task("@local/y/a", "["+box+"]")
	r.doc(store.Doc{Kind: store.Eval, ID: "@local/x/e", Type: "eval", Body: []byte(`{"tasks":[{"task_id":"@local/x/a"},{"task_id":"@local/x/a","task_version":1},{"task_id":"@local/y/a"},{"task_id":"@local/x/a","task_version":2}]}`)})
	rep := r.must("out", From{Kind: ref.Eval, ID: "@local/x/e"})
	const want = `tasks/a.json: task @local/x/a v2
tasks/a-2.json: task @local/x/a v1
tasks/a-3.json: task @local/y/a v1
evals/e.toml: eval @local/x/e v1`
	if got := lineOf(rep.Tasks); got != want {
		t.Errorf("tasks\n%s", got)
	}
	if got := lineOf(rep.LeftOut); got != "evals/e.toml: tasks[3]: dropped: task @local/x/a v2 is listed before" {
		t.Errorf("left out\n%s", got)
	}
	out := read(t, r.path("out"))
	if out["evals/e.toml"] != "tasks = [\"a\", \"a-2\", \"a-3\"]\n" || !strings.Contains(out["tasks/a.json"], "second") || strings.Contains(out["tasks/a-2.json"], "second") {
		t.Errorf("%q", out)
	}
	r.doc(store.Doc{Kind: store.Eval, ID: "@local/x/gone", Type: "eval", Body: []byte(`{"tasks":[{"task_id":"@local/x/none"},{"task_id":"@local/x/a","task_version":9}]}`)})
	const refused = `evals/gone.toml: tasks[0]: there is no task '@local/x/none' in the store
evals/gone.toml: tasks[1]: there is no version 9 of task '@local/x/a' in the store`
	if got := r.refused(From{Kind: ref.Eval, ID: "@local/x/gone"}); got != refused {
		t.Error(got)
	}
}

// What steps write has plain names, which no artifact of the folder takes.
func TestOutputs(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	r.file("@local/x/snap", "a.txt", "1")
	r.task("@local/x/t", `[
	 {"id":"sn","type":"snapshot_env","env_id":"@local/~/b/a","snapshot_id":"@local/x/t/snap"},
	 {"id":"o","type":"snapshot_env","env_id":"@local/~/b/a","snapshot_id":"@local/elsewhere/snap"},
	 `+box+`,
	 {"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"@local/x/t/snap"},{"id":"@local/elsewhere/snap"},{"id":"@local/x/snap"}]}]`)
	rep := r.must("out", fromTask("@local/x/t"))
	if got := lineOf(rep.Written); got != "envs/a: mcp_server @local/~/b/a v1\nartifacts/snap-3: file @local/x/snap v1" {
		t.Errorf("written\n%s", got)
	}
	var steps []map[string]any
	if err := json.Unmarshal([]byte(read(t, r.path("out"))["tasks/t.json"]), &steps); err != nil {
		t.Fatal(err)
	}
	if steps[0]["snapshot_id"] != "snap" || steps[1]["snapshot_id"] != "snap-2" ||
		!reflect.DeepEqual(steps[3]["artifacts"], []any{map[string]any{"id": "snap"}, map[string]any{"id": "snap-2"}, map[string]any{"id": "snap-3"}}) {
		t.Errorf("%v", steps)
	}
}

// Entities of installed bundles stay theirs, unless what is exported is that bundle's.
func TestInstalled(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	files{"artifacts/f/a.txt": "1", "artifacts/g/b.txt": "2", "tasks/own.json": load("f"), "agents/bot/Dockerfile": "FROM scratch\n"}.write(t, dir)
	r.o.Bundle.Installed = func(id string) (bundle.Source, bool, error) {
		if !strings.HasPrefix(id, "@local/dist/data/") {
			return bundle.Source{}, false, nil
		}
		src, err := bundle.OpenFolder(dir, "")
		t.Cleanup(func() { _ = src.Close() })
		src.Name, src.Root, src.IDRoot = "data", "dist/data", "@local/dist/data"
		return src, true, err
	}
	r.file("@local/dist/data/f", "a.txt", "1")
	r.file("@local/dist/data/old", "a.txt", "no longer there")
	r.task("@local/x/t", load("@local/dist/data/f@v1", "@local/dist/data/f", "@local/dist/data/old"))
	r.task("@local/dist/data/own", load("@local/dist/data/f"))
	rep := r.must("out", fromTask("@local/x/t"))
	const floating = `artifact @local/dist/data/f: tasks/t.json: step 'l0': artifact_id: it comes with the installed bundle dist/data, and a run writes it from there; the version that was named is dropped
artifact @local/dist/data/f: tasks/t.json: step 'l1': artifact_id: it comes with the installed bundle dist/data, and a run writes it from there`
	if got := lineOf(rep.Floating); got != floating {
		t.Errorf("floating\n%s", got)
	}
	if got := lineOf(rep.Written); got != "artifacts/old: file @local/dist/data/old v1" {
		t.Errorf("written\n%s", got)
	}
	if got := read(t, r.path("out"))["tasks/t.json"]; strings.Count(got, `"artifact_id": "@local/dist/data/f"`) != 2 || strings.Contains(got, "version") {
		t.Error(got)
	}
	r.o.Bundle.Aliases = map[ref.Kind]map[string]string{ref.Agent: {"helper": "@local/dist/data/bot"}}
	r.task("@local/x/alias", `[{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"helper"}]`)
	rep = r.must("alias", fromTask("@local/x/alias"))
	if got := lineOf(rep.Floating); got != "agent helper: tasks/alias.json: step 'v': a2a_agent_id: it comes with the installed bundle dist/data, and a run writes it from there" {
		t.Errorf("floating\n%s", got)
	}
	if got := read(t, r.path("alias"))["tasks/alias.json"]; !strings.Contains(got, `"a2a_agent_id": "helper"`) {
		t.Error(got)
	}
	r.doc(store.Doc{Kind: store.Agent, ID: "helper", Type: "computer", Body: []byte(`{}`)})
	if got := r.refused(fromTask("@local/x/alias")); !strings.HasPrefix(got, "tasks/alias.json: step 'v': a2a_agent_id: agent 'helper' v1 can't be written into a folder: its document names no image") {
		t.Error(got)
	}
	rep = r.must("own", fromTask("@local/dist/data/own"))
	if got := lineOf(rep.Written); got != "artifacts/f: file @local/dist/data/f v1" || len(rep.Floating) > 0 {
		t.Errorf("written\n%s", got)
	}
}

func TestNeeds(t *testing.T) {
	r := newRig(t)
	r.o.Bundle.Kinds.Add("acme_check", catalog.Origin{Kind: catalog.Distribution, Package: "agentenv-acme", Version: "1.2.0+acme.1"}, &step.Kind{Name: "acme_check", Fields: doc.Schema{Open: true}})
	r.o.Bundle.Kinds.Add("mine", catalog.Origin{Kind: catalog.Config}, &step.Kind{Name: "mine", Fields: doc.Schema{Open: true}})
	r.task("@local/x/t", `[{"id":"a","type":"acme_check","data":"@local/x/f"},{"id":"b","type":"acme_check"},{"id":"c","type":"mine"}]`)
	rep := r.must("out", fromTask("@local/x/t"))
	want := []string{
		"agentenv-acme: acme_check (step type), at tasks/t.json: step 'a'; tasks/t.json: step 'b'", "configuration: mine (step type), at tasks/t.json: step 'c'",
	}
	if got := needLines(rep.Needs); !slices.Equal(got, want) {
		t.Errorf("needs %q", got)
	}
	if got := read(t, r.path("out"))["bundle.toml"]; got != "requires = [\"agentenv-acme>=1.2.0\"]\n" || !slices.Contains(rep.Files, "bundle.toml") {
		t.Errorf("bundle.toml is %q, files %q", got, rep.Files)
	}
	if len(rep.Floating) != 1 || !strings.Contains(rep.Floating[0].Why, "don't say which of their fields name stored entities") {
		t.Errorf("floating %v", rep.Floating)
	}
}

func TestRefusedTasks(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	for name, tc := range map[string]struct{ steps, want string }{
		"no such type": {`[{"id":"x","type":"no_such"}]`, "tasks/t.json: step 'x': type: 'no_such' is not a known step type"},
		"no steps":     {`[]`, "tasks/t.json: has no steps"},
		"wrong type":   {`[{"id":"k","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"@local/~/b/u"}]}]`, "tasks/t.json: step 'k': skills[0].skill_artifact_id: '@local/~/b/u' is file_artifact_universe in the store, and this field takes skill"},
		"a field that steps need": {
			`[` + box + `,{"id":"l","type":"load_artifact","sandbox_name":"box","urls":["https://h/x"]}]`,
			"tasks/t.json: step 'l': names nothing to load; set artifacts, artifact_id, urls, artifact_from_step_id or collected_artifacts_step_id; --include-scope user keeps the fields that belong to who runs a task",
		},
		"an unknown field": {`[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","colour":1}]`, "tasks/t.json: step 'box': unknown key 'colour'"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, home: r.home, store: r.store, o: r.o}
			r.task("@local/x/t", tc.steps)
			if got := r.refused(fromTask("@local/x/t")); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %s", got)
			}
		})
	}
	if got := r.refused(fromTask("@local/x/none")); got != "there is no task '@local/x/none' in the store; agent-env task list shows what there is" {
		t.Error(got)
	}
	// A field that this version doesn't know may pass where configuration says so.
	r.o.Bundle.AllowUnknownFields = true
	r.task("@local/x/t", `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","colour":1}]`)
	r.must("allowed", fromTask("@local/x/t"))
}

// Two skills of one name can't lie in one bundle, nor beside an artifact of that name.
func TestSkillNames(t *testing.T) {
	r := newRig(t)
	skill := files{"skills/s/SKILL.md": "---\nname: s\ndescription: Hi\n---\nx", "tasks/t.json": "[" + box + "]"}
	r.bundle("a", skill)
	r.bundle("b", skill.with(files{"artifacts/f/s": "1"}))
	r.file("@local/x/s", "a", "1")
	r.task("@local/x/t", `[{"id":"k","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"@local/~/a/s"},{"skill_artifact_id":"@local/~/b/s"}]}]`)
	if got := r.refused(fromTask("@local/x/t")); !strings.Contains(got, "artifact '@local/~/b/s' v1 can't be written into a folder: a skill's folder takes the skill's name, 's', and another artifact of the folder has it") {
		t.Error(got)
	}
	r.task("@local/x/t", `[{"id":"k","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"@local/~/a/s"}]},`+box+`,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"@local/x/s"}]`)
	if rep := r.must("out", fromTask("@local/x/t")); lineOf(rep.Written) != "skills/s: skill @local/~/a/s v1\nartifacts/s-2: file @local/x/s v1" {
		t.Error(lineOf(rep.Written))
	}
}

func TestPapers(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	r.must("out", fromTask("@local/~/b/t"))
	b, err := os.ReadFile(r.path("out/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		"# Task @local/~/b/t v1, taken from a store\n\nWritten by agent-env test on 2026-11-30 12:00 UTC. Everything that it uses is in this folder.\n\n    agent-env run .\n",
		"\nImages are built, or pulled, where it runs: that takes Docker or Podman.\n", "\n## Tasks\n\n- tasks/t.json: task @local/~/b/t v1\n", "\n## Written\n\n", "\n## Images\n\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if b, err = os.ReadFile(r.path("out/provenance.json")); err != nil {
		t.Fatal(err)
	}
	var p struct {
		Program string `json:"agent_env"`
		At      string `json:"imported_at"`
		From    struct {
			Task    string `json:"task"`
			Version int    `json:"version"`
		} `json:"from"`
		Written []struct {
			Folder, Kind, Type, ID string
			Version                int
		} `json:"written"`
		Images []map[string]any `json:"images"`
		Store  []any            `json:"store"`
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Program != "test" || p.At != "2026-11-30T12:00:00Z" || p.From.Task != "@local/~/b/t" || p.From.Version != 1 || p.Store == nil || len(p.Images) != 6 {
		t.Errorf("%s", b)
	}
	if w := p.Written[0]; w.Folder != "envs/a" || w.Kind != "env" || w.Type != "mcp_server" || w.ID != "@local/~/b/a" || w.Version != 1 {
		t.Errorf("%+v", w)
	}
	src, err := bundle.OpenFolder(r.path("out"), r.home)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	parsed, _ := bundle.Parse(src, r.o.Bundle)
	if parsed.Description != "Task @local/~/b/t v1, taken from a store" || !slices.Equal(parsed.Ignored, []string{"provenance.json"}) {
		t.Errorf("%q, %q", parsed.Description, parsed.Ignored)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_400_000: "1.4 MB", 42e9: "42.0 GB", 5e15: "5000.0 TB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
