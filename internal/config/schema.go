package config

import (
	"path/filepath"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// section is one part of the configuration, as reports list them.
type section struct {
	name string
	path []string
	// whole is the variable that replaces the section by an alias.
	whole string
}

// sections are in the order of reports. Tables under [plugins] are listed apart.
func sections() []section {
	return []section{
		{"document", []string{"stores", "document"}, "AGENT_ENV_DOCUMENT_STORE"},
		{"object", []string{"stores", "object"}, "AGENT_ENV_OBJECT_STORE"},
		{"image", []string{"stores", "image"}, "AGENT_ENV_IMAGE_STORE"},
		{"secret", []string{"stores", "secret"}, "AGENT_ENV_SECRET_STORE"},
		{"runner", []string{"runner"}, "AGENT_ENV_RUNNER"},
		{"model", []string{"model"}, ""},
		{"conversations", []string{"conversations"}, ""},
		{"agents", []string{"agents"}, ""},
		{"sandbox", []string{"sandbox"}, ""},
		{"state", []string{"state"}, ""},
		{"envs", []string{"envs"}, ""},
		{"artifacts", []string{"artifacts"}, ""},
		{"task_steps", []string{"task_steps"}, ""},
		{"explorer", []string{"explorer"}, ""},
		{"git_plugins", []string{"git_plugins"}, ""},
		{"mcp", []string{"mcp"}, ""},
		{"delegates", []string{"delegates"}, ""},
		{"projects", []string{"projects"}, ""},
		{"allow_unknown_fields", []string{"allow_unknown_fields"}, ""},
	}
}

// variables set one key each, over the file.
func variables() map[string][]string {
	return map[string][]string{
		"LITELLM_API_KEY":         {"model", "api_key"},
		"LITELLM_BASE_URL":        {"model", "base_url"},
		"AGENT_ENV_HUMAN_A2A_URL": {"conversations", "default_human_a2a_url"},
	}
}

// Local is the name of what comes with the program: a store, a runner, a sandbox provider.
const Local = "local"

func str(d string) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}, Doc: d}
}

func flag(d string) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Bool}}, Doc: d, Default: false}
}

// free is a table whose members nobody here knows.
func free(d string) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Object}}, Doc: d}
}

func strs(d string) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}}, Doc: d}
}

// table is a table of strings by free names.
func table(d string) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &doc.Type{Kinds: []doc.Kind{doc.String}}}, Doc: d}
}

func whole(d string, least, most float64) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Int}, Min: &least, Max: &most}, Doc: d}
}

func group(d string, fields ...doc.Field) doc.Field {
	return doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: fields}}, Doc: d}
}

func of(name string, f doc.Field) doc.Field {
	f.Name = name
	return f
}

func choice(f doc.Field, words ...string) doc.Field {
	f.Type.OneOf = words
	return f
}

func given(f doc.Field, def any) doc.Field {
	f.Default = def
	return f
}

// class is a table that names what implements it. The keys of `config` are known where the program's own class is meant.
func class(d string, local *doc.Schema) doc.Field {
	if local != nil {
		hideValues(local)
	}
	return doc.Field{Doc: d, Default: Local, Type: doc.Type{
		Kinds: []doc.Kind{doc.String, doc.Object},
		Fields: &doc.Schema{Open: true, Fields: []doc.Field{
			of("impl", str("what implements it; the program's own when left out")),
			of("config", free("its settings")),
		}},
		Check: classCheck(local),
	}}
}

// registered is a table of classes by name, each a string or a class table.
func registered(d string) doc.Field {
	elem := class("", nil).Type
	table := elem.Check
	elem.Check = func(n doc.Node, l *diag.List) {
		if n.Kind() == doc.Object { // a string is a class here
			table(n, l)
		}
	}
	return doc.Field{Doc: d, Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &elem}}
}

// newSchema is every table and key. state is the state root, for defaults.
func newSchema(state string) *doc.Schema {
	s := &doc.Schema{Fields: []doc.Field{
		of("stores", group("where things are kept",
			of("document", class("documents", localDocument(state))),
			of("object", class("bytes", localObject(state))),
			of("image", class("container images", localImage())),
			of("secret", class("secrets", localSecret())))),
		of("runner", class("what runs tasks", localRunner())),
		of("model", modelTable()),
		of("judge", group("models that grade",
			of("models", strs("they all grade, where a run names none of its own")),
			of("repeats", given(whole("how often each is asked", 1, 32), 1)))),
		of("conversations", group("questions to people",
			of("default_human_a2a_url", str("the address that a human-in-the-loop step waits on")))),
		of("agents", group("agents",
			of("default_a2a_agent_id", given(str("the agent of a deploy step that names none"), "@local/agentenv-framework/agents/loop")))),
		of("sandbox", sandboxTable()),
		of("state", group("providers of state", of("providers", registered("by name")))),
		of("envs", group("environments",
			of("impls", strs("classes of more types")),
			of("database", str("URL of a PostgreSQL server in which each environment gets a schema; a file in its sandbox when left out")))),
		of("artifacts", group("artifact types",
			of("impls", strs("classes of more types")),
			of("type_aliases", aliases()),
			of("private_downloads", flag("load_artifact may download from this machine and from private networks")))),
		of("task_steps", group("step types", of("impls", strs("classes of more types")))),
		of("explorer", explorerTable()),
		of("git_plugins", gitPluginsTable()),
		of("mcp", mcpTable()),
		of("delegates", doc.Field{Doc: "agents that work may be handed to, by name", Type: doc.Type{
			Kinds: []doc.Kind{doc.Object},
			Elem:  &doc.Type{Kinds: []doc.Kind{doc.Object}},
		}}),
		of("projects", projectsTable()),
		of("allow_unknown_fields", flag("unknown step fields are warnings")),
		of("plugins", doc.Field{Doc: "settings of plugins, by distribution", Type: doc.Type{
			Kinds: []doc.Kind{doc.Object},
			Elem:  &doc.Type{Kinds: []doc.Kind{doc.Object}}, Check: checkPlugins,
		}}),
	}}
	hideValues(s)
	return s
}

// hideValues keeps values out of problems: where a secret stands by mistake can't be known. Words to choose from are no secrets.
func hideValues(s *doc.Schema) {
	for i := range s.Fields {
		hideType(&s.Fields[i].Type)
	}
}

func hideType(t *doc.Type) {
	t.Secret = len(t.OneOf) == 0
	if t.Elem != nil {
		hideType(t.Elem)
	}
	if t.Fields != nil {
		hideValues(t.Fields)
	}
}

func localDocument(state string) *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{
		of("path", given(str("the folder of documents, runs and small objects"), filepath.Join(state, "store"))),
	}}
}

func localObject(state string) *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{
		of("root", given(str("the folder of large objects; it is that of the documents, since one transaction names both"), filepath.Join(state, "store"))),
		of("grants", given(choice(str("hand out transfer links"), "auto", "off"), "auto")),
		of("grant_bind_host", str("the address that transfer links listen on")),
		of("grant_advertise_host", str("the host that transfer links name")),
		of("grant_lifetime_seconds", given(whole("how long a transfer link lives", 900, 604800), 43200)),
	}}
}

func localImage() *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{
		of("registry_host", given(str("the registry"), "localhost:5000")),
		of("repository_prefix", given(doc.Field{Type: doc.Type{Kinds: []doc.Kind{doc.String}}, Doc: "put before every repository"}, "")),
		of("credentials", free("how to sign in: impl and its keys")),
	}}
}

func localSecret() *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{
		of("values", doc.Field{Doc: "secrets by key", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &doc.Type{Kinds: []doc.Kind{doc.String}}}}),
		of("file_path", str("a flat YAML or JSON file of secrets")),
		of("use_env", given(flag("look keys up in the environment too"), true)),
	}}
}

func localRunner() *doc.Schema {
	return &doc.Schema{Fields: []doc.Field{of("workers", given(whole("tasks at one time", 1, 1024), 2))}}
}

func modelTable() doc.Field {
	return group("the model endpoint",
		of("base_url", str("its address")),
		of("api_key", str("its key")),
		of("default", str("the model when nothing else names one")),
		of("roles", table("model by role")),
		of("patience_seconds", whole("how long one answer is asked for, all tries together; 600 when not set", 1, 24*3600)),
		of("params", doc.Field{Doc: "more arguments of every call", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Check: checkParams}}),
		of("headers", doc.Field{Doc: "sent to the configured endpoint alone", Type: doc.Type{
			Kinds: []doc.Kind{doc.Object},
			Elem:  &doc.Type{Kinds: []doc.Kind{doc.String}}, Check: checkHeaders,
		}}),
	)
}

func sandboxTable() doc.Field {
	chain := func(d string) doc.Field {
		f := given(str(d), "local,docker")
		f.Type.Check = checkChain
		return f
	}
	return group("where processes run",
		of("default", chain("providers for envs, tried in this order")),
		of("agent_default", chain("providers for agents, tried in this order")),
		of("attribution", table("cost labels")),
		of("providers", registered("more providers, by name")),
		of("grants", strs("names that steps may have by secret:NAME and env:NAME")),
		of("local", group("sandboxes of this machine",
			of("tools", strs("folders of tool chains that sandboxes see, read-only")),
			of("expose", strs("other paths that sandboxes see, read-only")),
			of("python_index", str("URL of the index that Python packages of environments and agents come from; https://pypi.org/simple when left out")),
			of("npm_registry", str("URL of the registry that agents' Node packages come from; https://registry.npmjs.org when left out")),
			of("isolation", given(choice(str("the least that must hold"), "namespaces", "none"), "namespaces")))),
		of("images", group("images that local sandboxes start from",
			of("cap_mb", given(whole("unpacked images are kept up to this size; those used longest ago go first", 1, 1<<40), 51200)),
			of("floor_mb", given(whole("the disk's room below which nothing is unpacked or started from an image", 0, 1<<40), 1024)))),
		of("docker", group("sandboxes of a Docker or Podman engine",
			of("socket", str("the engine's socket; the one that DOCKER_HOST or the usual places lead to without it")),
			of("image", str("the image of sandboxes that name none")))),
	)
}

func aliases() doc.Field {
	f := table("current type by its old name")
	f.Type.Check = checkAliases
	return f
}

func explorerTable() doc.Field {
	origins := strs("origins whose pages may call the console")
	origins.Type.Check = checkOrigins
	return group("the console",
		of("port", given(whole("the port on 127.0.0.1", 1, 65535), 8234)),
		of("cors_origins", origins),
		of("allowed_hosts", strs("more host names that requests may carry")),
		of("static_dir", str("a folder of pages to serve")),
		of("plugins", group("more routes", of("impls", strs("classes of them")))),
	)
}

func gitPluginsTable() doc.Field {
	policy := group("",
		of("track", str("the branch or tag that updates follow")),
		of("when", str("when an update may be taken")))
	return group("git plugins",
		of("enabled", strs("ids that are on")),
		of("disabled", strs("ids that are off")),
		of("sources", group("where plugins may come from",
			of("allow", strs("patterns; an empty list allows none")),
			of("official", strs("patterns that need no consent")),
			of("acked", strs("sources that were consented to: each spelled as a source is that repository alone, and others are patterns")),
			of("acked_plans", strs("what was consented to of one source alone: a digest, a space and the source")),
			of("plain_http", flag("http:// may be used, which is not encrypted")),
			of("files", given(flag("repositories of this machine may be used"), true)),
			of("mirror", str("a folder, by its absolute path, or an https address, that plugin vendor has filled: it is asked before any source")),
			of("require_signature", flag("refuse what is not signed")))),
		of("trust_unverified", flag("ask no consent")),
		of("env_grants", strs("variables of the environment that plugin bundles may read while a workspace is made from them")),
		of("allow_unbundled_deps", flag("let plugins install packages")),
		of("update_policy", doc.Field{Doc: "by id", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &policy.Type}}),
		of("autoupdate_interval_hours", given(whole("0 is off", 0, 8760), 6)),
		of("config", doc.Field{Doc: "settings by id", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &doc.Type{Kinds: []doc.Kind{doc.Object}}}}),
	)
}

func mcpTable() doc.Field {
	one := group("",
		of("name", required(str("its name"))),
		of("transport", choice(str("how it is spoken to; stdio where it has a command"), "stdio", "http", "streamable_http", "sse")),
		of("command", str("the program that serves on its standard streams")),
		of("args", strs("its arguments")),
		of("env", table("its environment, beside PATH and HOME")),
		of("url", str("where it is served")),
		of("headers", table("sent with every request")),
		of("description", str("what it is for")),
		of("enabled", given(flag("it is used"), true)))
	one.Type.Check = checkServer
	return group("MCP servers of a workspace's agent",
		of("enabled", given(flag("they are used"), true)),
		of("servers", doc.Field{Doc: "each with a name of its own", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &one.Type, Check: checkServers}}),
	)
}

func projectsTable() doc.Field {
	one := group("",
		of("name", required(str("its name"))),
		of("path", required(str("its folder"))),
		of("github", str("owner/name")),
		of("write", flag("agents may change it")))
	return doc.Field{Doc: "folders that agents work on", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &one.Type}}
}

func required(f doc.Field) doc.Field {
	f.Required = true
	return f
}
