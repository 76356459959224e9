package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// dockerfileName is the file that an image is built from where nothing names another.
const dockerfileName = "Dockerfile"

// imageOf reads the document of an image: one of a build context, or with no files one of a registry.
func imageOf(d store.Doc) (artifact.Image, error) {
	if d.Type != artifact.DockerImage {
		return artifact.Image{}, cant("%s is %s and no image", diag.Repr(d.ID), d.Type)
	}
	img, err := artifact.ReadImage(d.Body)
	switch {
	case err != nil:
		return img, cant("%s: %s", diag.Repr(d.ID), err)
	case len(img.Files) == 0 && strings.Contains(img.Name, "/") && !strings.HasPrefix(img.Name, "local/"):
		return img, nil
	case len(img.Files) == 0:
		return img, cant("its image has neither a build context nor a registry to pull it from")
	case !slices.ContainsFunc(img.Files, func(b artifact.Bytes) bool { return b.Path == img.Dockerfile }):
		return img, cant("its build context lacks the file that it is built from, %s", diag.Repr(img.Dockerfile))
	}
	return img, nil
}

// built notes an image that the folder is made with.
func (f *folder) built(key string, d store.Doc, img artifact.Image) {
	i := Image{Folder: f.label, Key: key, ID: d.ID, Version: d.Version, Dockerfile: img.Dockerfile, Files: len(img.Files)}
	if len(img.Files) == 0 {
		i.Dockerfile, i.Ref = "", img.Name
	}
	for _, b := range img.Files {
		i.Bytes += b.Size
	}
	f.images = append(f.images, i)
}

// image sets an image key of an env or agent: an image that belongs to it is built from its folder, any other is named. dockerfile is what an absent
// key stands for, suffix what follows the entity's id in that of an image which belongs to it.
func (f *folder) image(ctx context.Context, key, dockerfile, suffix string, at doc.Node) error {
	p, ok := pinOf(at)
	if !ok {
		return cant("its document names no %s", key)
	}
	if p.ID == f.id+suffix {
		d, a, err := f.x.read(ctx, ref.Artifact, p.ID, p.Version)
		switch {
		case err != nil:
			return err
		case a.why != "":
			return cant("%s", a.why)
		}
		img, err := imageOf(d)
		if err != nil {
			return err
		}
		merged, err := f.merge(img.Files)
		switch {
		case err != nil:
			return err
		case len(img.Files) == 0:
			f.set(key, map[string]any{"ref": img.Name})
		case merged && img.Dockerfile != dockerfile:
			f.set(key, map[string]any{"dockerfile": img.Dockerfile})
		}
		if merged {
			f.built(key, d, img)
			return nil
		}
	}
	v, err := f.reference(ctx, key, ref.Artifact, at, artifact.DockerImage)
	if err == nil {
		f.set(key, v)
	}
	return err
}

// env fills the folder of an environment.
func (f *folder) env(ctx context.Context, d store.Doc, n doc.Node) error {
	if t, ok := f.x.options.Bundle.Added(bundle.Envs, d.Type); ok {
		return f.added(ctx, d, n, t)
	}
	if !slices.Contains([]string{env.MCPServer, env.Website, env.Multi}, d.Type) {
		return cant("its type, %s, has no form in a bundle", diag.Repr(d.Type))
	}
	if d.Type != env.MCPServer {
		f.set("type", d.Type)
	}
	provider := n.Get("env_provider_type").Text()
	if provider != "" && provider != env.ProviderGateway {
		f.set("env_provider_type", provider)
		if provider != env.ProviderServer {
			f.x.need("configuration", provider, "env provider", f.label)
		}
	}
	f.unknown("metadata", n.Get("metadata"), nil)
	if d.Type == env.Multi {
		return f.multi(ctx, n)
	}
	f.set("environment_name", nameOf(n))
	for _, img := range env.Images(d.Type) {
		if err := f.image(ctx, img.Key, img.Dockerfile, img.Suffix, n.Get(strings.TrimSuffix(img.Key, "image")+"docker_image_artifact")); err != nil {
			return err
		}
	}
	return nil
}

// multi fills the folder of several environments behind one gateway.
func (f *folder) multi(ctx context.Context, n doc.Node) error {
	if name := n.Get("name").Text(); name != "" {
		f.set("name", name)
	}
	for _, r := range env.Refs(env.Multi) {
		var list []any
		for i, at := range n.Get(r.Key).Items() {
			v, err := f.reference(ctx, fmt.Sprintf("%s[%d]", r.Key, i), ref.Env, at, r.Type)
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		if len(list) > 0 {
			f.set(r.Key, list)
		}
	}
	return nil
}

// agent fills the folder of an agent.
func (f *folder) agent(ctx context.Context, n doc.Node) error {
	if err := f.image(ctx, agent.ImageKey, dockerfileName, agent.ImageSuffix, n.Get("docker_image_artifact")); err != nil {
		return err
	}
	if vars := n.Get("default_env_vars"); vars.Len() > 0 {
		f.set("default_env_vars", vars)
	}
	known := map[string]bool{}
	for _, field := range agent.Schema().Fields {
		if field.Name == "metadata" {
			for _, m := range field.Type.Fields.Fields {
				known[m.Name] = true
			}
		}
	}
	kept := doc.Build(map[string]any{})
	for name, v := range n.Get("metadata").Members() {
		if known[name] && !v.IsNull() {
			kept = kept.With(name, v)
		}
	}
	f.unknown("metadata", n.Get("metadata"), known)
	if kept.Len() > 0 {
		f.set("metadata", kept)
	}
	return nil
}

// unknown tells of the members of a stored table that a toml has no key for.
func (f *folder) unknown(field string, n doc.Node, known map[string]bool) {
	for name, v := range n.Members() {
		if !known[name] && !v.IsNull() {
			f.leave(f.config()+": "+f.x.masker.shown(field+"."+name), "dropped: %s has no such key", f.config())
		}
	}
}

// need notes a type that the program has from elsewhere.
func (x *exporter) need(by, name, what, where string) {
	for i := range x.report.Needs {
		n := &x.report.Needs[i]
		if n.By == by && n.Name == name && n.What == what {
			if !slices.Contains(n.Where, where) {
				n.Where = append(n.Where, where)
			}
			return
		}
	}
	x.report.Needs = append(x.report.Needs, Need{By: by, Name: name, What: what, Where: []string{where}})
}
