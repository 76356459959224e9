package artifactstore

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Put is something to store. Which fields a type takes is in takes; the others must be empty. A reference to a stored artifact is "id" or
// "id:version"; without a version it pins the latest.
type Put struct {
	Type, ID string
	Paths    []string // files and folders of this machine

	Description     string
	Entrypoint      string   // of a cli: the file that the command runs
	Command         string   // of a cli
	Env             string   // of a cli: the environment that it was made from, as a reference
	Dockerfile      string   // of a build context; "" is Dockerfile
	Ref             string   // a registry's image, in place of a build context
	EnvironmentName string   // of an environment
	File            string   // of an environment: a stored file artifact in place of a path
	Tree            string   // of an environment: a folder that is packed into one file
	Environments    []string // of an environment universe: stored environments, after those of its folder
	Metadata        []string // of an environment universe: "key=path", beside those of its folder
	Members         []string // of a file universe: stored file artifacts in place of paths

	// Progress is told of files that were stored since the last call, and how many there are; from several goroutines. It may be nil.
	Progress func(done, total int)
}

// field is one part of a Put besides its type, id and paths.
type field struct {
	flag string // as people write it
	set  bool
}

func (p Put) fields() []field {
	return []field{
		{"--description", p.Description != ""},
		{"--entrypoint", p.Entrypoint != ""},
		{"--command-name", p.Command != ""},
		{"--env-id", p.Env != ""},
		{"--dockerfile", p.Dockerfile != ""},
		{"--ref", p.Ref != ""},
		{"--environment-name", p.EnvironmentName != ""},
		{"--file", p.File != ""},
		{"--tree", p.Tree != ""},
		{"--environment-artifact", len(p.Environments) > 0},
		{"--metadata", len(p.Metadata) > 0},
		{"--file-artifact", len(p.Members) > 0},
	}
}

// takes are the fields that a type takes.
func takes(typ string) []string {
	switch typ {
	case artifact.File:
		return []string{"--description"}
	case artifact.FileUniverse:
		return []string{"--file-artifact"}
	case artifact.CLI:
		return []string{"--entrypoint", "--command-name", "--env-id"}
	case artifact.DockerImage:
		return []string{"--description", "--dockerfile", "--ref"}
	case artifact.Environment:
		return []string{"--description", "--environment-name", "--file", "--tree"}
	case artifact.EnvironmentUniverse:
		return []string{"--environment-artifact", "--metadata"}
	default:
		return nil
	}
}

// Put stores something as the next version of its id. Everything that is wrong with it is in one error.
func (l *Library) Put(ctx context.Context, p Put) (Stored, error) {
	typ, err := TypeOf(p.Type)
	if err != nil {
		return Stored{}, err
	}
	p.Type = typ
	b := builder{Library: l, Put: p, draft: draft{id: p.ID, typ: typ, progress: p.Progress}}
	defer b.close()
	b.checkID()
	for _, f := range p.fields() {
		if f.set && !slices.Contains(takes(typ), f.flag) {
			b.fault(f.flag, "put.flag", "an artifact of type %s doesn't take it", typ)
		}
	}
	if err := b.build(ctx); err != nil {
		return Stored{}, err
	}
	b.clashes()
	b.draft.files = b.files
	if b.faults.HasErrors() {
		// What the store rules out is told too.
		if _, err := l.check(ctx, b.draft, append([]string{b.draft.id}, artifact.Children(typ, p.ID, paths(b.files))...)); err != nil {
			more, told := diag.From(err)
			if !told {
				return Stored{}, err
			}
			b.faults.Add(more...)
		}
		return Stored{}, b.faults.Err()
	}
	return l.commit(ctx, b.draft)
}

// builder makes a draft of a Put.
type builder struct {
	*Library
	Put
	sources
	draft draft
	temps []func()
}

func (b *builder) close() {
	b.sources.close()
	for _, f := range b.temps {
		f()
	}
}

func (b *builder) checkID() {
	if err := ref.CheckID(b.ID); err != nil {
		b.faults.Add(diag.Problem{Code: "put.id", Summary: err.Error()})
	}
	if ref.IsDerived(b.ID) {
		b.fault(b.ID, "put.id", "%q is kept for the ids of what belongs to an artifact; leave it out of the last part of the id", ref.DerivedMark)
	}
}

func (b *builder) build(ctx context.Context) error {
	switch b.Type {
	case artifact.FileUniverse:
		b.fileUniverse()
	case artifact.Skill:
		b.skill()
	case artifact.CLI:
		b.cli()
	case artifact.DockerImage:
		b.image()
	case artifact.Environment:
		return b.environment(ctx)
	case artifact.EnvironmentUniverse:
		b.universe()
	default:
		b.file()
	}
	return nil
}

// onePath is the one path of a type that takes just one.
func (b *builder) onePath(what string) (string, bool) {
	if len(b.Paths) == 1 {
		return b.Paths[0], true
	}
	have := "got none"
	if len(b.Paths) > 1 {
		have = "got " + strconv.Itoa(len(b.Paths))
	}
	b.faults.Add(diag.Problem{Code: "put.paths", Summary: fmt.Sprintf("an artifact of type %s is put from one %s, and %s", b.Type, what, have)})
	return "", false
}

// oneFolder reads the one folder of a type that takes just one.
func (b *builder) oneFolder() (string, bool) {
	p, ok := b.onePath("folder")
	if ok {
		before := len(b.faults)
		b.folder(p, "")
		if len(paths(b.files)) == 0 && len(b.faults) == before {
			b.fault(p, "put.empty", "there are no files in it to put")
		}
	}
	return p, ok
}

func (b *builder) file() {
	if p, ok := b.onePath("file"); ok {
		b.sources.file(p, base(p))
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, _ artifact.Versions) ([]artifact.Document, error) {
		return []artifact.Document{artifact.NewFile(p, files[0], b.Description)}, nil
	}
}

// fileUniverse puts what a folder holds, or several files and folders under their names, or files that are stored already.
func (b *builder) fileUniverse() {
	switch {
	case len(b.Members) > 0 && len(b.Paths) > 0:
		b.fault("--file-artifact", "put.flag", "a universe is put either from paths or from stored files; leave one out")
	case len(b.Members) > 0:
		b.members()
		return
	case len(b.Paths) == 1 && isFolder(b.Paths[0]):
		b.oneFolder()
	default:
		for _, p := range b.Paths {
			if isFolder(p) {
				b.folder(p, base(p))
			} else {
				b.sources.file(p, base(p))
			}
		}
		if len(paths(b.files)) == 0 && len(b.faults) == 0 {
			b.faults.Add(diag.Problem{Code: "put.empty", Summary: "there are no files to put", Fix: "name files or a folder"})
		}
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, child artifact.Versions) ([]artifact.Document, error) {
		return artifact.NewFileUniverse(p, files, child), nil
	}
}

// members makes a universe of stored files, each under its name.
func (b *builder) members() {
	refs := b.refs("--file-artifact", b.Members)
	read := func(d store.Doc) (artifact.Bytes, error) {
		files, err := artifact.Files(d.Type, d.Body)
		if err != nil || len(files) != 1 {
			return artifact.Bytes{}, fmt.Errorf("%s can't be read as a file: %w", name(d.ID, d.Version), err)
		}
		return files[0], nil
	}
	b.draft.pins = func(ctx context.Context) ([]store.Doc, diag.List, error) {
		docs, l, err := b.resolve(ctx, refs, artifact.File)
		taken := map[string]string{}
		for _, d := range docs {
			f, rerr := read(d)
			if rerr != nil {
				l.Add(diag.Problem{Where: "--file-artifact", Code: "put.ref", Summary: rerr.Error()})
				continue
			}
			if other, twice := taken[f.Path]; twice {
				l.Add(diag.Problem{Where: "--file-artifact", Code: "put.clash", Summary: fmt.Sprintf("%s and %s have the same name, %s", other, name(d.ID, d.Version), diag.Repr(f.Path))})
			}
			taken[f.Path] = name(d.ID, d.Version)
		}
		return docs, l, err
	}
	b.draft.documents = func(p artifact.Pin, _ []artifact.Bytes, pins []store.Doc, _ artifact.Versions) ([]artifact.Document, error) {
		members := make([]artifact.Member, len(pins))
		for i, d := range pins {
			f, err := read(d)
			if err != nil {
				return nil, err
			}
			members[i] = artifact.Member{Bytes: f, Pin: artifact.Pin{ID: d.ID, Version: d.Version}}
		}
		return []artifact.Document{artifact.NewFileUniverseOf(p, members)}, nil
	}
}

func (b *builder) cli() {
	p, ok := b.oneFolder()
	settings := map[string]any{}
	for flag, v := range map[string]string{"command_name": b.Command, "entrypoint": b.Entrypoint} {
		if v != "" {
			settings[flag] = v
		}
	}
	n := doc.Build(settings)
	var l diag.List
	if s, known := artifact.Schema(artifact.CLI); known {
		s.Check(n, "", &l)
	}
	if ok {
		artifact.CheckCLI(n, paths(b.files), &l)
	}
	for _, f := range l {
		f.Pos = diag.Pos{File: diag.Clean(p)}
		b.faults.Add(f)
	}
	var env map[string]any
	if b.Env != "" {
		if refs := b.refs("--env-id", []string{b.Env}); len(refs) == 1 {
			env = map[string]any{"env_id": refs[0].id, "env_version": nil}
			if refs[0].version > 0 {
				env["env_version"] = refs[0].version
			}
		}
	}
	b.draft.documents = func(p artifact.Pin, files []artifact.Bytes, _ []store.Doc, child artifact.Versions) ([]artifact.Document, error) {
		docs := artifact.NewCLI(p, b.Command, b.Entrypoint, files, child)
		maps.Copy(docs[0].Fields, env)
		return docs, nil
	}
}

// storedRef is a reference to something stored.
type storedRef struct {
	flag, text, id string
	version        int // 0: the latest
}

// refs reads "id" and "id:version".
func (b *builder) refs(flag string, texts []string) []storedRef {
	var out []storedRef
	for _, t := range texts {
		id, v, pinned := strings.Cut(t, ":")
		r := storedRef{flag, t, id, 0}
		n, err := strconv.Atoi(v)
		if pinned && (err != nil || n < 1) || id == "" {
			b.fault(flag, "put.ref", "%s is no reference; write ID or ID:VERSION", diag.Repr(t))
			continue
		}
		r.version = n
		out = append(out, r)
	}
	return out
}

// resolve reads the artifacts that references name; what can't be used is a problem, and left out.
func (l *Library) resolve(ctx context.Context, refs []storedRef, typ string) ([]store.Doc, diag.List, error) {
	var out []store.Doc
	var faults diag.List
	for _, r := range refs {
		d, err := Find(ctx, l.store, r.id, r.version)
		if err != nil {
			more, told := diag.From(err)
			if !told {
				return nil, nil, err
			}
			for _, f := range more {
				f.Where = r.flag
				faults.Add(f)
			}
			continue
		}
		if d.Type != typ {
			faults.Add(diag.Problem{Where: r.flag, Code: "put.ref", Summary: fmt.Sprintf("%s is of type %s in the store, and here one of type %s is named", diag.Repr(r.text), d.Type, typ)})
			continue
		}
		out = append(out, d)
	}
	return out, faults, nil
}

// slash joins a folder and a name as problems show them.
func slash(dir, name string) string { return path.Join(strings.TrimSuffix(dir, "/"), name) }
