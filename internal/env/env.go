// Package env holds what an env.toml may say: the types of environments, their keys and the rules that need no store and no sources. It is pure.
//
// What a key references (an image, another environment) is resolved by internal/bundle; here stand only the keys: Images and Refs.
package env

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Types of environments.
const (
	MCPServer      = "mcp_server"      // one server; the type of an env.toml that names none
	Website        = "website"         // a backend and a frontend
	Multi          = "multi"           // several of both behind one gateway
	Computer       = "computer"        // a desktop: a driver and apps
	ComputerApp    = "computer_app"    // a program on it with data of its own
	ComputerDriver = "computer_driver" // what captures the screen and sends input
)

// Types are those that a bundle may write, sorted.
func Types() []string {
	return []string{Computer, ComputerApp, ComputerDriver, MCPServer, Multi, Website}
}

// Infrastructure tells whether typ is one that no bundle writes because deployments bring their own, and which config key names it.
func Infrastructure(typ string) (key string, ok bool) {
	switch typ {
	case "gateway_server":
		return "default_gateway_env_id", true
	case "service_db":
		return "default_service_db_env_id", true
	default:
		return "", false
	}
}

// Providers of environments that are built in.
const (
	ProviderGateway = "gateway" // a gateway in front; the default
	ProviderServer  = "server"  // one server alone
)

// Reserved are the names that a gateway deployment's own containers have.
func Reserved() []string {
	return []string{"db-mcp", "gateway", "pgweb", "servicedb", "website-browser"}
}

// Image is a key that says which image a container of the environment is made of.
type Image struct {
	Key        string // in env.toml
	Dockerfile string // of the folder, where the key is absent; "": its Dockerfile where it has one, else it has no image
	Suffix     string // of the image's id, after the environment's
}

// Images are the image keys of a type.
func Images(typ string) []Image {
	switch typ {
	case MCPServer:
		return []Image{{"image", "Dockerfile", "__env_image"}}
	case Website:
		return []Image{{"backend_image", "Dockerfile.backend", "__backend_image"}, {"frontend_image", "Dockerfile.frontend", "__frontend_image"}}
	case Computer:
		return []Image{{"image", "", "__env_image"}}
	default:
		return nil
	}
}

// Ref is a key that holds references to environments.
type Ref struct {
	Key  string
	Type string // the type that they must have
	One  bool   // it holds one, and may be absent
}

// Refs are the reference keys of a type.
func Refs(typ string) []Ref {
	switch typ {
	case Multi:
		return []Ref{{"mcp_server_envs", MCPServer, false}, {"website_envs", Website, false}}
	case Computer:
		return []Ref{{"driver", ComputerDriver, true}, {"apps", ComputerApp, false}}
	default:
		return nil
	}
}

// Schema is the strict schema of an env.toml of a type. Image keys and the elements of reference keys take any value: their forms are
// checked where they are resolved.
func Schema(typ string) (*doc.Schema, bool) {
	text := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true}
	anyList := doc.Type{Kinds: []doc.Kind{doc.Array}}
	fields := []doc.Field{
		{Name: "type", Type: text, Doc: "type of environment"},
		{Name: "id", Type: text, Doc: "id; absent: that of its folder"},
	}
	add := func(name string, t doc.Type, help string) {
		fields = append(fields, doc.Field{Name: name, Type: t, Doc: help})
	}
	for _, i := range Images(typ) {
		if i.Dockerfile != "" {
			add(i.Key, doc.Type{}, "image; absent: the folder's "+i.Dockerfile)
		}
	}
	switch typ {
	case MCPServer, Website:
		add("environment_name", text, "name of the server; absent: that of its card in the sources")
		add("env_provider_type", text, "what deploys it; absent: gateway")
	case Multi:
		add("mcp_server_envs", anyList, "environments of type mcp_server")
		add("website_envs", anyList, "environments of type website")
		add("name", doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: noSpace}, "name of the gateway's MCP server")
		add("env_provider_type", text, "what deploys it; absent: gateway")
	case Computer, ComputerApp, ComputerDriver:
		fields = append(fields, desktopFields(typ)...)
	default:
		return nil, false
	}
	return &doc.Schema{Fields: fields}, true
}

func noSpace(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); strings.ContainsFunc(s, unicode.IsSpace) {
		fault(l, n, "", "env.name", "must hold no white space, not %s", diag.Repr(s))
	}
}

func isModule(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if _, _, ok := Module(s); !ok {
		fault(l, n, "", "env.module", "must be a file of the folder and a class, such as driver.py:Driver, not %s", diag.Repr(s))
	}
}

// Module splits a driver's module into the file, relative to the env's folder, and the class.
func Module(s string) (file, class string, ok bool) {
	file, class, ok = strings.Cut(s, ":")
	ok = ok && identifier(class) && file != "" && !strings.HasPrefix(file, "/") && !slices.Contains(strings.Split(file, "/"), "..")
	return file, class, ok
}

// Check adds what the rules across keys find in an env.toml whose keys have the right types. providers are all that are known.
func Check(typ string, n doc.Node, providers []string, l *diag.List) {
	provider := ProviderGateway
	if p, ok := n.Get("env_provider_type").Str(); ok {
		provider = p
	}
	at := n.Get("env_provider_type")
	switch {
	case Desktop(typ):
		checkDesktop(typ, n, l)
		if typ != Computer {
			return
		}
		if provider != ProviderGateway {
			fault(l, at, "env_provider_type", "env.provider.type", "%s deploys no computer; use gateway", diag.Clean(provider))
		}
	case typ != MCPServer && typ != Website && typ != Multi:
		return
	case !slices.Contains(providers, provider):
		what := "%s is not a known environment provider"
		if near := diag.Nearest(provider, providers); near != "" {
			what += "; did you mean " + diag.Repr(near) + "?"
		}
		fault(l, at, "env_provider_type", "env.provider.unknown", what, diag.Repr(provider))
	case provider == ProviderServer && typ != MCPServer:
		fault(l, at, "env_provider_type", "env.provider.type", "server deploys one mcp_server alone, no %s; use gateway", typ)
	}
	if name, ok := n.Get("environment_name").Str(); ok {
		CheckName(name, provider, n.Get("environment_name"), l)
	}
	if typ == Multi && n.Get("mcp_server_envs").Len()+n.Get("website_envs").Len() == 0 {
		fault(l, n, "", "env.multi.empty", "needs an environment; name one in mcp_server_envs or website_envs")
	}
}

// Unroutable tells whether a name can't be part of a gateway's addresses, and so not that of an environment behind one.
func Unroutable(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune("/?#%", r) || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// CheckName refuses an environment name that a gateway deployment can't have, whether n says it or its sources do.
func CheckName(name, provider string, n doc.Node, l *diag.List) {
	if provider != ProviderGateway {
		return
	}
	if Unroutable(name) {
		fault(l, n, "environment_name", "env.name.route", "%s can't be the name of an environment behind a gateway, which is part of its addresses: no spaces, /, ?, # or %%", diag.Repr(name))
	}
	if slices.Contains(Reserved(), name) {
		fault(l, n, "environment_name", "env.name.reserved", "%s is a container of every gateway; names taken: %s", diag.Repr(name), strings.Join(Reserved(), ", "))
	}
}

// Containers are the names that the containers of one environment get in a deployment. They are unique in a multi.
func Containers(typ, name string) []string {
	if typ == Website {
		return []string{name + "-website-backend", name + "-website-frontend"}
	}
	return []string{name}
}

func fault(l *diag.List, n doc.Node, where, code, format string, args ...any) {
	l.Add(diag.Problem{Pos: n.KeyPos(), Where: where, Code: code, Summary: fmt.Sprintf(format, args...)})
}
