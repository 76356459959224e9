package verdicts

import "strings"

// card is a Python source that declares an environment's name.
func card(name, class string) string {
	return "from agentenv_framework_protocol import environment_card\n\n\n@environment_card(name=" + name + ")\nclass " + class + ":\n    pass\n"
}

// envs are about folders of environments.
func envs() []Input {
	env := func(name, row, toml string, more Tree) Input {
		t := Tree{"tasks/t.json": resets("k")}.with(more)
		if toml != "" {
			t["envs/k/env.toml"] = toml
		}
		return Input{Name: "env: " + name, Row: row, Files: t}
	}
	docker := Tree{"envs/k/Dockerfile": "FROM scratch"}
	return []Input{
		env("with a name", "", "environment_name='q'", docker),
		env("with everything", "", "type='mcp_server'\nid='@local/x/k'\nenvironment_name='q'\nenv_provider_type='gateway'", docker),
		env("with its name in a card", "", "", docker.with(Tree{"envs/k/server.py": card("'q'", "A")})),
		env("with its name in a card below", "", "", docker.with(Tree{"envs/k/src/server.py": card(`"q"`, "A")})),
		env("with one name in two cards", "", "", docker.with(Tree{"envs/k/a.py": card("'q'", "A"), "envs/k/b.py": card("'q'", "B")})),
		env("without a name", "R", "", docker),
		env("with two cards", "R", "", docker.with(Tree{"envs/k/a.py": card("'q'", "A"), "envs/k/b.py": card("'r'", "B")})),
		env("with a card that isn't literal", "", "", docker.with(Tree{"envs/k/a.py": card("NAME", "A")})),
		env("with a card in a comment", "", "", docker.with(Tree{"envs/k/a.py": "# @environment_card(name='q')\nX = \"@environment_card(name='q')\"\n"})),
		env("with a card on a function", "", "", docker.with(Tree{"envs/k/a.py": "@environment_card(name='q')\ndef f(): pass\n"})),
		env("with a source that isn't Python", "", "", docker.with(Tree{"envs/k/a.py": card("'q'", "A"), "envs/k/b.py": "def (:\n"})),
		env("with an empty folder", "R", "", Tree{"envs/k/": ""}),
		env("with files alone", "R", "", Tree{"envs/k/server.py": "x"}),
		env("with a misspelt Dockerfile", "", "", Tree{"envs/k/dockerfile": "x"}),
		env("with a misspelt Dockerfile and a toml", "", "environment_name='q'", Tree{"envs/k/dockerfile": "x"}),
		env("with a misspelt Dockerfile beside another image", "", "environment_name='q'\nimage={dockerfile='d'}", Tree{"envs/k/dockerfile": "x", "envs/k/d": "x"}),
		env("with a Dockerfile that is a folder", "", "environment_name='q'", Tree{"envs/k/Dockerfile/x": "1"}),
		env("with a toml alone", "", "environment_name='q'", nil),
		env("with an unknown provider", "R", "environment_name='q'\nenv_provider_type='zz'", docker),
		env("with the server provider", "", "environment_name='q'\nenv_provider_type='server'", docker),
		env("with reserved names", "R", "environment_name='gateway'", docker),
		env("with a reserved name and the server provider", "", "environment_name='gateway'\nenv_provider_type='server'", docker),
		env("with an empty name", "", "environment_name=''", docker),
		env("with names of other shapes", "", "environment_name='a b'", docker),
		env("with a name with a slash", "", "environment_name='a/b'", docker),
		env("with a name in capitals", "", "environment_name='Mail_2.x'", docker),
		env("with values of other kinds", "", "environment_name=3\nenv_provider_type=[]", docker),
		env("with unknown keys", "R", "environment_name='q'\nfoo=1\nports=[1]", docker),
		env("with all faults", "R", "environment_name=3\nenv_provider_type='zz'\nfoo=1\nname='x'", docker),
		env("of an unknown type", "", "type='zz'", docker),
		env("of a type that config names", "", "type='gateway_server'", docker),
		env("of the other type that config names", "", "type='service_db'", docker),
		env("with another Dockerfile", "", "environment_name='q'\nimage={dockerfile='d/My.dockerfile'}", Tree{"envs/k/d/My.dockerfile": "x"}),
		env("with a Dockerfile that isn't there", "", "environment_name='q'\nimage={dockerfile='d/x'}", docker),
		env("with a Dockerfile outside", "", "environment_name='q'\nimage={dockerfile='../x'}", docker.with(Tree{"envs/x": "1"})),
		env("with a Dockerfile by an absolute path", "", "environment_name='q'\nimage={dockerfile='/etc/hostname'}", docker),
		env("with a Dockerfile that links out", "", "environment_name='q'\nimage={dockerfile='d'}", docker.with(Tree{"envs/k/d": link("../../../d"), "../d": "1"})),
		env("with an image ref without a registry", "", "environment_name='q'\nimage={ref='x:y'}", docker),
		env("with a bundle's image", "", "environment_name='q'\nimage='i'", Tree{"artifacts/i/Dockerfile": "x"}),
		env("with a bundle's image in a table", "", "environment_name='q'\nimage={artifact='i'}", Tree{"artifacts/i/Dockerfile": "x"}),
		env("with a pinned image of the bundle", "", "environment_name='q'\nimage={artifact='i',version=1}", Tree{"artifacts/i/Dockerfile": "x"}),
		env("with an image that is a file", "", "environment_name='q'\nimage='f'", docker.with(Tree{"artifacts/f/x": "1"})),
		env("with an image that isn't there", "", "environment_name='q'\nimage='nope'", docker),
		env("with images of other shapes", "", "environment_name='q'\nimage=3", docker),
		env("with an image table of other keys", "", "environment_name='q'\nimage={dockerfile='Dockerfile',ref='a.b/c'}", docker),
		env("without a name and with a bundle's image", "", "image='i'", Tree{"artifacts/i/Dockerfile": "x"}),
		env("with odd files", "", "environment_name='q'", docker.with(Tree{"envs/k/gone": link("nowhere"), "envs/k/pipe": fifo, "envs/k/out": link("../../../x"), "../x": "1"})),
		env("website", "", "type='website'\nenvironment_name='q'", Tree{"envs/k/Dockerfile.backend": "x", "envs/k/Dockerfile.frontend": "x"}),
		env("website with its name in a card", "", "type='website'", Tree{"envs/k/Dockerfile.backend": "x", "envs/k/Dockerfile.frontend": "x", "envs/k/a.py": card("'q'", "A")}),
		env("website without Dockerfiles", "R", "type='website'\nenvironment_name='q'", nil),
		env("website without one Dockerfile", "", "type='website'\nenvironment_name='q'", Tree{"envs/k/Dockerfile.backend": "x"}),
		env("website with the server provider", "", "type='website'\nenvironment_name='q'\nenv_provider_type='server'", Tree{"envs/k/Dockerfile.backend": "x", "envs/k/Dockerfile.frontend": "x"}),
		env("website with an image key", "", "type='website'\nenvironment_name='q'\nimage='x'", Tree{"envs/k/Dockerfile.backend": "x", "envs/k/Dockerfile.frontend": "x"}),
		env("driver", "", "type='computer_driver'\nmodule='driver.py:Driver'", Tree{"envs/k/driver.py": "class Driver: pass\n"}),
		env("driver without a module", "", "type='computer_driver'", Tree{"envs/k/driver.py": "x"}),
		env("driver with bad modules", "", "type='computer_driver'\nmodule='driver.py'\nfoo=1", Tree{"envs/k/driver.py": "x"}),
		env("driver whose file isn't there", "", "type='computer_driver'\nmodule='gone.py:Driver'", Tree{"envs/k/driver.py": "x"}),
		onBase("env: faults that nobody reaches", "", Tree{"envs/k/Dockerfile": "x", "envs/k/env.toml": "foo=1\nenvironment_name=3"}),
		onBase("env: loose file", "", Tree{"envs/Dockerfile": "x"}),
	}
}

// multis are about envs of several envs.
func multis() []Input {
	multi := func(name, toml string, more Tree) Input {
		return Input{Name: "multi: " + name, Row: "R", Files: Tree{
			"tasks/t.json": resets("m"), "envs/m/env.toml": "type='multi'\n" + toml,
			"envs/a/Dockerfile": "x", "envs/a/env.toml": "environment_name='a'", "envs/b/Dockerfile": "x", "envs/b/env.toml": "environment_name='b'",
			"envs/w/Dockerfile.backend": "x", "envs/w/Dockerfile.frontend": "x", "envs/w/env.toml": "type='website'\nenvironment_name='w'",
		}.with(more)}
	}
	return []Input{
		multi("of servers and a website", "name='all'\nmcp_server_envs=['a','b']\nwebsite_envs=['w']", nil),
		multi("of nothing", "", nil),
		multi("of empty lists", "mcp_server_envs=[]\nwebsite_envs=[]", nil),
		multi("of strings", "mcp_server_envs='a'\nwebsite_envs='w'", nil),
		multi("with bad names", "name='a b'\nmcp_server_envs=['a']", nil),
		multi("with a name of another kind", "name=3\nmcp_server_envs=['a']", nil),
		multi("with an empty name", "name=''\nmcp_server_envs=['a']", nil),
		multi("of wrong types", "mcp_server_envs=['w','m']\nwebsite_envs=['a']", nil),
		multi("of what isn't there", "mcp_server_envs=['nope','A','@local/nope']", nil),
		multi("of wrong shapes", "mcp_server_envs=[3,'',{env='a',x=1},{env='a',version=0}]", nil),
		multi("of pinned ones", "mcp_server_envs=[{env='a',version=1}]", nil),
		multi("of one twice", "mcp_server_envs=['a','a']", nil),
		multi("of two of one name", "mcp_server_envs=['a','c']", Tree{"envs/c/Dockerfile": "x", "envs/c/env.toml": "environment_name='a'"}),
		multi("of a server called like a website's part", "mcp_server_envs=['c']\nwebsite_envs=['w']", Tree{"envs/c/Dockerfile": "x", "envs/c/env.toml": "environment_name='w-website-backend'"}),
		multi("with a Dockerfile and unknown keys", "mcp_server_envs=['a']\nfoo=1\nimage='x'\nenvironment_name='q'", Tree{"envs/m/Dockerfile": "x"}),
		multi("of an env with faults", "mcp_server_envs=['c']", Tree{"envs/c/Dockerfile": "x", "envs/c/env.toml": "foo=1"}),
	}
}

// agents are about folders of agents.
func agents() []Input {
	agent := func(name, row, toml string, more Tree) Input {
		t := Tree{"tasks/t.json": cards("a")}.with(more)
		if toml != "" {
			t["agents/a/agent.toml"] = toml
		}
		return Input{Name: "agent: " + name, Row: row, Files: t}
	}
	docker := Tree{"agents/a/Dockerfile": "FROM scratch"}
	return []Input{
		agent("with a Dockerfile", "", "", docker),
		agent("with everything", "", "type='a2a_agent'\nid='@local/x/a'\n[default_env_vars]\nA='1'\n[metadata]\ndefault_model='m'\nmin_disk_size_gb=1.5\ntakes_credentials=true", docker),
		agent("in an empty folder", "R", "", Tree{"agents/a/": ""}),
		agent("without a Dockerfile", "R", "[metadata]\ndefault_model='m'", nil),
		agent("with a misspelt Dockerfile", "", "", Tree{"agents/a/DOCKERFILE": "x"}),
		agent("with unknown keys", "R", "foo=1\nname='x'", docker),
		agent("with tables of other kinds", "", "default_env_vars=3\nmetadata=[]", docker),
		agent("with values of other kinds", "R", "[default_env_vars]\nA=1\nB=true\nC=['x']", docker),
		agent("with unknown metadata", "R", "[metadata]\nfoo=1\nbar=2", docker),
		agent("with metadata of other kinds", "R", "[metadata]\ndefault_model=3\nmin_disk_size_gb=true\ntakes_credentials='x'", docker),
		agent("with all faults", "R", "foo=1\n[default_env_vars]\nA=1\n[metadata]\nbar=1\nmin_disk_size_gb=true\ndefault_model=3", docker),
		agent("of another type", "R", "type='zz'", docker),
		agent("with an image that isn't there", "", "image='nope'", nil),
		agent("with an image that is a file", "", "image='f'", Tree{"artifacts/f/x": "1"}),
		agent("with a bundle's image", "", "image='i'", Tree{"artifacts/i/Dockerfile": "x"}),
		agent("in another case", "", "", Tree{"agents/A/Dockerfile": "x"}),
		agent("that is a loose file", "", "", Tree{"agents/a": "x"}),
		{Name: "agent: with a pin", Files: docker.with(Tree{"tasks/t.json": task(`{"id":"c","type":"verify_a2a_agent_card","a2a_agent_id":"a","a2a_agent_version":1}`)})},
		onBase("agent: faults that nobody reaches", "", docker.with(Tree{"agents/a/agent.toml": "foo=1\n[metadata]\nbar=1"})),
	}
}

// aliases are about aliases.toml.
func aliases() []Input {
	alias := func(name, text string) Input {
		return onBase("aliases: "+name, "R", Tree{
			"agents/a/Dockerfile": "x", "agents/c/Dockerfile": "x", "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'",
			"envs/m/Dockerfile": "x", "envs/m/env.toml": "id='@local/m'\nenvironment_name='q'", "aliases.toml": text,
		})
	}
	return []Input{
		alias("good", "[agents]\na=['x','y-1']\n[envs]\nk=['x']"),
		alias("empty", ""),
		alias("empty lists", "[agents]\na=[]\n[envs]"),
		alias("unknown tables", "[foo]\nx=[]\n[tasks]\nt=['u']"),
		alias("unknown entities", "[agents]\nnope=['x']\n[envs]\na=['y']"),
		alias("bad words", "[agents]\na=['A','a b','-a','a-','','a_b','"+strings.Repeat("a", 65)+"']"),
		alias("longest word", "[agents]\na=['"+strings.Repeat("a", 64)+"']"),
		alias("other kinds", "[agents]\na='x'\nc=[3]"),
		alias("tables of other kinds", "agents=3\nenvs=['k']"),
		alias("twice in one list", "[agents]\na=['x','x']"),
		alias("twice in one table", "[agents]\na=['x']\nc=['x']"),
		alias("another's name", "[agents]\na=['c']"),
		alias("its own name", "[agents]\na=['a']"),
		alias("of one with its own id", "[envs]\nm=['x']"),
		alias("broken toml", "[["),
		alias("many faults", "[foo]\n[envs]\nnope=['x']\nk=['A',3]\nm=['y']\n[agents]\na='x'\nc=['a']"),
		onBase("aliases: folder", "R", Tree{"aliases.toml/x": "1"}),
		onBase("aliases: another case", "R", Tree{"Aliases.toml": ""}),
		onBase("aliases: both cases", "", Tree{"Aliases.toml": "", "aliases.toml": ""}),
		onBase("aliases: fifo", "", Tree{"aliases.toml": fifo}),
		onBase("aliases: broken link", "", Tree{"aliases.toml": link("nowhere")}),
	}
}
