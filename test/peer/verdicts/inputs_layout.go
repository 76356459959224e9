package verdicts

// layouts are about what lies at the root of a bundle and in its six folders.
func layouts() []Input {
	return []Input{
		{Name: "smallest bundle", Files: base()},
		{Name: "empty folder", Row: "R", Files: Tree{}},
		{Name: "readme alone", Row: "R", Files: Tree{"README.md": "x"}},
		{Name: "only what is ignored", Row: "R", Files: Tree{"images/x": "1", "docs/x": "1", ".git/config": "1"}},
		onBase("kinds are files", "R", Tree{"envs": "1", "agents": "1", "skills": "1", "evals": "1"}),
		{Name: "tasks is a file", Row: "R", Files: Tree{"tasks": "1"}},
		onBase("kind is a broken link", "R", Tree{"evals": link("nowhere")}),
		onBase("kind is a fifo", "R", Tree{"skills": fifo}),
		{Name: "kind is a link inside", Files: Tree{"tasks/t.json": loads("f"), "stuff/f/x": "1", "artifacts": link("stuff")}},
		{Name: "Tasks alone", Row: "R", Files: Tree{"Tasks/t.json": loads("f"), "artifacts/f/x": "1"}},
		onBase("Tasks beside tasks", "R", Tree{"Tasks/t.json": "[]"}),
		onBase("TASKS and Tasks beside tasks", "R", Tree{"Tasks/t.json": "[]", "TASKS/t.json": "[]"}),
		onBase("Evals is a file", "", Tree{"Evals": "x"}),
		onBase("bundle.toml is a folder", "R", Tree{"bundle.toml/x": "1"}),
		onBase("Bundle.TOML", "R", Tree{"Bundle.TOML": ""}),
		onBase("bundle.toml", "R", Tree{"bundle.toml": "requires = [\"agentenv-framework>=0.9\"]\n"}),
		onBase("bundle.toml with a name", "R", Tree{"bundle.toml": "name = \"b\"\n"}),
		onBase("bundle.toml is no toml", "R", Tree{"bundle.toml": "requires = [\n"}),
		onBase("bundle.toml is a fifo", "", Tree{"bundle.toml": fifo}),
		onBase("what is ignored", "R", Tree{
			"images/x": "1", "docs/x": "1", "Makefile": "x", "provenance.json": "{", ".git/x": "1", "tasks/..json": "x", "tasks/notes.txt": "1",
			"artifacts/loose": "1", "__pycache__/x": "1", "tasks/.x/y": "1", "artifacts/.hidden/artifact.toml": "[", "skills/__pycache__/x": "1", "evals/.e.toml": "[",
		}),
		onBase("suffixes that are none", "", Tree{"tasks/json": "x", "tasks/a.json.bak": "x", "tasks/b.json5": "x", "evals/x.tom": "x", "tasks/c.jsonl": "x"}),
		onBase("readme is a folder", "", Tree{"README.md/x": "1"}),
		onBase("readme is a broken link", "", Tree{"README.md": link("nowhere")}),
		onBase("readme is a fifo", "", Tree{"README.md": fifo}),
		onBase("readme is no text", "", Tree{"README.md": "\xff\xfe\x00", "readme.md": "x"}),
		onBase("leavings beside entries", "", Tree{"artifacts/.DS_Store": "1", "artifacts/Thumbs.db": "1", "tasks/desktop.ini": "1", ".DS_Store": "1"}),
		{Name: "nothing to run", Row: "R", Files: Tree{"artifacts/f/x": "1"}},
		{Name: "empty kind folders", Row: "R", Files: Tree{"tasks/": "", "evals/": "", "artifacts/": ""}},
		onBase("empty kind folder beside a task", "", Tree{"evals/": "", "skills/": "", "envs/": "", "agents/": ""}),
		onBase("task folder", "R", Tree{"tasks/u/task.json": "[]"}),
		onBase("eval folder", "", Tree{"evals/e/eval.toml": ""}),
		onBase("task suffix in another case", "R", Tree{"tasks/u.JSON": "[]", "evals/e.Toml": ""}),
		onBase("task suffix in both cases", "", Tree{"tasks/t.JSON": "[]"}),
		onBase("task names in both cases", "R", Tree{"tasks/T.json": loads("f")}),
		onBase("folder names in both cases", "R", Tree{"artifacts/F/x": "1", "skills/s/SKILL.md": "x", "skills/S/SKILL.md": "x"}),
		onBase("folder names in both Unicode forms", "", Tree{"artifacts/caf\u00e9/x": "1", "artifacts/cafe\u0301/x": "1"}),
		onBase("names equal when folded", "", Tree{"artifacts/stra\u00dfe/x": "1", "artifacts/STRASSE/x": "1"}),
		onBase("ligature beside its letters", "", Tree{"artifacts/\ufb01n/x": "1", "artifacts/fin/x": "1"}),
		onBase("three names in three cases", "", Tree{"artifacts/abc/x": "1", "artifacts/ABC/x": "1", "artifacts/Abc/x": "1"}),
		onBase("one name in all kinds", "", Tree{"envs/t/Dockerfile": "x", "envs/t/env.toml": "environment_name='q'", "agents/t/Dockerfile": "x", "artifacts/t/x": "1", "evals/t.toml": "tasks=['t']"}),
		onBase("artifact and skill of one name", "R", Tree{"skills/f/SKILL.md": "x"}),
		onBase("artifact and skill of one name in two cases", "", Tree{"skills/F/SKILL.md": "x"}),
		onBase("many faults at the root", "R", Tree{"Bundle.TOML": "", "Aliases.toml": "", "Agents/x/y": "", "envs": "1", "skills": link("nowhere"), "evals": fifo}),
	}
}

// folders are about what the command names and what the folder is called.
func folders() []Input {
	dir := func(name, dir string) Input { return Input{Name: name, Row: "R", Files: base(), Dir: dir} }
	named := func(name, bundle string, more Tree) Input {
		return Input{Name: name, Row: "R", Files: base().with(more), Bundle: bundle}
	}
	return []Input{
		dir("folder name with a colon", "a:b"),
		dir("folder name with an edge space", " b"),
		dir("folder below one with a bad name", "a|b/c"),
		dir("folders with two bad names", "a:b/c*d"),
		dir("folder name of all that an id takes", "b (1) + c, d & e_f-g~.@h"),
		dir("folder name in decomposed form", "cafe\u0301"),
		dir("folder called tilde", "~"),
		dir("hidden folder", ".b"),
		dir("folder name with marks", "a__b"),
		dir("folder name with a line break", "a\nb"),
		{Name: "folder name in decomposed form and an id of its own", Dir: "cafe\u0301", Files: Tree{"tasks/t.json": loads("@local/~/caf\u00e9/f"), "artifacts/f/x": "1"}},
		named("no such folder", "./missing", nil),
		named("bundle is a file", "./tasks/t.json", nil),
		named("bundle is the root", "/", nil),
		named("bundle is a link", "../link", Tree{"../link": link("b")}),
		named("bundle is a link to itself", "../link", Tree{"../link": link("link")}),
		named("bundle is a broken link", "../link", Tree{"../link": link("nowhere")}),
		named("bundle is its own kind folder", "./tasks", nil),
		named("bundle is the folder above", "..", nil),
		named("bundle by its absolute way round", "../b/../b/.", nil),
	}
}

// links are about symbolic links and what is neither a file nor a folder.
func links() []Input {
	return []Input{
		onBase("links out of the bundle", "R", Tree{"artifacts/f/out": link("../../../x"), "../x": "1"}),
		onBase("links out of the bundle by absolute paths", "R", Tree{"artifacts/f/abs": link("/etc/hostname")}),
		onBase("link to a folder outside", "E18", Tree{"artifacts/f/dir": link("../../../away"), "../away/x": "1"}),
		onBase("broken link", "R", Tree{"artifacts/f/gone": link("nowhere")}),
		onBase("broken link in a sub-folder", "", Tree{"artifacts/f/sub/gone": link("nowhere")}),
		onBase("link to itself", "E18", Tree{"artifacts/f/self": link("self")}),
		onBase("links to each other", "", Tree{"artifacts/f/sub/a": link("b"), "artifacts/f/sub/b": link("a")}),
		onBase("link back to its folder", "R", Tree{"artifacts/f/back": link(".")}),
		onBase("link back to the bundle", "R", Tree{"artifacts/f/back": link("../..")}),
		onBase("link back to the kind folder from below", "", Tree{"artifacts/f/a/b/back": link("../..")}),
		onBase("fifo", "R", Tree{"artifacts/f/pipe": fifo}),
		onBase("fifo in a sub-folder", "", Tree{"artifacts/f/sub/pipe": fifo}),
		onBase("link to a fifo", "", Tree{"artifacts/f/sub/p": link("../../../pipe"), "pipe": fifo}),
		onBase("links inside the bundle", "R", Tree{"artifacts/f/y": link("../../stuff/y"), "artifacts/f/d": link("../../stuff"), "stuff/y": "1"}),
		onBase("absolute link inside the bundle", "", Tree{"artifacts/f/y": link("$B/stuff/y"), "stuff/y": "1"}),
		onBase("link out of the bundle and back in", "", Tree{"artifacts/f/y": link("../../../b/stuff/y"), "stuff/y": "1"}),
		onBase("folders that link to each other", "", Tree{"artifacts/f/a/b": link("../c"), "artifacts/f/c/d": link("../a")}),
		onBase("entry is a link", "", Tree{"artifacts/g": link("f"), "tasks/u.json": link("t.json")}),
		onBase("entry is a link out of the bundle", "", Tree{"artifacts/g": link("../../away"), "../away/x": "1", "tasks/u.json": loads("g")}),
		onBase("entry is a broken link", "", Tree{"artifacts/g": link("nowhere"), "tasks/u.json": link("nowhere"), "skills/s": fifo}),
		onBase("entries that are links out of the bundle and that nobody reaches", "", Tree{"artifacts/g": link("../../away"), "../away/x": "1", "skills/h": link("../../away")}),
		onBase("task that is a link out of the bundle", "", Tree{"tasks/u.json": link("../../u.json"), "../u.json": loads("f")}),
		onBase("file that is a link out and that nobody reaches", "", Tree{"artifacts/g/x": link("../../../x"), "../x": "1", "artifacts/h/sub/x": link("../../../../x")}),
		onBase("unused kind folder is a link out of the bundle", "", Tree{"skills": link("../away"), "../away/s/SKILL.md": "x"}),
		{Name: "kind folder is a link out of the bundle", Files: Tree{"tasks/t.json": loads("f"), "artifacts": link("../away"), "../away/f/x": "1"}},
		onBase("config is a link", "", Tree{"artifacts/f/artifact.toml": link("../../f.toml"), "f.toml": "type = 'file'"}),
		onBase("config is a link out of the bundle", "", Tree{"artifacts/f/artifact.toml": link("../../../f.toml"), "../f.toml": "type = 'file'"}),
		onBase("config is a fifo, a folder or a broken link", "R", Tree{
			"artifacts/a/artifact.toml": fifo, "artifacts/b/artifact.toml/x": "1", "artifacts/c/artifact.toml": link("nowhere"),
			"artifacts/a/x": "1", "artifacts/b/x": "1", "artifacts/c/x": "1",
			"envs/a/env.toml": fifo, "envs/b/env.toml/": "", "agents/c/agent.toml": link("nowhere"),
		}),
		onBase("task and eval are no files", "", Tree{"tasks/u.json": fifo, "tasks/v.json": link("nowhere"), "evals/e.toml": fifo}),
		onBase("fault beside unreachable files", "", Tree{"artifacts/g/pipe": fifo, "artifacts/g/sub/gone": link("nowhere"), "artifacts/h/sub/pipe": fifo}),
	}
}
