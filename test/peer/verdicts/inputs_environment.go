package verdicts

import "strings"

// environments are about artifacts of type environment: the rows E1 to E19.
func environments() []Input {
	env := func(row, name, toml string, more Tree) Input {
		return Input{Name: row + " " + name, Row: row, Files: Tree{
			"tasks/t.json": loads("x"), "artifacts/x/artifact.toml": "type = \"environment\"\n" + toml,
			"artifacts/f/x": "1", "artifacts/u/a": "1", "artifacts/u/b": "1",
		}.with(more)}
	}
	own := Tree{"artifacts/x/a.json": "{}"}
	store := Tree{
		"tasks/t.json":  loads("f", "u", "e"),
		"artifacts/f/x": "1", "artifacts/f/artifact.toml": "id='@local/x/file'",
		"artifacts/u/x": "1", "artifacts/u/y": "1", "artifacts/u/artifact.toml": "id='@local/x/files'",
		"artifacts/e/x": "{}", "artifacts/e/artifact.toml": "type='environment'\nid='@local/x/env'\nenvironment_name='mail'",
	}
	stored := func(row, name, toml string, more Tree) Input {
		in := env(row, name, toml, more)
		in.Before = store
		return in
	}
	return []Input{
		env("E", "over its own file", "environment_name='crm'", own),
		env("E", "over its own file below", "environment_name='crm'", Tree{"artifacts/x/sub/a.json": "1"}),
		env("E", "over a hidden file", "environment_name='crm'", Tree{"artifacts/x/.a": "1", "artifacts/x/.DS_Store": "1"}),
		env("E", "over a named file", "environment_name='crm'\nfile='f'", nil),
		env("E", "over a file by its id", "environment_name='crm'\nfile='@local/~/b/f'", nil),
		env("E", "over a file in a table", "environment_name='crm'\nfile={artifact='f'}", nil),
		env("E", "with a free name", "environment_name='a/b: c d'\ndescription='x'", own),
		env("E", "with a blank name", "environment_name=' '", own),
		stored("E", "over a file of the store", "environment_name='crm'\nfile='@local/x/file'", nil),
		stored("E", "over a version of the store", "environment_name='crm'\nfile={artifact='@local/x/file',version=1}", nil),
		env("E1", "no file", "environment_name='crm'", nil),
		env("E1", "leavings alone", "environment_name='crm'", Tree{"artifacts/x/.DS_Store": "1", "artifacts/x/__pycache__/x": "1"}),
		env("E1", "an empty sub-folder", "environment_name='crm'", Tree{"artifacts/x/sub/": ""}),
		env("E2", "two files", "environment_name='crm'", Tree{"artifacts/x/a": "1", "artifacts/x/b": "1"}),
		env("E2", "many files", "environment_name='crm'", Tree{"artifacts/x/a": "1", "artifacts/x/b": "1", "artifacts/x/c/d": "1", "artifacts/x/c/e": "1", "artifacts/x/f": "1", "artifacts/x/g": "1", "artifacts/x/h": "1"}),
		env("E3", "no name", "", own),
		env("E4", "empty name", "environment_name=''", own),
		env("E5", "name of another kind", "environment_name=3", own),
		env("E5", "name that is a list", "environment_name=['a']", own),
		env("E6", "stored word for the name", "service_name='crm'", own),
		env("E6", "stored word beside the name", "environment_name='crm'\nservice_name='crm'", own),
		env("E7", "stored words for the file", "environment_name='crm'\nfile_artifact_id='f'\nfile_artifact_ref={}", nil),
		env("E7", "stored word beside a file", "environment_name='crm'\nfile_artifact_id='f'", own),
		env("E8", "file and description", "environment_name='crm'\nfile='f'\ndescription='x'", nil),
		env("E9", "file and a file", "environment_name='crm'\nfile='f'", own),
		env("E9", "file and leavings", "environment_name='crm'\nfile='f'", Tree{"artifacts/x/.DS_Store": "1"}),
		env("E9", "file and an empty sub-folder", "environment_name='crm'\nfile='f'", Tree{"artifacts/x/sub/": ""}),
		env("E10", "names a universe", "environment_name='crm'\nfile='u'", nil),
		env("E10", "names itself", "environment_name='crm'\nfile='x'", nil),
		env("E10", "names an environment", "environment_name='crm'\nfile='y'", Tree{"artifacts/y/artifact.toml": "type='environment'\nenvironment_name='q'\nfile='f'"}),
		env("E10", "names a skill", "environment_name='crm'\nfile='s'", Tree{"skills/s/SKILL.md": "x"}),
		env("E11", "names nothing", "environment_name='crm'\nfile='nope'", nil),
		env("E11", "names nothing by an id", "environment_name='crm'\nfile='@local/nope'", nil),
		env("E11", "names what another kind holds", "environment_name='crm'\nfile='k'", Tree{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'"}),
		env("E12", "another case", "environment_name='crm'\nfile='F'", nil),
		env("E12", "another case of an id", "environment_name='crm'\nfile='@local/~/b/F'", nil),
		env("E13", "pin of its own", "environment_name='crm'\nfile={artifact='f',version=1}", nil),
		env("E14", "another key in the table", "environment_name='crm'\nfile={artifact='f',x=1}", nil),
		env("E14", "no artifact in the table", "environment_name='crm'\nfile={version=1}", nil),
		env("E14", "version 0", "environment_name='crm'\nfile={artifact='@local/x',version=0}", nil),
		env("E14", "version that is no number", "environment_name='crm'\nfile={artifact='@local/x',version=true}", nil),
		env("E14", "number", "environment_name='crm'\nfile=3", nil),
		env("E14", "empty", "environment_name='crm'\nfile=''", nil),
		env("E14", "list", "environment_name='crm'\nfile=['f']", nil),
		env("E15", "description of another kind", "environment_name='crm'\ndescription=1", own),
		env("E16", "other keys", "environment_name='crm'\nzoo=1\nfiles=[]", own),
		stored("E17", "store's artifact of another type", "environment_name='crm'\nfile='@local/x/files'", nil),
		stored("E17", "store's environment", "environment_name='crm'\nfile={artifact='@local/x/env',version=1}", nil),
		stored("E17", "version that the store lacks", "environment_name='crm'\nfile={artifact='@local/x/file',version=7}", nil),
		env("E18", "link out", "environment_name='crm'", Tree{"artifacts/x/a": link("../../../a"), "../a": "1"}),
		env("E18", "broken link", "environment_name='crm'", Tree{"artifacts/x/a": link("nowhere")}),
		env("E18", "fifo", "environment_name='crm'", Tree{"artifacts/x/a": fifo}),
		env("E18", "faults below", "environment_name='crm'", Tree{"artifacts/x/s/a": fifo, "artifacts/x/s/b": link("nowhere"), "artifacts/x/s/c": link("../../../../a"), "../a": "1"}),
		env("E19", "no server of its name", "environment_name='crm'", own.with(Tree{"tasks/t.json": into("k", "x"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='mail'"})),
		env("E19", "a server of its name", "environment_name='crm'", own.with(Tree{"tasks/t.json": into("k", "x"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='crm'"})),
		env("E19", "a website of another name", "environment_name='crm'", own.with(Tree{"tasks/t.json": into("k", "x"), "envs/k/Dockerfile.backend": "x", "envs/k/Dockerfile.frontend": "x", "envs/k/env.toml": "type='website'\nenvironment_name='mail'"})),
		env("E19", "a multi without its name", "environment_name='crm'", own.with(Tree{
			"tasks/t.json": into("m", "x"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='mail'", "envs/l/Dockerfile": "x", "envs/l/env.toml": "environment_name='chat'",
			"envs/m/env.toml": "type='multi'\nmcp_server_envs=['k','l']",
		})),
		env("E", "everything wrong", "environment_name=''\nfile='U'\nservice_name=1\nzoo=1\ndescription=3", own),
		env("E", "everything wrong but its references", "environment_name=''\nfile='f'\nservice_name=1\nzoo=1\ndescription=3", own),
	}
}

// into is a task that loads artifacts into an environment.
func into(env string, names ...string) string {
	steps := make([]string, len(names))
	for i, name := range names {
		steps[i] = `{"id":"i` + string(rune('0'+i)) + `","type":"load_artifact","env_id":"` + env + `","artifact_id":"` + name + `"}`
	}
	return task(steps...)
}

// universes are about artifacts of type environment_universe: the rows U1 to U22.
func universes() []Input {
	uni := func(row, name, toml string, more Tree) Input {
		return Input{Name: row + " " + name, Row: row, Files: Tree{
			"tasks/t.json": loads("w"), "artifacts/w/artifact.toml": "type = \"environment_universe\"\n" + toml,
			"artifacts/f/x": "1", "artifacts/e/artifact.toml": "type='environment'\nenvironment_name='crm'\nfile='f'",
		}.with(more)}
	}
	at := func(names ...string) Tree { // files below the universe
		t := Tree{}
		for _, n := range names {
			t["artifacts/w/"+n] = "1"
		}
		return t
	}
	store := Tree{
		"tasks/t.json":  loads("e"),
		"artifacts/e/x": "{}", "artifacts/e/artifact.toml": "type='environment'\nid='@local/x/env'\nenvironment_name='mail'",
		"artifacts/f/x": "1", "artifacts/f/artifact.toml": "id='@local/x/file'", "tasks/u.json": loads("f"),
	}
	stored := func(row, name, toml string, more Tree) Input {
		in := uni(row, name, toml, more)
		in.Before = store
		return in
	}
	long := strings.Repeat("n", 250)
	return []Input{
		uni("U", "of a folder", "", at("crm/a.json")),
		uni("U", "of a folder, metadata and a name", "environment_artifacts=['e']", at("mail/a.json", "metadata/manifest/m.json")),
		uni("U", "of a name in a table", "environment_artifacts=[{artifact='e'}]", nil),
		uni("U", "with empty metadata", "", at("crm/a", "metadata/.DS_Store")),
		uni("U", "with hidden files", "", at("crm/.a", "a.b/.DS_Store", "a.b/x")),
		uni("U", "with names in two cases", "", at("crm/a", "CRM/a")),
		uni("U", "with a name in decomposed form", "", at("cafe\u0301/a")),
		uni("U", "with a name in both Unicode forms", "", at("cafe\u0301/a", "caf\u00e9/a")),
		uni("U", "with leavings beside folders", "", at("crm/a", ".DS_Store", "__pycache__/x")),
		uni("U", "with a hidden folder", "", at("crm/a", ".git/x")),
		uni("U", "nested folders", "", at("a/b/x")),
		uni("U", "nested folders beside a file", "", at("crm/x", "crm/eu/x")),
		uni("U", "nested metadata", "", at("crm/x", "metadata/k/deep/x")),
		uni("U", "names with derived marks", "", at("a__b/x")),
		uni("U", "names with edge spaces", "", at("crm /x", " b/x")),
		uni("U", "names that no id holds", "", at("a:b/x", "c*d/x")),
		uni("U", "metadata keys that no id holds", "", at("crm/x", "metadata/k__l/x", "metadata/a:b/x", "metadata/ c/x")),
		stored("U", "of a store's environment", "environment_artifacts=['@local/x/env']", nil),
		stored("U", "of a store's environment and a folder", "environment_artifacts=[{artifact='@local/x/env',version=1}]", at("crm/a")),
		uni("U1", "nothing", "", nil),
		uni("U1", "an empty list", "environment_artifacts=[]", nil),
		uni("U1", "metadata alone", "", at("metadata/k/a")),
		uni("U1", "leavings alone", "", at(".DS_Store", "__pycache__/a")),
		uni("U2", "file beside folders", "", at("a.json", "crm/a")),
		uni("U2", "file alone", "", at("a.json")),
		uni("U2", "file beside a list", "environment_artifacts=['e']", at("a.json", "b.json")),
		uni("U3", "folder of two files", "", at("crm/a", "crm/b")),
		uni("U4", "folders of no file", "", at("crm/.DS_Store", "crm/__pycache__/x").with(Tree{"artifacts/w/x/": ""})),
		uni("U5", "file in metadata", "", at("crm/a", "metadata/a.json")),
		uni("U6", "metadata of no file and of two", "", at("crm/a", "metadata/l/a", "metadata/l/b").with(Tree{"artifacts/w/metadata/k/": ""})),
		uni("U7", "Metadata", "", at("crm/a", "Metadata/k/a")),
		uni("U7", "Metadata beside metadata", "", at("crm/a", "Metadata/k/a", "metadata/k/a")),
		uni("U8", "stored words for metadata", "metadata={}\nmetadata_refs={}", at("crm/a")),
		uni("U9", "stored words for environments", "service_artifact_ids=[]\nservice_artifact_refs=[]\nenvironment_artifact_refs=[]", at("crm/a")),
		uni("U9", "stored word beside nothing", "environment_artifact_refs=['e']", nil),
		uni("U10", "other keys", "description='x'\nzoo=1", at("crm/a")),
		uni("U11", "no list", "environment_artifacts='e'", nil),
		uni("U11", "table", "environment_artifacts={artifact='e'}", at("crm/a")),
		uni("U12", "elements of wrong kinds", "environment_artifacts=[3,'',{artifact='e',x=1},{artifact='e',version=0},{},['e']]", nil),
		uni("U13", "elements of wrong types", "environment_artifacts=['f','w']", nil),
		uni("U14", "element that isn't there", "environment_artifacts=['nope']", nil),
		uni("U14", "element in another case", "environment_artifacts=['E','@local/~/b/E']", nil),
		stored("U14", "store's element of another type", "environment_artifacts=['@local/x/file']", nil),
		uni("U15", "pinned element", "environment_artifacts=[{artifact='e',version=1}]", nil),
		uni("U16", "folder and element of one name", "environment_artifacts=['e']", at("crm/a")),
		stored("U16", "folder and store's element of one name", "environment_artifacts=['@local/x/env']", at("mail/a")),
		uni("U17", "elements of one name", "environment_artifacts=['e','d']", Tree{"artifacts/d/artifact.toml": "type='environment'\nenvironment_name='crm'\nfile='f'"}),
		uni("U17", "one element twice", "environment_artifacts=['e','@local/~/b/e','e']", nil),
		{Name: "U18 child and image of one id", Row: "U18", Files: Tree{
			"tasks/t.json": loads("slack"), "envs/slack/Dockerfile": "x", "envs/slack/env.toml": "environment_name='slack'",
			"artifacts/slack/artifact.toml": "type='environment_universe'", "artifacts/slack/env_image/a": "1",
		}},
		{Name: "U18 child and image of one id, unused", Row: "U18", Files: base().with(Tree{
			"envs/slack/Dockerfile": "x", "envs/slack/env.toml": "environment_name='slack'",
			"artifacts/slack/artifact.toml": "type='environment_universe'", "artifacts/slack/env_image/a": "1",
		})},
		uni("U19", "child ids that are too long", "id='@local/"+strings.Repeat("w/", 1900)+"w'", at(long+"/a")),
		uni("U19", "child ids too long even hashed", "id='@local/"+strings.Repeat("w/", 2030)+"w'", at("crm/a", "metadata/k/a")),
		uni("U20", "no server of a child's name", "environment_artifacts=['e']", at("mail/a").with(Tree{"tasks/t.json": into("k", "w"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='crm'"})),
		uni("U20", "no server of an element's name", "environment_artifacts=['e']", at("mail/a").with(Tree{"tasks/t.json": into("k", "w"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='mail'"})),
		uni("U20", "servers of all names", "environment_artifacts=['e']", at("mail/a").with(Tree{
			"tasks/t.json": into("m", "w"), "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='mail'", "envs/l/Dockerfile": "x", "envs/l/env.toml": "environment_name='crm'",
			"envs/m/env.toml": "type='multi'\nmcp_server_envs=['k','l']",
		})),
		uni("U21", "links out", "", Tree{"artifacts/w/crm/a": link("../../../../a"), "../a": "1", "artifacts/w/metadata/k/m": link("/etc/hostname")}),
		uni("U21", "broken link and fifo", "", Tree{"artifacts/w/crm/a": link("nowhere"), "artifacts/w/mail/p": fifo, "artifacts/w/metadata/k/m": link("m")}),
		uni("U21", "child that is a link", "", Tree{"artifacts/w/crm": link("../../stuff"), "stuff/a": "1"}),
		uni("U21", "children that are odd", "", Tree{"artifacts/w/crm": link("nowhere"), "artifacts/w/mail": fifo, "artifacts/w/ok/a": "1"}),
		uni("U22", "id that ends with a mark", "id='@local/x/y__crm'", at("crm/a")),
		uni("U", "everything wrong in its folder", "zoo=1\nmetadata=1", at("a.json", "crm/a", "crm/b", "metadata/a", "metadata/k/a", "metadata/k/b", "Metadata/x")),
	}
}
