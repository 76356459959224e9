package verdicts

// flags are about what the command line selects.
func flags() []Input {
	two := Tree{
		"tasks/t.json": loads("f"), "tasks/u.json": loads("g"), "artifacts/f/x": "1", "artifacts/g/x": "1",
		"evals/e.toml": "tasks=['t']", "evals/d.toml": "tasks=['u','t']",
	}
	flag := func(name, row string, files Tree, args ...string) Input {
		return Input{Name: "flags: " + name, Row: row, Files: files, Args: args}
	}
	broken := two.with(Tree{"tasks/v.json": loads("h"), "artifacts/h/x": "1", "artifacts/h/y": "1", "artifacts/h/artifact.toml": "type='file'"})
	return []Input{
		flag("task by name", "", two, "--task", "u"),
		flag("task by id", "", two, "--task", "@local/~/b/u"),
		flag("tasks and evals", "", two, "--task", "u", "--eval", "e"),
		flag("task that isn't there", "R", two, "--task", "zz"),
		flag("task in another case", "R", two, "--task", "T"),
		flag("eval that isn't there", "R", two, "--eval", "zz"),
		flag("eval in another case", "", two, "--eval", "E"),
		flag("task named as an eval", "", two, "--eval", "t", "--task", "e"),
		flag("task named as a file", "", two, "--task", "t.json", "--task", "tasks/t"),
		flag("empty names", "", two, "--task", "", "--eval", ""),
		flag("one task twice", "", two, "--task", "t", "--task", "@local/~/b/t"),
		flag("several that aren't there", "", two, "--task", "zz", "--task", "T", "--eval", "yy"),
		flag("eval where there is none", "", base(), "--eval", "x"),
		flag("task where there are only evals", "", Tree{"evals/e.toml": "tasks=['@local/x/t']"}, "--task", "x"),
		flag("fault that the selection leaves out", "", broken, "--task", "t"),
		flag("fault that the evals leave out", "", broken),
		flag("fault that the selection reaches", "", broken, "--task", "v"),
		flag("fault that the selection reaches and a flag that names nothing", "", broken, "--task", "v", "--task", "zz"),
		flag("unknown id beside a fault of form", "", broken.with(Tree{"tasks/w.json": "{}"}), "--task", "zz"),
		program(flag("unknown sandbox", "R", base(), "--sandbox", "nope")),
		program(flag("unknown sandbox in a chain", "", base(), "--sandbox", "local,nope")),
		program(flag("unknown flag", "", base(), "--nope")),
		program(flag("flag without its value", "", base(), "--task")),
	}
}

// program is an input that only the whole program can judge.
func program(in Input) Input {
	in.CLI = true
	return in
}

// mixtures have several faults, of several kinds.
func mixtures() []Input {
	return []Input{
		onBase("mixed: every stage's first", "R", Tree{
			"tasks/a:b.json": "[]", "tasks/u.json": "{}", "evals/e.toml": "", "skills/s/x": "1", "Bundle.toml": "", "artifacts/j/Artifact.toml": "",
			"envs/k/env.toml": "foo", "agents/a/": "", "aliases.toml": "[foo]",
		}),
		{Name: "mixed: names of every kind", Files: Tree{
			"tasks/t.json": task(
				`{"id":"a","type":"reset_env","env_id":"K"}`, `{"id":"b","type":"verify_a2a_agent_card","a2a_agent_id":"A"}`, load("c", `"artifact_id":"F"`),
				load("d", `"artifact_id":"f","artifact_version":3`), `{"id":"e","type":"zz"}`,
			),
			"evals/e.toml": "tasks=['T','t','t']", "envs/k/Dockerfile": "x", "envs/k/env.toml": "image='F'", "agents/a/agent.toml": "image={artifact='f'}", "artifacts/f/x": "1",
			"artifacts/x/artifact.toml": "type='environment'\nenvironment_name='q'\nfile='x'", "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts=['f',3]",
			"artifacts/z/artifact.toml": "type='zip'", "artifacts/z/x": "1", "artifacts/i/artifact.toml": "type='docker_image'",
		}},
		{Name: "mixed: tomls of every kind", Files: Tree{
			"tasks/t.json": task(
				`{"id":"a","type":"reset_env","env_id":"k"}`, `{"id":"b","type":"verify_a2a_agent_card","a2a_agent_id":"a"}`,
				load("c", `"artifact_id":"f"`), load("d", `"artifact_id":"x"`), load("e", `"artifact_id":"w"`), load("g", `"artifact_id":"s"`), load("h", `"artifact_id":"u"`),
			),
			"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name=3\nfoo=1", "agents/a/Dockerfile": "x", "agents/a/agent.toml": "foo=1",
			"artifacts/f/artifact.toml": "type='file'\nfoo=1", "artifacts/f/x": "1", "artifacts/f/y": "1",
			"artifacts/x/artifact.toml": "type='environment'\nfoo=1", "artifacts/w/artifact.toml": "type='environment_universe'\nfoo=1", "artifacts/w/crm/a": "1", "artifacts/w/crm/b": "1",
			"skills/s/SKILL.md": "bad", "artifacts/u/sub/": "",
		}},
		{Name: "mixed: writers, loops and selection", Args: []string{"--task", "zz"}, Files: Tree{
			"tasks/t.json": loads("slack"), "envs/slack/Dockerfile": "x", "envs/slack/env.toml": "environment_name='q'",
			"artifacts/slack/artifact.toml": "type='environment_universe'", "artifacts/slack/env_image/a": "1", "artifacts/slack/crm/a": "1",
		}},
		{Name: "mixed: declared id of a child's file", Files: Tree{
			"tasks/t.json": loads("w", "f"), "artifacts/w/artifact.toml": "type='environment_universe'", "artifacts/w/crm/a": "1",
			"skills/w/SKILL.md": "x", "artifacts/f/x": "1",
		}},
		onBase("mixed: refused in parse, broken in plan", "", Tree{"artifacts/f/artifact.toml": "foo=1", "tasks/u.json": "3"}),
		onBase("mixed: refused in resolve, broken in plan", "", Tree{"artifacts/f/artifact.toml": "foo=1", "tasks/u.json": loads("F")}),
		onBase("mixed: broken in plan and in the store", "", Tree{"artifacts/f/artifact.toml": "foo=1", "tasks/u.json": loads("nope")}),
		onBase("mixed: broken in plan and in the graph", "", Tree{"artifacts/f/artifact.toml": "foo=1", "tasks/u.json": task(box)}),
		onBase("mixed: links and keys", "", Tree{"artifacts/f/artifact.toml": "foo=1", "artifacts/f/sub/gone": link("nowhere"), "artifacts/f/sub/pipe": fifo}),
		onBase("mixed: names and links", "", Tree{"artifacts/a:b/x": "1", "artifacts/g": link("nowhere"), "artifacts/h__i/x": "1", "skills/j": fifo, "tasks/k.json": link("k.json")}),
		onBase("mixed: many entries of one fault", "", Tree{
			"artifacts/a/artifact.toml": "id=1", "artifacts/b/artifact.toml": "id=1", "artifacts/c/artifact.toml": "id=1", "artifacts/d/artifact.toml": "id=1",
			"artifacts/a/x": "1", "artifacts/b/x": "1", "artifacts/c/x": "1", "artifacts/d/x": "1",
		}),
		onBase("mixed: type and id of one toml", "", Tree{"artifacts/g/artifact.toml": "type=3\nid=3\nfoo=3", "artifacts/g/x": "1", "envs/k/env.toml": "type=''\nid='x'", "agents/a/agent.toml": "type=[]\nid=''"}),
		onBase("mixed: two tasks and two evals", "", Tree{"tasks/u.json": loads("F"), "tasks/v.json": loads("G", "f"), "evals/d.toml": "tasks=['x',{task='t',version=1}]", "evals/e.toml": "tasks=['U']"}),
		onBase("mixed: two tasks that ask the store", "", Tree{"tasks/u.json": loads("g"), "tasks/v.json": loads("h", "f"), "evals/d.toml": "tasks=['t']", "evals/e.toml": "tasks=['x']"}),
		onBase("mixed: artifacts that share a name and an id", "", Tree{
			"skills/f/SKILL.md": "x", "artifacts/g/artifact.toml": "id='@local/~/b/f'", "artifacts/g/x": "1", "artifacts/F/x": "1",
		}),
	}
}
