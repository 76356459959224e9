package verdicts

import "strings"

// artifacts are about artifact folders of the types file and file_artifact_universe, and about types as such.
func artifacts() []Input {
	return []Input{
		artifactOf("file", "", "type='file'\ndescription='words'", Tree{"artifacts/g/x": "1"}),
		artifactOf("file in a sub-folder", "", "type='file'", Tree{"artifacts/g/a/b/x": "1"}),
		artifactOf("file that is hidden", "", "type='file'", Tree{"artifacts/g/.x": "1"}),
		artifactOf("file beside leavings", "", "type='file'", Tree{"artifacts/g/x": "1", "artifacts/g/.DS_Store": "1", "artifacts/g/sub/Thumbs.db": "1", "artifacts/g/__pycache__/x.pyc": "1"}),
		artifactOf("file that isn't there", "R", "type='file'", nil),
		artifactOf("file of an empty sub-folder", "", "type='file'", Tree{"artifacts/g/sub/": ""}),
		artifactOf("files where one belongs", "R", "type='file'", Tree{"artifacts/g/x": "1", "artifacts/g/y": "1"}),
		artifactOf("files in sub-folders where one belongs", "", "type='file'", Tree{"artifacts/g/a/x": "1", "artifacts/g/b/y": "1"}),
		artifactOf("file with all faults", "R", "type='file'\nfoo=1\nbar=2\ndescription=3", Tree{"artifacts/g/x": "1", "artifacts/g/y": "1"}),
		artifactOf("file with an empty description", "", "type='file'\ndescription=''", Tree{"artifacts/g/x": "1"}),
		artifactOf("inferred file", "", "", Tree{"artifacts/g/x": "1"}),
		artifactOf("inferred file with a description", "", "description='x'", Tree{"artifacts/g/x": "1"}),
		artifactOf("inferred universe with a description", "R", "description='x'", Tree{"artifacts/g/x": "1", "artifacts/g/y": "1"}),
		artifactOf("inferred universe of one file below", "", "", Tree{"artifacts/g/sub/x": "1"}),
		artifactOf("inferred universe of one file below, described", "", "description='x'", Tree{"artifacts/g/sub/x": "1"}),
		artifactOf("declared universe", "", "type='file_artifact_universe'", Tree{"artifacts/g/x": script("#!/bin/sh\n"), "artifacts/g/.hidden/y": "1"}),
		artifactOf("universe with unknown keys", "", "type='file_artifact_universe'\nzoo=1\nfiles=[]\n'a b'=1", Tree{"artifacts/g/x": "1"}),
		artifactOf("universe of leavings below", "", "type='file_artifact_universe'", Tree{"artifacts/g/sub/.DS_Store": "1", "artifacts/g/sub/__pycache__/x": "1"}),
		artifactOf("universe of an empty sub-folder", "R", "", Tree{"artifacts/g/sub/": ""}),
		onBase("empty artifact folders", "R", Tree{"artifacts/a/": "", "artifacts/b/artifact.toml": "", "artifacts/c/.DS_Store": "1", "artifacts/c/__pycache__/x": "1"}),
		onBase("empty artifact folders with a type", "", Tree{"artifacts/a/artifact.toml": "type='file'", "artifacts/b/artifact.toml": "type='file_artifact_universe'", "artifacts/c/artifact.toml": "type='cli'"}),
		onBase("types that are no words", "R", Tree{"artifacts/a/artifact.toml": "type=5", "artifacts/b/artifact.toml": "type=''", "artifacts/c/artifact.toml": "type=['file']", "artifacts/a/x": "1", "artifacts/b/x": "1", "artifacts/c/x": "1"}),
		onBase("types that are not known", "R", Tree{"artifacts/a/artifact.toml": "type='zip'", "artifacts/a/x": "1", "artifacts/b/artifact.toml": "type='File'", "artifacts/b/x": "1", "artifacts/c/artifact.toml": "type=' file'", "artifacts/c/x": "1"}),
		onBase("type of a skill", "R", Tree{"artifacts/a/artifact.toml": "type='skill'", "artifacts/a/SKILL.md": "x", "artifacts/b/artifact.toml": "type='skill'", "artifacts/b/x": "1"}),
		onBase("type that isn't known and nothing in it", "", Tree{"artifacts/a/artifact.toml": "type='zip'"}),
		onBase("skill under artifacts", "R", Tree{"artifacts/a/SKILL.md": "x", "artifacts/b/skill.md": "x", "artifacts/c/SKILL.md/x": "1", "artifacts/d/Skill.MD": "x", "artifacts/d/artifact.toml": "type='file'"}),
		onBase("skill deep in an artifact", "", Tree{"artifacts/f/sub/SKILL.md": "x"}),
		onBase("skill file in an image", "", Tree{"artifacts/i/SKILL.md": "x", "artifacts/i/Dockerfile": "FROM x"}),
		artifactOf("lower-case dockerfile of a declared type", "R", "type='file'", Tree{"artifacts/g/dockerfile": "x"}),
		artifactOf("lower-case dockerfile", "R", "", Tree{"artifacts/g/dockerfile": "x", "artifacts/g/y": "1"}),
		artifactOf("Dockerfile beside a lower-case one", "", "", Tree{"artifacts/g/Dockerfile": "x", "artifacts/g/DOCKERFILE": "1"}),
		artifactOf("Dockerfile of a declared file", "", "type='file'", Tree{"artifacts/g/Dockerfile": "x"}),
		onBase("misspelt tomls", "R", Tree{"artifacts/f/Artifact.toml": "", "envs/e/Env.toml": "", "envs/e/Dockerfile": "x", "agents/a/AGENT.TOML": "", "agents/a/Dockerfile": "x"}),
		onBase("misspelt toml beside the right one", "", Tree{"artifacts/f/Artifact.toml": "", "artifacts/f/artifact.toml": ""}),
		onBase("tomls of other kinds", "", Tree{"artifacts/g/env.toml": "[", "artifacts/g/agent.toml": "[", "envs/e/artifact.toml": "[", "envs/e/Dockerfile": "x", "envs/e/env.toml": "environment_name='q'"}),
		onBase("broken toml", "R", Tree{"artifacts/a/artifact.toml": "type", "artifacts/b/artifact.toml": "type='file'\ntype='file'", "artifacts/c/artifact.toml": "a=[1,", "artifacts/d/artifact.toml": "[a]\n[a]\n", "artifacts/a/x": "1", "artifacts/b/x": "1", "artifacts/c/x": "1", "artifacts/d/x": "1"}),
		onBase("toml that is no text", "", Tree{"artifacts/a/artifact.toml": "\xff", "artifacts/a/x": "1", "artifacts/b/artifact.toml": "type='\x00'", "artifacts/b/x": "1", "artifacts/c/artifact.toml": "\xff\xfet\x00", "artifacts/c/x": "1"}),
		onBase("toml with a byte order mark", "", Tree{"artifacts/f/artifact.toml": "\ufefftype='file'"}),
		onBase("toml with carriage returns", "", Tree{"artifacts/f/artifact.toml": "type='file'\r\ndescription='x'\r\n"}),
		onBase("toml of bare carriage returns", "", Tree{"artifacts/f/artifact.toml": "type='file'\rdescription='x'"}),
		onBase("empty toml", "", Tree{"artifacts/f/artifact.toml": "# nothing\n"}),
		onBase("toml of 8 MiB", "", Tree{"artifacts/f/artifact.toml": "#" + strings.Repeat("x", 8<<20-2) + "\n"}),
		onBase("toml over 8 MiB", "R", Tree{"artifacts/f/artifact.toml": "#" + strings.Repeat("x", 8<<20-1) + "\n"}),
		onBase("toml nested too deep", "", Tree{"artifacts/f/artifact.toml": "a=" + strings.Repeat("[", 3000) + strings.Repeat("]", 3000)}),
		onBase("keys with dots and quotes", "", Tree{"tasks/u.json": loads("h"), "artifacts/h/x": "1", "artifacts/h/artifact.toml": "a.b.c=1\n\"x\\ny\"=2\n[t]\nu=1\n[[v]]\nw=1"}),
		onBase("faults that nobody reaches", "R", Tree{"artifacts/g/x": "1", "artifacts/g/y": "1", "artifacts/g/artifact.toml": "type='file'\nfoo=1\ndescription=3"}),
	}
}

// images are about docker_image artifacts.
func images() []Input {
	image := func(toml string) string { return "type='docker_image'\n" + toml }
	return []Input{
		onBase("image that is built", "", Tree{"artifacts/i/Dockerfile": "FROM scratch"}),
		onBase("image of a registry that nobody uses", "", Tree{"artifacts/i/artifact.toml": image("ref='ghcr.io/x/y:1'")}),
		onBase("image without a source", "R", Tree{"artifacts/i/artifact.toml": image("")}),
		onBase("image without a source but with files", "", Tree{"artifacts/i/artifact.toml": image(""), "artifacts/i/x": "1"}),
		onBase("image with two sources", "R", Tree{"artifacts/i/artifact.toml": image("ref='ghcr.io/x'"), "artifacts/i/Dockerfile": "x"}),
		onBase("image refs without a registry", "R", Tree{"artifacts/i/artifact.toml": image("ref='x'"), "artifacts/j/artifact.toml": image("ref='library/x'"), "artifacts/k/artifact.toml": image("ref=''"), "artifacts/l/artifact.toml": image("ref='localhost'")}),
		onBase("image refs that are no strings", "", Tree{"artifacts/i/artifact.toml": image("ref=3"), "artifacts/j/artifact.toml": image("ref={}"), "artifacts/k/artifact.toml": image("ref=[]")}),
		onBase("image refs of all good kinds", "", Tree{"artifacts/i/artifact.toml": image("ref='localhost/x'"), "artifacts/j/artifact.toml": image("ref='h:5000/x'"), "artifacts/k/artifact.toml": image("ref='a.b/c/d:e'")}),
		onBase("image with an image key", "R", Tree{"artifacts/i/artifact.toml": image("image='x'"), "artifacts/i/Dockerfile": "x"}),
		onBase("image whose Dockerfile is a folder", "R", Tree{"artifacts/i/Dockerfile/x": "1"}),
		onBase("image whose Dockerfile is a broken link", "", Tree{"artifacts/i/Dockerfile": link("nowhere")}),
		onBase("image that is declared and whose Dockerfile is misspelt", "", Tree{"artifacts/i/dockerfile": "x", "artifacts/i/artifact.toml": image("")}),
		artifactOf("image with unknown keys, in use", "", image("foo=1\ndockerfile='x'\ndescription=2"), Tree{"artifacts/g/Dockerfile": "x"}),
		artifactOf("image in use", "", image("description='x'"), Tree{"artifacts/g/Dockerfile": "x"}),
	}
}

// commands are about cli artifacts.
func commands() []Input {
	cli := func(toml string) string { return "type='cli'\n" + toml }
	// A command is loaded into an agent, and talks to an environment.
	use := func(name, toml string, more Tree) Input {
		return Input{Name: name, Row: "R", Files: Tree{
			"tasks/t.json":              task(`{"id":"l","type":"load_artifact","agent_name":"a","env_id":"k","artifact_id":"c"}`),
			"artifacts/c/artifact.toml": cli(toml), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='k'",
		}.with(more)}
	}
	without := func(name string, steps ...string) Input {
		return Input{Name: "cli " + name, Row: "R", Files: Tree{
			"tasks/t.json": task(steps...), "artifacts/c/artifact.toml": cli("command_name='x'\nentrypoint='x'"), "artifacts/c/x": "1", "artifacts/f/x": "1",
			"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='k'",
		}}
	}
	good := "command_name='run-me'\nentrypoint='bin/run'"
	return []Input{
		use("cli", good, Tree{"artifacts/c/bin/run": script("x")}),
		use("cli without its keys", "", Tree{"artifacts/c/x": "1"}),
		use("cli with keys of wrong kinds", "command_name=3\nentrypoint=[]", Tree{"artifacts/c/x": "1"}),
		use("cli with empty keys", "command_name=''\nentrypoint=''", Tree{"artifacts/c/x": "1"}),
		use("cli with a bad command", "command_name='-x'\nentrypoint='x'", Tree{"artifacts/c/x": "1"}),
		use("cli with a command of several words", "command_name='a b'\nentrypoint='x'", Tree{"artifacts/c/x": "1"}),
		use("cli with a command of an odd but good name", "command_name='_7.a-b'\nentrypoint='x'", Tree{"artifacts/c/x": "1"}),
		use("cli whose entrypoint isn't there", "command_name='x'\nentrypoint='y'", Tree{"artifacts/c/x": "1"}),
		use("cli whose entrypoint leads out", "command_name='x'\nentrypoint='../x'", Tree{"artifacts/c/x": "1"}),
		use("cli whose entrypoint is a folder", "command_name='x'\nentrypoint='d'", Tree{"artifacts/c/d/x": "1"}),
		use("cli with secrets beside its entrypoint", good, Tree{"artifacts/c/bin/run": "x", "artifacts/c/bin/.env": "A=1"}),
		use("cli with secrets elsewhere", good, Tree{"artifacts/c/bin/run": "x", "artifacts/c/.env": "A=1"}),
		use("cli with all faults", "command_name='-x'\nentrypoint='y'\nfoo=1\ndescription='x'", Tree{"artifacts/c/x": "1", "artifacts/c/.env": "1"}),
		use("cli of an empty sub-folder", good, Tree{"artifacts/c/bin/": ""}),
		without("into a sandbox", load("l", `"artifact_id":"c"`)),
		without("among artifacts into a sandbox", load("l", `"artifacts":[{"id":"f"},{"id":"c"}]`)),
		without("into an agent alone", `{"id":"l","type":"load_artifact","agent_name":"a","artifact_id":"c"}`),
		without("into an environment alone", `{"id":"l","type":"load_artifact","env_id":"k","artifact_id":"c"}`),
		without("among artifacts, with an agent and an environment", `{"id":"l","type":"load_artifact","env_id":"k","agent_name":"a","artifacts":[{"id":"f"},{"id":"c"}]}`),
	}
}

// skills are about skill folders.
func skills() []Input {
	use := func(name, text string) Input {
		return Input{Name: "skill: " + name, Row: "R", Files: Tree{"tasks/t.json": loads("s"), "skills/s/SKILL.md": text}}
	}
	front := func(lines ...string) string { return "---\n" + strings.Join(lines, "\n") + "\n---\nbody\n" }
	named := func(name, folder string) Input {
		return Input{Name: "skill name: " + name, Files: Tree{"tasks/t.json": loads(folder), "skills/" + folder + "/SKILL.md": front("name: "+folder, "description: d")}}
	}
	return []Input{
		use("good", front("name: s", "description: d")),
		use("all keys", front("name: s", "description: d", "license: MIT", "compatibility: x", "allowed-tools: Read Write", "metadata:", "  a: b", "extra: 1")),
		use("no front matter", "hello"),
		use("unclosed front matter", "---\nname: s\ndescription: d\n"),
		use("bad front matter", "---\nname: [\n---\n"),
		use("front matter that is a list", "---\n- a\n---\n"),
		use("empty front matter", "---\n---\n"),
		use("front matter after a blank line", "\n"+front("name: s", "description: d")),
		use("front matter with a byte order mark", "\ufeff"+front("name: s", "description: d")),
		use("front matter with carriage returns", "---\r\nname: s\r\ndescription: d\r\n---\r\nx"),
		use("another name", front("name: other", "description: d")),
		use("no name", front("description: d")),
		use("name of another kind", front("name: 3", "description: d")),
		use("no description", front("name: s")),
		use("empty description", front("name: s", "description: ''")),
		use("blank description", front("name: s", "description: '  '")),
		use("description of 1024 characters", front("name: s", "description: "+strings.Repeat("x", 1024))),
		use("description of 1025 characters", front("name: s", "description: "+strings.Repeat("x", 1025))),
		use("compatibility of 501 characters", front("name: s", "description: d", "compatibility: "+strings.Repeat("x", 501))),
		use("metadata with a number", front("name: s", "description: d", "metadata:", "  a: 3")),
		use("metadata that is a list", front("name: s", "description: d", "metadata: [a]")),
		use("optional keys of other kinds", front("name: s", "description: d", "license: 3", "allowed-tools: [a]", "compatibility: {}")),
		use("everything wrong", front("name: 3", "license: 3", "metadata: 3", "compatibility: 3")),
		use("duplicate keys", front("name: s", "name: s", "description: d")),
		use("no UTF-8", "---\nname: s\ndescription: \xff\n---\n"),
		named("upper case", "Skill"),
		named("double hyphen", "a--b"),
		named("edge hyphens", "-a"),
		named("underscore", "a_b"),
		named("64 characters", strings.Repeat("a", 64)),
		named("65 characters", strings.Repeat("a", 65)),
		onBase("skill folders without a SKILL.md", "R", Tree{"skills/a/": "", "skills/b/x": "1", "skills/c/skill.md": "x", "skills/d/SKILL.md/x": "1", "skills/e/SKILL.md": link("nowhere")}),
		onBase("SKILL.md in two cases", "", Tree{"skills/a/SKILL.md": "x", "skills/a/skill.md": "x"}),
		onBase("loose file among skills", "", Tree{"skills/SKILL.md": "x"}),
		onBase("bad skill that nobody uses", "R", Tree{"skills/s/SKILL.md": "bad"}),
		onBase("skill with odd files", "", Tree{"tasks/u.json": loads("s"), "skills/s/SKILL.md": front("name: s", "description: d"), "skills/s/pipe": fifo, "skills/s/sub/gone": link("nowhere")}),
		onBase("skill with odd files below", "", Tree{"tasks/u.json": loads("s"), "skills/s/SKILL.md": front("name: s", "description: d"), "skills/s/sub/gone": link("nowhere"), "skills/s/sub/pipe": fifo}),
	}
}
