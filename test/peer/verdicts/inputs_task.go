package verdicts

import "strings"

// tasks are about task files and the graph of their steps.
func tasks() []Input {
	file := func(name, row, text string) Input {
		return Input{Name: "task: " + name, Row: row, Files: Tree{"tasks/t.json": text, "artifacts/f/x": "1"}}
	}
	down := func(id, more string) string {
		return `{"id":"` + id + `","type":"teardown_sandboxes","sandbox_names":["box"]` + more + `}`
	}
	return []Input{
		file("object", "R", "{}"),
		file("number in a list", "R", "[1]"),
		file("step among other values", "", "["+box+`,null,"x",[]]`),
		file("other values", "", `"x"`),
		file("null", "", "null"),
		file("empty list", "R", "[]"),
		file("empty file", "", ""),
		file("blank file", "", " \n"),
		file("bad JSON", "R", "[\n{\"id\":\n"),
		file("text after JSON", "", task()+" x"),
		file("comma at the end", "", "["+box+",]"),
		file("comment", "", "// x\n"+task()),
		file("single quotes", "", "[{'id':'box'}]"),
		file("duplicate key", "R", `[{"id":"x","id":"y"}]`),
		file("duplicate key below", "", task(load("l", `"artifact_id":"f","x":{"a":1,"a":2}`))),
		file("NaN and Infinity", "R", `[{"id":NaN,"type":-Infinity}]`),
		file("byte order mark", "", "\ufeff"+loads("f")),
		file("UTF-16", "", "\xff\xfe[\x00]\x00"),
		file("no UTF-8", "", "[\"\xff\"]"),
		file("control in a string", "", "[{\"id\":\"a\tb\"}]"),
		file("lone surrogate", "", `[{"id":"\ud800","type":"x"}]`),
		file("number too large", "", task(load("l", `"artifact_id":"f","artifact_version":1e999`))),
		file("number of many digits", "", task(load("l", `"artifact_id":"f","artifact_version":`+strings.Repeat("9", 5000)))),
		file("over 8 MiB", "R", loads("f")+strings.Repeat(" ", 8<<20)),
		file("nested too deep", "R", strings.Repeat("[", 100_000)),
		file("unknown types", "R", `[{"id":"a","type":"zz"},{"id":"b","type":"Deploy_sandbox"},{"id":"c","type":""},`+box+`]`),
		file("type of another kind", "", `[{"id":"a","type":3},{"id":"b","type":null},{"id":"c","type":["deploy_sandbox"]}]`),
		file("no type", "R", `[{"id":"a"},`+box+`]`),
		file("no id", "R", `[{"type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}]`),
		file("ids of other kinds", "", `[{"id":3,"type":"review"},{"id":null,"type":"review"},{"id":"","type":"review"},{"id":["a"],"type":"review"}]`),
		file("duplicate ids", "R", task(box)),
		file("three steps of one id", "", task(box, box)),
		file("depends on itself", "", task(down("a", `,"depends_on":["a"]`))),
		file("depends on a later step", "R", task(down("a", `,"depends_on":["b"]`), down("b", ""))),
		file("depends in a circle", "R", task(down("a", `,"depends_on":["b"]`), down("b", `,"depends_on":["a"]`))),
		file("depends on nothing known", "R", task(down("a", `,"depends_on":["zz"]`))),
		file("depends on a string", "R", task(down("a", `,"depends_on":"box"`))),
		file("depends on numbers", "", task(down("a", `,"depends_on":[1]`))),
		file("depends on an object", "", task(down("a", `,"depends_on":[{"task_step_id":"box"}]`))),
		file("depends on a bad object", "", task(down("a", `,"depends_on":[{"id":"box"}]`))),
		file("depends twice", "", task(down("a", `,"depends_on":["box","box"]`))),
		file("depends on nothing", "", task(down("a", `,"depends_on":[]`), down("b", `,"depends_on":null`))),
		file("retries", "", task(down("a", `,"retry_config":{"retry_from_step_id":"box","max_retries":2}`))),
		file("retries from a later step", "", task(down("a", `,"retry_config":{"retry_from_step_id":"b"}`), down("b", ""))),
		file("retries from nothing known", "", task(down("a", `,"retry_config":{"retry_from_step_id":"zz"}`))),
		file("retries from beside", "", task(down("a", `,"depends_on":["box"]`), down("b", `,"depends_on":["box"],"retry_config":{"retry_from_step_id":"a"}`))),
		file("retries below zero", "", task(down("a", `,"retry_config":{"retry_from_step_id":"box","max_retries":-1}`))),
		file("retries of another kind", "", task(down("a", `,"retry_config":3`))),
		file("unknown field", "", task(down("a", `,"fail_on_error":true`))),
		file("placeholders", "", task(load("l", `"artifact_id":"f","destination_path":"/app/$HOME/${X}"`))),
		file("several faults", "", task(box, down("a", `,"depends_on":["zz"]`), `{"id":"b","type":"nope"}`, load("l", `"artifact_id":"gone"`))),
		file("several graph faults", "", task(box, down("a", `,"depends_on":["zz"]`), down("c", `,"depends_on":["d"]`), down("d", ""))),
	}
}

// steps are about the fields of steps.
func steps() []Input {
	step := func(name, row string, steps ...string) Input {
		return Input{Name: "step: " + name, Row: row, Files: Tree{"tasks/t.json": task(steps...), "artifacts/f/x": "1", "artifacts/g/x": "1"}}
	}
	return []Input{
		step("load without its source", "R", load("l", `"destination_path":"/x"`)),
		step("load of an empty list", "", load("l", `"artifacts":[]`)),
		step("load of strings", "R", load("l", `"artifacts":["f"]`)),
		step("load of numbers", "", load("l", `"artifacts":[3,null]`)),
		step("load of a string for a list", "", load("l", `"artifacts":"f"`)),
		step("load of objects", "", load("l", `"artifacts":[{"id":"f"},{"id":"g"}]`)),
		step("load of objects with faults", "", load("l", `"artifacts":[{"id":"gone"},{"id":"f","version":1},{"id":""},{}]`)),
		step("load of both", "R", load("l", `"artifacts":[{"id":"f"}],"artifact_id":"g"`)),
		step("load into nothing", "", `{"id":"l","type":"load_artifact","artifact_id":"f"}`),
		step("load into two places", "", load("l", `"artifact_id":"f","agent_name":"a"`)),
		step("sandbox without its name", "", `{"id":"a","type":"deploy_sandbox","sandbox_mode":"vm","sandbox_type":"local"}`),
		step("sandbox without its mode", "", `{"id":"a","type":"deploy_sandbox","sandbox_name":"x","sandbox_type":"local"}`),
		step("sandbox of an unknown mode", "", `{"id":"a","type":"deploy_sandbox","sandbox_name":"x","sandbox_mode":"zz","sandbox_type":"local"}`),
		program(step("sandbox of an unknown provider", "", `{"id":"a","type":"deploy_sandbox","sandbox_name":"x","sandbox_mode":"vm","sandbox_type":"nope"}`)),
		step("two sandboxes of one name", "", `{"id":"a","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"}`),
		step("verify without criteria", "", `{"id":"v","type":"verify_sandbox","sandbox_name":"box"}`),
		step("verify with criteria", "", `{"id":"v","type":"verify_sandbox","sandbox_name":"box","criteria":[{"type":"bash_cmd_succeeds","criterion":"c","bash_cmd":"true"}]}`),
		step("verify with criteria of another kind", "", `{"id":"v","type":"verify_sandbox","sandbox_name":"box","criteria":"x"}`),
		step("teardown of nothing", "", `{"id":"v","type":"teardown_sandboxes"}`),
		step("script", "", `{"id":"r","type":"run_code","script_artifact_id":"f","sandbox_name":"box"}`),
		step("script that is missing", "", `{"id":"r","type":"run_code","sandbox_name":"box"}`, `{"id":"s","type":"run_code","script_artifact_id":"gone","sandbox_name":"box"}`),
		step("prompt of nothing", "", `{"id":"p","type":"prompt_agent"}`),
		step("aggregate", "", `{"id":"v","type":"verify_sandbox","sandbox_name":"box","verifier_id":"v","criteria":[]}`, `{"id":"a","type":"aggregate_verifiers"}`),
		step("review", "", `{"id":"r","type":"review","label":"x"}`),
		step("peers of an agent", "", `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"a","peer_agent_names":["b"]}]}`),
		step("peer of itself", "", `{"id":"p","type":"peer_agents","peerings":[{"source_agent_name":"a","peer_agent_names":["a"]}]}`),
		step("names of fields that are no strings", "", load("l", `"artifact_id":"f","sandbox_names":3`)),
		{Name: "step: env on local without a daemon", Row: "R", CLI: true, Files: Tree{
			"tasks/t.json": `[{"id":"e","type":"deploy_env","env_id":"k","sandbox_type":"local"}]`, "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'",
		}},
		{Name: "step: unknown type in a task that isn't selected", Row: "R", Args: []string{"--task", "t"}, Files: base().with(Tree{"tasks/u.json": `[{"id":"a","type":"zz"}]`})},
		{Name: "step: fault of a graph in a task that isn't selected", Args: []string{"--task", "t"}, Files: base().with(Tree{"tasks/u.json": task(box)})},
		{Name: "step: missing field in a task that isn't selected", Args: []string{"--task", "t"}, Files: base().with(Tree{"tasks/u.json": `[{"id":"a","type":"deploy_sandbox"}]`})},
	}
}

// references are about what fields of steps may name.
func references() []Input {
	ref := func(name, row string, more Tree, steps ...string) Input {
		return Input{Name: "ref: " + name, Row: row, Files: Tree{"tasks/t.json": task(steps...), "artifacts/f/x": "1"}.with(more)}
	}
	one := func(name string) string { return load("l", `"artifact_id":`+name) }
	env := Tree{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'"}
	before := Tree{
		"tasks/t.json": loads("f", "u"), "artifacts/f/x": "1", "artifacts/f/artifact.toml": "id='@local/x/file'",
		"artifacts/u/x": "1", "artifacts/u/y": "1", "artifacts/u/artifact.toml": "id='@local/x/files'",
	}
	stored := func(in Input) Input { in.Before = before; return in }
	return []Input{
		ref("missing", "R", nil, one(`"nope"`)),
		ref("missing ids", "R", nil, one(`"@local/nope"`), load("m", `"artifact_id":"@local/~/nope"`)),
		ref("missing, of another kind's name", "R", Tree{"envs/nope/Dockerfile": "x", "envs/nope/env.toml": "environment_name='q'"}, one(`"nope"`)),
		ref("another case", "R", nil, one(`"F"`)),
		ref("another case of an id", "", nil, one(`"@local/~/b/F"`), load("m", `"artifact_id":"@LOCAL/~/b/f"`)),
		ref("loose file", "R", Tree{"artifacts/loose": "1"}, one(`"loose"`)),
		ref("loose file in another case", "", Tree{"artifacts/Loose": "1"}, one(`"loose"`)),
		ref("undefined under its own root", "R", nil, one(`"@local/~/b/gone"`)),
		ref("its own root", "", nil, one(`"@local/~/b"`)),
		ref("file of a folder", "", nil, one(`"f/x"`), load("m", `"artifact_id":"artifacts/f"`)),
		ref("its id", "", nil, one(`"@local/~/b/f"`)),
		ref("ids of a bad form", "", nil, one(`"@local/../x"`), load("m", `"artifact_id":"@other/x"`), load("n", `"artifact_id":"@local/"`), load("o", `"artifact_id":"@local/a:b"`)),
		ref("table", "R", nil, one(`{"artifact":"f"}`)),
		ref("other values", "R", nil, one(`""`), load("m", `"artifact_id":3`), load("n", `"artifact_id":["f"]`), load("o", `"artifact_id":true`)),
		ref("null", "", nil, one(`null`)),
		ref("edge spaces", "", nil, one(`" f"`), load("m", `"artifact_id":"f "`)),
		ref("pin of its own", "R", nil, load("l", `"artifact_id":"f","artifact_version":1`)),
		ref("pin that is null", "", nil, load("l", `"artifact_id":"f","artifact_version":null`)),
		ref("pins of wrong values", "", nil, load("l", `"artifact_id":"@local/x/file","artifact_version":0`), load("m", `"artifact_id":"@local/x/file","artifact_version":"1"`), load("n", `"artifact_id":"@local/x/file","artifact_version":1.5`), load("o", `"artifact_id":"@local/x/file","artifact_version":true`)),
		stored(ref("store's", "", nil, one(`"@local/x/file"`), load("m", `"artifact_id":"@local/x/files","artifact_version":1`))),
		stored(ref("version that the store lacks", "", nil, load("l", `"artifact_id":"@local/x/file","artifact_version":9`))),
		stored(ref("store's by its bare name", "", nil, one(`"file"`))),
		stored(ref("store's of another type", "", nil, `{"id":"a","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"@local/x/file"}]}`)),
		ref("env in place of an artifact", "", env, one(`"k"`)),
		ref("artifact in place of an env", "", env, `{"id":"r","type":"reset_env","env_id":"f"}`),
		ref("env", "", env, `{"id":"r","type":"reset_env","env_id":"k"}`, `{"id":"s","type":"reset_env","env_id":"@local/~/b/k"}`),
		ref("envs that are missing", "", env, `{"id":"r","type":"reset_env","env_id":"K"}`, `{"id":"s","type":"reset_env","env_id":"nope"}`, `{"id":"t","type":"reset_env","env_id":""}`),
		ref("skills of wrong types", "", nil, `{"id":"a","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"f"},{"skill_artifact_id":"nope"}],"cli_artifact_ids":["f"]}`),
		ref("skill", "", Tree{"skills/s/SKILL.md": "---\nname: s\ndescription: d\n---\n"}, `{"id":"a","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"s"}]}`),
		ref("skill with a pin", "", Tree{"skills/s/SKILL.md": "---\nname: s\ndescription: d\n---\n"}, `{"id":"a","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"s","skill_artifact_version":2}]}`),
		ref("universe that must be one", "", env, `{"id":"s","type":"snapshot_env","env_id":"k","original_universe_artifact_id":"f"}`),
		ref("file that must be one", "", env.with(Tree{"artifacts/u/x": "1", "artifacts/u/y": "1"}), `{"id":"s","type":"env_outcome_verifier","env_id":"k","file_artifact_id":"u"}`),
		ref("in another task's outputs", "", env.with(Tree{"tasks/u.json": task(`{"id":"s","type":"snapshot_env","env_id":"k","snapshot_id":"snap"}`)}), one(`"snap"`)),
		ref("trigger's env", "", env, `{"id":"g","type":"register_agent_triggers","agent_name":"a","triggers":[{"id":"x","when":{"type":"all","of":[{"type":"env_trigger","env_id":"nope","trigger_id":"y"}]},"actions":[{"type":"end"}]}]}`),
		ref("several faults", "", Tree{"artifacts/loose": "1"}, one(`"F"`), load("m", `"artifact_id":"loose"`), load("n", `"artifact_id":"f","artifact_version":1`), load("o", `"artifact_id":{}`)),
		ref("several that only a store may hold", "", nil, one(`"nope"`), load("m", `"artifact_id":"@local/nope"`), `{"id":"r","type":"reset_env","env_id":"@local/nope"}`, `{"id":"c","type":"verify_a2a_agent_card","a2a_agent_id":"nope"}`),
	}
}

// outputs are about what steps write and other steps read.
func outputs() []Input {
	out := func(name, row string, steps ...string) Input {
		return Input{Name: "output: " + name, Row: row, Files: Tree{
			"tasks/t.json": task(steps...), "artifacts/f/x": "1", "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'",
		}}
	}
	snap := func(id, more string) string {
		return `{"id":"` + id + `","type":"snapshot_env","env_id":"k"` + more + `}`
	}
	return []Input{
		out("read after its writer", "", snap("s", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"snap"`)),
		out("read by its id", "", snap("s", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"@local/~/b/t/snap"`)),
		out("written by its id", "", snap("s", `,"snapshot_id":"@local/~/b/t/snap"`), load("l", `"artifact_id":"snap"`)),
		out("read before its writer", "R", load("l", `"artifact_id":"snap"`), snap("s", `,"snapshot_id":"snap"`)),
		out("read beside its writer", "R", snap("s", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"snap","depends_on":["box"]`)),
		out("read after what comes after its writer", "", snap("s", `,"snapshot_id":"snap","depends_on":["box"]`), `{"id":"m","type":"review","depends_on":["s"]}`, load("l", `"artifact_id":"snap","depends_on":["m"]`)),
		out("read in another case", "", snap("s", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"Snap"`)),
		out("read with a pin", "", snap("s", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"snap","artifact_version":1`)),
		out("read as another type", "", snap("s", `,"snapshot_id":"snap"`), `{"id":"v","type":"env_outcome_verifier","env_id":"k","file_artifact_id":"snap"}`),
		out("named like an entry", "R", snap("s", `,"snapshot_id":"f"`)),
		out("named like an entry's id", "", snap("s", `,"snapshot_id":"@local/~/b/f"`)),
		out("named like nothing that an id holds", "", snap("s", `,"snapshot_id":"a:b"`), snap("r", `,"snapshot_id":""`)),
		out("named by a foreign id", "", snap("s", `,"snapshot_id":"@local/elsewhere/x"`)),
		out("named by a bare path", "", snap("s", `,"snapshot_id":"a/b"`), load("l", `"artifact_id":"a/b"`)),
		out("named with marks", "", snap("s", `,"snapshot_id":"a__b"`), load("l", `"artifact_id":"a__b"`)),
		out("written twice", "", snap("s", `,"snapshot_id":"snap"`), snap("r", `,"snapshot_id":"snap"`), load("l", `"artifact_id":"snap"`)),
		out("no name", "", snap("s", ""), load("l", `"artifact_id":"f"`)),
		out("cli by its derived name", "", `{"id":"b","type":"build_mcp_cli","env_id":"k","command_name":"mail"}`, `{"id":"l","type":"load_artifact","agent_name":"a","artifact_id":"k__cli"}`),
		out("cli by a name of its own", "", `{"id":"b","type":"build_mcp_cli","env_id":"k","command_name":"mail","cli_artifact_id":"c"}`, `{"id":"l","type":"load_artifact","agent_name":"a","artifact_id":"c"}`),
		out("id that an entry declares", "", snap("s", `,"snapshot_id":"snap"`)).plus(Tree{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/~/b/t/snap'"}),
		out("state of an agent", "", `{"id":"s","type":"snapshot_agent_state","prompt_id":"p","artifact_id":"state","env_id":"k"}`, load("l", `"artifact_id":"state"`)),
	}
}

// plus is the input with more files.
func (in Input) plus(more Tree) Input {
	in.Files = in.Files.with(more)
	return in
}

// evals are about eval files.
func evals() []Input {
	eval := func(name, row string, texts ...string) Input {
		t := base()
		for i, s := range texts {
			t["evals/"+string(rune('a'+i))+".toml"] = s
		}
		return Input{Name: "eval: " + name, Row: row, Files: t}
	}
	return []Input{
		eval("of a task", "", "tasks=['t']"),
		eval("of a task's id", "", "tasks=['@local/~/b/t']"),
		eval("in a table", "", "tasks=[{task='t'}]"),
		eval("with a type and an id", "", "tasks=['t']\ntype='eval'\nid='@local/x/e'"),
		eval("empty file", "R", ""),
		eval("empty list", "R", "tasks=[]"),
		eval("no list", "R", "tasks='t'", "tasks=3", "tasks={task='t'}"),
		eval("unknown keys", "R", "tasks=['t']\nfoo=1\nbar=2\nname='x'"),
		eval("all faults of form", "", "tasks='t'\nfoo=1\ntype=3\nid='bare'"),
		eval("types", "R", "tasks=['t']\ntype='zz'", "tasks=['t']\ntype=3", "tasks=['t']\ntype=''"),
		eval("elements of other kinds", "R", "tasks=[3,['t'],true,'']"),
		eval("tables of other shapes", "R", "tasks=[{task='t',x=1},{},{task=3},{version=1},{task='@local/x',version=0}]"),
		eval("one task twice", "R", "tasks=['t','t']"),
		eval("one task by name and id", "", "tasks=['t','@local/~/b/t',{task='t'}]"),
		eval("pin of its own task", "R", "tasks=[{task='t',version=1}]"),
		eval("missing task", "R", "tasks=['nope']"),
		eval("missing ids", "", "tasks=['@local/nope',{task='@local/nope',version=2},'@local/~/b/nope']"),
		eval("another case", "", "tasks=['T']"),
		eval("artifact for a task", "", "tasks=['f']"),
		eval("eval for a task", "", "tasks=['a']"),
		eval("bare id", "R", "tasks=['t']\nid='bare'"),
		eval("broken toml", "", "tasks=[", "tasks=['t']\ntasks=['t']"),
		eval("mixed faults of references", "", "tasks=['t','t','T',3,{task='t',version=1},'nope']"),
		{Name: "eval: task of the store", Row: "R", Files: base().with(Tree{"evals/e.toml": "tasks=['@local/~/before/t',{task='@local/~/before/t',version=1}]"}), Before: base()},
		{Name: "eval: one of its tasks is broken", Files: base().with(Tree{"evals/e.toml": "tasks=['t']", "tasks/u.json": loads("gone")})},
		{Name: "eval: names one of two tasks", Files: base().with(Tree{"evals/e.toml": "tasks=['u']", "tasks/u.json": loads("f")})},
	}
}
