package bundle

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
)

// imageWrites plans the images that an env or agent is made with, before it.
func (p *planner) imageWrites(e *Entry, w *Write) {
	for _, x := range e.Refs {
		if x.Type == artifact.DockerImage {
			w.pin(p, x, x.field())
		}
	}
	for _, img := range e.images {
		iw := &Write{Bundle: e.bundle.IDRoot, Kind: ref.Artifact, ID: img.id, Label: e.Label}
		p.imageWrite(e, iw, img)
		p.plan.Writes = append(p.plan.Writes, iw)
		w.need(iw)
		w.Pins = append(w.Pins, Pin{Field: img.role, Kind: ref.Artifact, ID: img.id, Type: artifact.DockerImage, Write: iw})
	}
}

// field is the key of a toml that holds a reference: "image" for "image.artifact".
func (x *Reference) field() string {
	end := strings.IndexAny(x.Where, ".[")
	if end < 0 {
		return x.Where
	}
	return x.Where[:end]
}

func (p *planner) agent(e *Entry, w *Write) {
	w.Config = e.authored()
	p.accept(e, agent.Schema(), nil, nil)
	p.imageWrites(e, w)
	w.Fields = map[string]any{"default_env_vars": orEmpty(e.Config.Get("default_env_vars")), "metadata": orEmpty(e.Config.Get("metadata"))}
}

func orEmpty(n doc.Node) doc.Node {
	if n.Kind() != doc.Object {
		return doc.Build(map[string]any{})
	}
	return n
}

func (p *planner) env(e *Entry, w *Write) {
	w.Config = e.authored()
	if t, ok := p.b.options.Added(e.Group, e.Type); ok {
		p.addedEnv(e, w, t)
		return
	}
	if s, ok := env.Schema(e.Type); ok {
		p.accept(e, s, nil, func(n doc.Node, l *diag.List) { env.Check(e.Type, n, p.b.providers(), l) })
	}
	provider := e.text("env_provider_type")
	if provider == "" {
		provider = env.ProviderGateway
	}
	w.Fields = map[string]any{"env_provider_type": provider}
	switch e.Type {
	case env.Computer, env.ComputerApp, env.ComputerDriver:
		p.desktop(e, w)
		return
	case env.Multi:
		for _, x := range e.Refs {
			w.pin(p, x, x.field())
		}
		if name := e.text("name"); name != "" {
			w.Fields["name"] = name
		}
		p.containers(e)
		return
	}
	p.imageWrites(e, w)
	p.processes(e)
	w.Fields["environment_name"] = p.nameOf(e, provider)
}

// providers are the environment providers that are known.
func (b *Bundle) providers() []string {
	return append([]string{env.ProviderGateway, env.ProviderServer}, b.options.EnvProviders...)
}

// nameOf is an env's environment_name: that of its toml, or the one that the sources of its image declare.
func (p *planner) nameOf(e *Entry, provider string) string {
	if n := e.Config.Get("environment_name"); n.Exists() {
		return e.text("environment_name")
	}
	var l diag.List
	fault := func(code, format string, args ...any) {
		l.Add(diag.Problem{Code: code, Summary: fmt.Sprintf(format, args...)})
	}
	names, built := e.bundle.cardNames(e)
	name := ""
	switch {
	case !built:
		fault("env.name", "environment_name isn't set, and the image isn't built from this folder, so there is no source to read it from; set it")
	case len(names) == 0:
		fault("env.name", "environment_name isn't set, and no source of the image declares @environment_card(name=...); set it")
	case len(names) > 1:
		fault("env.name", "environment_name isn't set, and the sources of the image declare %s; set it", count(names))
	default:
		name = names[0]
		env.CheckName(name, provider, doc.Node{}, &l)
	}
	p.inConfig(e, l)
	return name
}

// cardNames are the names that the Python and Go sources of an env's image declare: those beside or below its Dockerfile, or else all of them. It is
// false when the image isn't built from the env's folder.
func (b *Bundle) cardNames(e *Entry) (names []string, built bool) {
	if len(e.images) == 0 || e.images[0].ref != "" {
		return nil, false
	}
	list, _ := b.tree.walk(e.path, nil)
	under := path.Dir(e.images[0].dockerfile)
	read := func(below bool) {
		for _, f := range list {
			namesOf := namesIn(f.name)
			if namesOf == nil || below && under != "." && !strings.HasPrefix(f.rel, under+"/") {
				continue
			}
			src, err := b.tree.read(f.path)
			if err != nil {
				continue
			}
			for _, n := range namesOf(string(src)) {
				if !slices.Contains(names, n) {
					names = append(names, n)
				}
			}
		}
	}
	read(true)
	if len(names) == 0 && under != "." {
		read(false)
	}
	return names, true
}

// namesIn is how names are found in a source file; nil for files that declare none.
func namesIn(file string) func(src string) []string {
	switch {
	case path.Ext(file) == ".py":
		return env.CardNames
	case path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go"):
		return env.GoNames
	default:
		return nil
	}
}

// containers checks that the envs of a multi don't share a container's name.
func (p *planner) containers(e *Entry) {
	taken := map[string]string{}
	for _, x := range e.Refs {
		name := p.serverName(x)
		if name == "" {
			continue
		}
		for _, c := range env.Containers(x.Type, name) {
			if other, ok := taken[c]; ok && other != x.Where {
				p.l.Add(diag.Problem{
					Pos: x.Pos, Where: x.Where, Code: "env.container", Prefixed: true,
					Summary: fmt.Sprintf("its container would be called %s, as that of %s; each env of a multi needs its own", diag.Repr(c), other),
				})
				continue
			}
			taken[c] = x.Where
		}
	}
}

// serverName is the environment_name of a referenced mcp_server or website; "" when it can't be told.
func (p *planner) serverName(x *Reference) string {
	if x.Entry == nil {
		return storedName(p.stored[storedKey{x.Kind, x.ID, x.Version}].Body)
	}
	if name := x.Entry.text("environment_name"); name != "" {
		return name
	}
	if names, _ := x.Entry.bundle.cardNames(x.Entry); len(names) == 1 {
		return names[0]
	}
	return ""
}

// storedName is the environment_name of a stored document, by either of its spellings.
func storedName(body []byte) string {
	t, _ := doc.ParseJSON("", body)
	if name, ok := t.Root().Get("environment_name").Str(); ok {
		return name
	}
	return t.Root().Get("service_name").Text()
}
