package config

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// value is what counts at a path: the variable's, else the file's, else absent.
func (c *Config) value(path ...string) doc.Node {
	for _, s := range sections() {
		if s.whole != "" && below(path, s.path...) {
			if v, ok := c.set(s.whole); ok {
				return at(doc.Build(v), path[len(s.path):]...)
			}
		}
	}
	n := at(c.kept, path...)
	for name, target := range variables() {
		if !below(target, path...) {
			continue
		}
		if v, ok := c.set(name); ok {
			n = with(n, target[len(path):], v)
		}
	}
	return n
}

// with is n with the value at a path below it set.
func with(n doc.Node, path []string, v string) doc.Node {
	if len(path) == 0 {
		return doc.Build(v)
	}
	return n.With(path[0], with(n.Get(path[0]), path[1:], v))
}

// field is the schema's entry at a path; nil where the schema knows nothing or anything goes.
func (c *Config) field(path ...string) *doc.Field {
	s := c.schema
	var f *doc.Field
	for _, name := range path {
		if s == nil {
			return nil
		}
		i := slices.IndexFunc(s.Fields, func(f doc.Field) bool { return f.Name == name })
		if i < 0 {
			return nil
		}
		f = &s.Fields[i]
		s = f.Type.Fields
	}
	return f
}

// table is the table at a path with defaults filled in and references resolved. Its tables by free names stay out: each is resolved by who uses it.
func (c *Config) table(ctx context.Context, secrets Secrets, path ...string) (doc.Node, error) {
	members := map[string]any{}
	for name, v := range c.value(path...).Members() {
		if f := c.field(append(path, name)...); f == nil || !open(&f.Type) {
			members[name] = v
		}
	}
	n := doc.Build(members)
	if f := c.field(path...); f != nil && f.Type.Fields != nil {
		n = f.Type.Fields.Fill(n)
	}
	return c.Resolve(ctx, n, key(path), secrets)
}

// open tells tables of tables by free names.
func open(t *doc.Type) bool {
	return t.Elem != nil && slices.Contains(t.Elem.Kinds, doc.Object)
}

// Class is a class table: what implements something, and its settings with references resolved.
type Class struct {
	Impl   string // Local for the program's own
	Config doc.Node
	Pos    diag.Pos // of the table in the file
}

// class reads the class table at a path.
func (c *Config) class(ctx context.Context, secrets Secrets, local *doc.Schema, path ...string) (Class, error) {
	n := c.value(path...)
	out := Class{Impl: Local, Config: doc.Build(map[string]any{}), Pos: n.Pos()}
	if s, ok := n.Get("impl").Str(); ok {
		out.Impl = s
	}
	if s, ok := n.Str(); ok {
		out.Impl = s
	}
	if t := n.Get("config"); t.Kind() == doc.Object {
		out.Config = t
	}
	if out.Impl == Local && local != nil {
		out.Config = local.Fill(out.Config)
	}
	var err error
	out.Config, err = c.Resolve(ctx, out.Config, key(path), secrets)
	return out, err
}

// SecretStore is how the secret store is set up. It is asked for first: what it opens resolves the references of all other sections.
func (c *Config) SecretStore(ctx context.Context) (Class, error) {
	return c.class(ctx, nil, localSecret(), "stores", "secret")
}

// DocumentStore is how the document store is set up. The local one's config has path.
func (c *Config) DocumentStore(ctx context.Context, secrets Secrets) (Class, error) {
	return c.class(ctx, secrets, localDocument(c.state), "stores", "document")
}

// ObjectStore is how the object store is set up. The local one's config has root and grants.
func (c *Config) ObjectStore(ctx context.Context, secrets Secrets) (Class, error) {
	return c.class(ctx, secrets, localObject(c.state), "stores", "object")
}

// ImageStore is how the image store is set up.
func (c *Config) ImageStore(ctx context.Context, secrets Secrets) (Class, error) {
	return c.class(ctx, secrets, localImage(), "stores", "image")
}

// Runner is what runs tasks. The local one's config has workers.
func (c *Config) Runner(ctx context.Context, secrets Secrets) (Class, error) {
	return c.class(ctx, secrets, localRunner(), "runner")
}

// Workers is how many runs the configured runner drives at once; set tells whether the configuration says so.
func (c *Config) Workers() (n int, set bool) {
	v, ok := c.value("runner", "config", "workers").Int()
	return int(v), ok && v > 0
}

// Model is the model endpoint.
type Model struct {
	BaseURL, APIKey, Default string // "" when not set
	Roles, Headers           map[string]string
	Params                   doc.Node
	Patience                 time.Duration // over all tries of one answer
}

// Model reads [model].
func (c *Config) Model(ctx context.Context, secrets Secrets) (Model, error) {
	n, err := c.table(ctx, secrets, "model")
	patience, _ := n.Get("patience_seconds").Int()
	return Model{
		BaseURL: n.Get("base_url").Text(),
		APIKey:  n.Get("api_key").Text(),
		Default: n.Get("default").Text(),
		Roles:   stringMap(n.Get("roles")),
		Headers: stringMap(n.Get("headers")),
		Params:  n.Get("params"),

		Patience: time.Duration(patience) * time.Second,
	}, err
}

// Judge is how models grade.
type Judge struct {
	Models  []string // a panel; none: the model of the role
	Repeats int
}

// Judge reads [judge].
func (c *Config) Judge(ctx context.Context, secrets Secrets) (Judge, error) {
	n, err := c.table(ctx, secrets, "judge")
	repeats, _ := n.Get("repeats").Int()
	return Judge{Models: stringList(n.Get("models")), Repeats: max(1, int(repeats))}, err
}

// EnvDatabase is the URL of the PostgreSQL server that environments use; "" for none.
func (c *Config) EnvDatabase(ctx context.Context, secrets Secrets) (string, error) {
	n, err := c.table(ctx, secrets, "envs")
	return n.Get("database").Text(), err
}

// Sandbox is where processes run.
type Sandbox struct {
	Default, Agent []string // providers, tried in this order
	Attribution    map[string]string
	Tools, Expose  []string // absolute paths that local sandboxes see, read-only
	PythonIndex    string   // "" is the public one
	NPMRegistry    string   // "" is the public one
	Isolation      string   // the least that local sandboxes must hold
	ImagesCap      int64    // bytes of unpacked images that are kept
	ImagesFloor    int64    // bytes of the disk that images leave free
	Socket         string   // of the engine that docker sandboxes are made in; "" is to be found
	Image          string   // of docker sandboxes that name none
}

// Sandbox reads [sandbox].
func (c *Config) Sandbox(ctx context.Context, secrets Secrets) (Sandbox, error) {
	n, err := c.table(ctx, secrets, "sandbox")
	if err != nil {
		return Sandbox{}, err
	}
	local := c.field("sandbox", "local").Type.Fields.Fill(objectOr(n.Get("local")))
	images := c.field("sandbox", "images").Type.Fields.Fill(objectOr(n.Get("images")))
	mb := func(name string) int64 {
		n, _ := images.Get(name).Int()
		return n << 20
	}
	out := Sandbox{
		ImagesCap:   mb("cap_mb"),
		ImagesFloor: mb("floor_mb"),
		Attribution: stringMap(n.Get("attribution")),
		Tools:       c.paths(local.Get("tools")),
		Expose:      c.paths(local.Get("expose")),
		PythonIndex: local.Get("python_index").Text(),
		NPMRegistry: local.Get("npm_registry").Text(),
		Isolation:   local.Get("isolation").Text(),
		Socket:      n.Get("docker").Get("socket").Text(),
		Image:       n.Get("docker").Get("image").Text(),
	}
	if out.Default, err = chain(n.Get("default").Text()); err != nil {
		return Sandbox{}, fmt.Errorf("sandbox.default: %w", err)
	}
	if out.Agent, err = chain(n.Get("agent_default").Text()); err != nil {
		return Sandbox{}, fmt.Errorf("sandbox.agent_default: %w", err)
	}
	return out, nil
}

// Providers are the names under [sandbox.providers] or [state.providers], sorted; section is "sandbox" or "state".
func (c *Config) Providers(section string) []string {
	var out []string
	for name := range c.value(section, "providers").Members() {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Provider is the class table of one of them. Impl is Local where the table names none: it sets up the built-in of that name.
func (c *Config) Provider(ctx context.Context, section, name string, secrets Secrets) (Class, error) {
	return c.class(ctx, secrets, nil, section, "providers", name)
}

// ProviderImpl is the class that a table of Providers names; Local where it sets up the built-in of its name.
func (c *Config) ProviderImpl(section, name string) string {
	n := c.value(section, "providers", name)
	if n.Kind() == doc.String {
		return n.Text()
	}
	return cmp.Or(n.Get("impl").Text(), Local)
}

// ExplorerImpls are the classes of more routes of the console.
func (c *Config) ExplorerImpls() []string { return stringList(c.value("explorer", "plugins", "impls")) }

// Explorer is the console.
type Explorer struct {
	Port                      int
	CORSOrigins, AllowedHosts []string
	StaticDir                 string // absolute; "" for the built-in pages
	Plugins                   []string
}

// Explorer reads [explorer].
func (c *Config) Explorer(ctx context.Context, secrets Secrets) (Explorer, error) {
	n, err := c.table(ctx, secrets, "explorer")
	port, _ := n.Get("port").Int()
	out := Explorer{
		Port:         int(port),
		CORSOrigins:  stringList(n.Get("cors_origins")),
		AllowedHosts: stringList(n.Get("allowed_hosts")),
		Plugins:      stringList(n.Get("plugins").Get("impls")),
	}
	if d := n.Get("static_dir").Text(); d != "" {
		out.StaticDir = c.Abs(d)
	}
	return out, err
}

// DefaultAgent is the agent of a deploy step that names none.
func (c *Config) DefaultAgent(ctx context.Context, secrets Secrets) (string, error) {
	n, err := c.table(ctx, secrets, "agents")
	return n.Get("default_a2a_agent_id").Text(), err
}

// HumanURL is the address that a human-in-the-loop step waits on; "" when not set.
func (c *Config) HumanURL(ctx context.Context, secrets Secrets) (string, error) {
	n, err := c.table(ctx, secrets, "conversations")
	return n.Get("default_human_a2a_url").Text(), err
}

// AllowUnknownFields turns the refusal of unknown step fields into a warning.
func (c *Config) AllowUnknownFields() bool {
	v, _ := c.value("allow_unknown_fields").Bool()
	return v
}

// Impls are the classes of more types: of "envs", "artifacts" or "task_steps".
func (c *Config) Impls(section string) []string { return stringList(c.value(section, "impls")) }

// TypeAliases are current artifact types by their old names.
func (c *Config) TypeAliases() map[string]string {
	return stringMap(c.value("artifacts", "type_aliases"))
}

// PrivateDownloads lets what a task downloads lie on this machine or in a private network.
func (c *Config) PrivateDownloads() bool {
	v, _ := c.value("artifacts", "private_downloads").Bool()
	return v
}

// Granted tells whether steps may have a secret or a variable of the environment of this name. Nothing is granted unless a trusted file names it:
// a bundle could otherwise ask for whatever its user's environment holds.
func (c *Config) Granted(name string) bool {
	for _, v := range c.value("sandbox", "grants").Items() {
		if v.Text() == name {
			return true
		}
	}
	return false
}

// Plugin is the table of a distribution, by any spelling of its name, with references resolved; an empty table when there is none.
func (c *Config) Plugin(ctx context.Context, dist string, secrets Secrets) (doc.Node, error) {
	for name, v := range c.value("plugins").Members() {
		if canonical(name) == canonical(dist) {
			return c.Resolve(ctx, v, key([]string{"plugins", name}), secrets)
		}
	}
	return doc.Build(map[string]any{}), nil
}

// GitPlugins is [git_plugins] with defaults, without its tables by id.
func (c *Config) GitPlugins(ctx context.Context, secrets Secrets) (doc.Node, error) {
	return c.table(ctx, secrets, "git_plugins")
}

// GitPlugin is a table of one git plugin, `config` or `update_policy`, with references resolved; an empty one when there is none.
func (c *Config) GitPlugin(ctx context.Context, table, id string, secrets Secrets) (doc.Node, error) {
	return c.Resolve(ctx, objectOr(c.value("git_plugins", table, id)), key([]string{"git_plugins", table, id}), secrets)
}

// Delegates are the agents that work may be handed to, by name, references unresolved: pass one to Resolve when it is used.
func (c *Config) Delegates() doc.Node { return objectOr(c.value("delegates")) }

// Project is a folder that agents work on.
type Project struct {
	Name, Path, GitHub string // Path is absolute
	Write              bool
}

// Projects reads [[projects]].
func (c *Config) Projects() []Project {
	var out []Project
	for _, n := range c.value("projects").Items() {
		w, _ := n.Get("write").Bool()
		out = append(out, Project{Name: n.Get("name").Text(), Path: c.Abs(n.Get("path").Text()), GitHub: n.Get("github").Text(), Write: w})
	}
	return out
}

func (c *Config) paths(n doc.Node) []string {
	out := stringList(n)
	for i := range out {
		out[i] = c.Abs(out[i])
	}
	return out
}

func objectOr(n doc.Node) doc.Node {
	if n.Kind() != doc.Object {
		return doc.Build(map[string]any{})
	}
	return n
}

func stringList(n doc.Node) []string {
	var out []string
	for _, v := range n.Items() {
		if s, ok := v.Str(); ok {
			out = append(out, s)
		}
	}
	return out
}

func stringMap(n doc.Node) map[string]string {
	out := map[string]string{}
	for name, v := range n.Members() {
		if s, ok := v.Str(); ok {
			out[name] = s
		}
	}
	return out
}
