package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// BundleType is an env or artifact type of a plugin as bundles know types. The error says what is wrong with its schema.
func BundleType(t plugin.Type) (*bundle.Type, error) {
	out := &bundle.Type{Name: t.Name, Doc: t.Description}
	if len(t.Schema) == 0 || string(t.Schema) == "null" {
		out.Fields.Open = true
	} else {
		s, err := parseSchema(t.Schema, 0)
		if err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", t.Name, err)
		}
		out.Fields = *s
	}
	out.Fields.Fields = slices.DeleteFunc(out.Fields.Fields, func(f doc.Field) bool { return slices.Contains(bundle.ReservedFields(), f.Name) })
	for _, r := range t.Refs {
		out.Refs = append(out.Refs, step.Ref{Path: r.Path, Kind: kinds[r.Kind], Type: r.Type, Version: r.Version})
	}
	return out, nil
}

// Types adds the types of a group that all plugins have, to be made when they are asked for: those of environments or artifacts.
func (p *Plugins) Types(ctx context.Context, group string, set *catalog.Set[*bundle.Type]) {
	fill(ctx, p, group, set, BundleType)
}

// fill adds the types of a group to a set, each made when it is asked for.
func fill[T any](ctx context.Context, p *Plugins, group string, set *catalog.Set[T], convert func(plugin.Type) (T, error)) {
	ctx = context.WithoutCancel(ctx)
	for _, c := range p.Contributions(group) {
		switch {
		case c.Code == dist.CodeBuiltinName:
		case c.Usable():
			set.Later(c.Name, origin(c), func() (T, error) { return made(ctx, p, c, convert) })
		default:
			set.Refuse(c.Name, diag.Clean(c.Registered()))
		}
	}
	for _, i := range p.impls(group) {
		t, err := p.classOf(ctx, entryOf(i.Group, i.Name, i.Value))
		if err != nil {
			continue // no name is known for it: `plugin check` tells
		}
		v, err := convert(t)
		if err != nil {
			set.Refuse(t.Name, diag.Clean(fmt.Sprintf("registered by %s in [%s] of %s but failed to load: %v", i.Value, i.Table, i.File, err)))
			continue
		}
		set.Add(t.Name, p.configured(i), v)
	}
}

// made is a type of a distribution. The error is the reason that messages show in parentheses.
func made[T any](ctx context.Context, p *Plugins, c dist.Contribution, convert func(plugin.Type) (T, error)) (T, error) {
	var none T
	t, err := p.Type(ctx, c)
	if err == nil {
		var v T
		if v, err = convert(t); err == nil {
			return v, nil
		}
	}
	c.Reason = err.Error()
	if _, ok := errors.AsType[*loadError](err); !ok {
		c.Reason = "failed to load: " + c.Reason
	}
	return none, errors.New(diag.Clean(c.Registered()))
}

// serving finds what serves a type of a group.
func (p *Plugins) serving(ctx context.Context, group, name string) (served, error) {
	for _, i := range p.impls(group) {
		e := entryOf(i.Group, i.Name, i.Value)
		if t, err := p.classOf(context.WithoutCancel(ctx), e); err == nil && t.Name == name {
			e.Name = name
			return served{p.python, e, i.Value}, nil
		}
	}
	for _, c := range p.Contributions(group) {
		switch {
		case c.Name != name || c.Code == dist.CodeBuiltinName:
		case !c.Usable():
			return served{}, errors.New(diag.Clean(c.Registered()))
		default:
			server, err := p.Server(c)
			return served{server, entryOf(c.Group, c.Name, c.Value), c.Package + " " + c.Version}, err
		}
	}
	return served{}, fmt.Errorf("no installed plugin has %s, which it was written with", diag.Repr(name))
}

// Serves tells why no plugin serves a type of a group, or nil. No process is started but to ask classes that the configuration names.
func (p *Plugins) Serves(ctx context.Context, group, name string) error {
	_, err := p.serving(ctx, group, name)
	return err
}

// CheckType asks the plugin of a write's type what is wrong with its config. A plugin without checks finds nothing.
func (p *Plugins) CheckType(ctx context.Context, w *bundle.Write) diag.List {
	group, method := plugin.GroupEnvs, plugin.MethodEnvCheck
	files := []plugin.File{}
	if w.Kind == ref.Artifact {
		group, method = plugin.GroupArtifacts, plugin.MethodArtifactCheck
	}
	for _, f := range w.Files {
		files = append(files, plugin.File{Path: f.Path, Size: f.Size})
	}
	fault := func(text string) diag.List {
		return diag.List{{Pos: w.Config.Pos(), Code: "plugin.check", Summary: text}}
	}
	s, err := p.serving(ctx, group, w.Type)
	if err != nil {
		return fault(err.Error())
	}
	config := configOf(w)
	var out plugin.Problems
	err = s.p.Call(ctx, method, &Caller{}, func(call string) any {
		if group == plugin.GroupEnvs {
			return plugin.EnvParams{Call: call, Entry: s.entry, Env: config, Files: files}
		}
		return plugin.ArtifactParams{Call: call, Entry: s.entry, ID: w.ID, Config: config, Files: files}
	}, &out)
	if rpc.CodeOf(err) == rpc.CodeNoMethod {
		return nil
	}
	if err != nil {
		return fault(s.text(err))
	}
	return found(out.Problems, w.Config)
}

// configOf is a write's config as plugins get it: of environments with id and type, as their stored document has them.
func configOf(w *bundle.Write) json.RawMessage {
	m := make(map[string]any, len(w.Fields)+2)
	maps.Copy(m, w.Fields)
	if w.Kind == ref.Env {
		m["id"], m["type"] = w.ID, w.Type
	}
	return doc.Canonical(doc.Build(m))
}

// MakeArtifact has the plugin of a write's type say what is stored of it. put stores the content of a file.
func (p *Plugins) MakeArtifact(
	ctx context.Context, w *bundle.Write, put func(io.Reader) (ref.Digest, int64, error),
) (body map[string]any, files []artifact.Bytes, err error) {
	s, err := p.serving(ctx, plugin.GroupArtifacts, w.Type)
	if err != nil {
		return nil, nil, err
	}
	config := configOf(w)
	scratch, err := p.setup.scratch()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = scratch.Remove() }()
	given := scratch.Dir
	in := make([]plugin.File, len(w.Files))
	modes := map[string]uint32{}
	for i := range w.Files {
		f := &w.Files[i]
		in[i] = plugin.File{Path: f.Path, File: filepath.Join(given, fmt.Sprintf("%04d", i)), Size: f.Size}
		modes[f.Path] = uint32(f.Mode.Perm())
		create := func() (*os.File, error) { return os.OpenFile(in[i].File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
		if err := copyOut(f.Open, create); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", f.Path, err)
		}
	}
	by := &Caller{Log: p.setup.Log}
	var out plugin.Written
	var answered error
	err = s.p.Call(ctx, plugin.MethodArtifactWrite, by, func(call string) any {
		return plugin.ArtifactParams{Call: call, Entry: s.entry, ID: w.ID, Config: config, Files: in}
	}, &out)
	if err != nil {
		return nil, nil, s.failure(ctx, err)
	}
	body, answered = bodyOf(out.Body)
	if answered == nil {
		answered = artifact.CheckAdded(pathsOf(out.Files))
	}
	if answered != nil {
		return nil, nil, s.defectOf("what it writes can't be stored", answered)
	}
	for _, f := range out.Files {
		b, err := keep(f, modes, func(path string) bool { return by.Mine(path) || inside(given, path) }, put)
		if err != nil {
			return nil, nil, s.defectOf("what it writes can't be stored", err)
		}
		files = append(files, b)
	}
	return body, files, nil
}

// bodyOf reads what a plugin has stored of an artifact, without what documents say themselves.
func bodyOf(raw json.RawMessage) (map[string]any, error) {
	n, l := doc.ParseJSON("body", raw)
	if l.HasErrors() || n.Root().Kind() != doc.Object {
		return nil, errors.New("its body is no object")
	}
	out := map[string]any{}
	for name, v := range n.Root().Members() {
		if !slices.Contains(bundle.ReservedFields(), name) && name != artifact.References {
			out[name] = v
		}
	}
	return out, nil
}

func pathsOf(files []plugin.File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Path
	}
	return out
}

// keep stores one file of what a plugin wrote.
func keep(f plugin.File, modes map[string]uint32, mine func(string) bool, put func(io.Reader) (ref.Digest, int64, error)) (artifact.Bytes, error) {
	b := artifact.Bytes{Path: f.Path, Mode: 0o644}
	if m, ok := modes[f.Path]; ok {
		b.Mode = m
	}
	if !mine(f.File) {
		return b, fmt.Errorf("its file %s is neither one that it was given nor below its temporary folder", diag.Repr(f.Path))
	}
	info, err := os.Lstat(f.File)
	if err != nil || !info.Mode().IsRegular() {
		return b, fmt.Errorf("its file %s is no regular file that can be read", diag.Repr(f.Path))
	}
	r, err := os.Open(f.File)
	if err != nil {
		return b, err
	}
	defer r.Close()
	b.Digest, b.Size, err = put(r)
	return b, err
}
