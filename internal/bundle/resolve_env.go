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

// Types of the documents that have one type each, and of an env.toml that names none.
const (
	envDefault = env.MCPServer
	taskType   = "task"
	evalType   = "eval"
)

func (r *resolver) env(e *Entry) {
	if key, ok := env.Infrastructure(e.Type); ok {
		r.l.Add(e.problem(e.Config.Get("type"), "", "env.type",
			"an env of type %s isn't written from a bundle: config names the one of every deployment (%s); remove the folder", e.Type, key))
		return
	}
	if !slices.Contains(env.Types(), e.Type) {
		r.addedType(e, r.b.options.EnvTypes, codeEnvType, env.Types())
		return
	}
	for _, img := range env.Images(e.Type) {
		if img.Dockerfile == "" { // it may have none
			if docker, _ := find(e.items, dockerfileName); docker == nil && !e.Config.Get(img.Key).Exists() {
				continue
			}
			img.Dockerfile = dockerfileName
		}
		r.image(e, img.Key, img.Dockerfile, img.Suffix)
	}
	for _, x := range env.Refs(e.Type) {
		switch n := e.Config.Get(x.Key); {
		case !x.One:
			r.envList(e, x.Key, x.Type)
		case n.Exists():
			r.reference(e, x.Key, n, ref.Env, x.Type)
		}
	}
}

func (r *resolver) envList(e *Entry, key, typ string) {
	for i, n := range e.Config.Get(key).Items() {
		r.reference(e, fmt.Sprintf("%s[%d]", key, i), n, ref.Env, typ)
	}
}

func (r *resolver) agent(e *Entry) {
	if e.Type != agent.A2A {
		r.l.Add(e.problem(e.Config.Get("type"), "", "agent.type", "%s isn't a known agent type; known is %s", diag.Repr(e.Type), agent.A2A))
		return
	}
	r.image(e, agent.ImageKey, dockerfileName, agent.ImageSuffix)
}

// dockerfileName is the file that an image is built from where nothing names another.
const dockerfileName = "Dockerfile"

// image reads an image key: absent for the folder's Dockerfile, a table that names a file or a registry's image, or a reference to an image artifact.
func (r *resolver) image(e *Entry, key, dockerfile, suffix string) {
	n := e.Config.Get(key)
	img := &image{role: key, id: e.ID + suffix, dockerfile: dockerfile}
	switch {
	case !n.Exists():
	case n.Kind() == doc.Object && n.Len() == 1 && n.Get("dockerfile").Kind() == doc.String:
		img.dockerfile = n.Get("dockerfile").Text()
	case n.Kind() == doc.Object && n.Len() == 1 && n.Get("ref").Kind() == doc.String:
		img.ref = n.Get("ref").Text()
		if why := registryFault(img.ref); why != "" {
			r.l.Add(e.problem(n, key, "image.ref", "%s", why))
			return
		}
	default:
		r.reference(e, key, n, ref.Artifact, artifact.DockerImage)
		return
	}
	if img.ref == "" && !r.dockerfile(e, n, key, img.dockerfile) {
		return
	}
	e.images = append(e.images, img)
}

// dockerfile tells whether an image can be built from a file of the entry's folder.
func (r *resolver) dockerfile(e *Entry, n doc.Node, key, name string) bool {
	it, err := r.b.below(e, name)
	switch {
	case err != nil:
		near := ""
		if _, other := find(e.items, name); other != nil {
			near = "; names are case-sensitive, and there is " + diag.Repr(other.name)
		}
		r.l.Add(e.problem(n, key, "image.dockerfile", "there is no %s in this folder to build%s", diag.Repr(name), near))
	case it.dir:
		r.l.Add(diag.Problem{
			Pos: diag.Pos{File: e.Label + "/" + diag.Clean(name)}, Code: "image.dockerfile", Prefixed: true,
			Summary: "must be a file, not a folder",
		})
	default:
		return true
	}
	return false
}

// below is a file or folder inside an entry's folder, links followed; a name that leads out of the folder is an error.
func (b *Bundle) below(e *Entry, name string) (item, error) {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") || clean == "." {
		return item{}, errOutside
	}
	real, info, err := b.tree.follow(join(e.path, clean))
	if err != nil {
		return item{}, err
	}
	if real != e.path && !strings.HasPrefix(real, e.path+"/") {
		return item{}, errOutside
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return item{}, errSpecial
	}
	return item{name: path.Base(clean), path: real, dir: info.IsDir()}, nil
}

// imageArtifact checks the folder of an image artifact: a Dockerfile, or a reference in its toml, and not both.
func (r *resolver) imageArtifact(e *Entry) {
	fault := func(n doc.Node, format string, args ...any) {
		r.l.Add(e.problem(n, groups[e.Group].config, "image.form", format, args...))
	}
	img := &image{id: e.ID, dockerfile: dockerfileName}
	rn := e.Config.Get("ref")
	docker, _ := find(e.items, dockerfileName)
	if n := e.Config.Get("image"); n.Exists() {
		fault(n, "an image artifact is an image: it takes no image key; write ref for a registry's image, or a Dockerfile")
	}
	text, ok := rn.Str()
	switch {
	case rn.Exists() && !ok:
		fault(rn, "ref must be a string, not %s", doc.Show(rn))
		return
	case rn.Exists() && docker != nil:
		fault(rn, "holds a Dockerfile and names a ref; drop one")
		return
	case !rn.Exists() && docker == nil:
		r.l.Add(e.problem(doc.Node{}, "", "image.form", "an image artifact needs a Dockerfile, or ref in its artifact.toml"))
		return
	case rn.Exists():
		if why := registryFault(text); why != "" {
			fault(rn, "ref: %s", why)
			return
		}
		img.dockerfile, img.ref = "", text
	default:
		if !r.dockerfile(e, doc.Node{}, "", dockerfileName) {
			return
		}
	}
	e.images = append(e.images, img)
}
