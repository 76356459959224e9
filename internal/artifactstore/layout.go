package artifactstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
)

// longest is how many bytes a name in a folder may have, on every file system that matters.
const longest = 255

// layout is what an artifact holds as Get lays it out: the files of a universe, a skill, a command or a build context by their paths, a file by
// its name, and an environment universe as "<environment>/<file>" and "metadata/<key>/<file>". All faults are in one error; it is
// artifact.ErrNoFiles for what holds no files.
func (l *Library) layout(ctx context.Context, d store.Doc) ([]artifact.Bytes, error) {
	var files []artifact.Bytes
	var err error
	switch d.Type {
	case artifact.File, artifact.FileUniverse:
		files, err = artifact.Files(d.Type, d.Body)
	case artifact.DockerImage:
		files, err = imageFiles(d)
	case artifact.Skill, artifact.CLI, artifact.Environment:
		files, err = l.needed(ctx, d)
	case artifact.EnvironmentUniverse:
		files, err = l.universe(ctx, d)
	default: // a plugin's
		if files, err = artifact.Files(d.Type, d.Body); !errors.Is(err, artifact.ErrNoFiles) {
			break
		}
		return nil, fmt.Errorf("%s is of type %s, which %w", name(d.ID, d.Version), d.Type, artifact.ErrNoFiles)
	}
	if err != nil {
		if _, told := diag.From(err); told {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", name(d.ID, d.Version), err)
	}
	return files, legal(name(d.ID, d.Version), files)
}

func imageFiles(d store.Doc) ([]artifact.Bytes, error) {
	img, err := artifact.ReadImage(d.Body)
	if err == nil && len(img.Files) == 0 {
		err = fmt.Errorf("it is the image %s of a registry and %w", diag.Clean(img.Name), artifact.ErrNoFiles)
	}
	return img.Files, err
}

// needed are the files of the one artifact that d is made of.
func (l *Library) needed(ctx context.Context, d store.Doc) ([]artifact.Bytes, error) {
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return nil, err
	}
	if len(needs) != 1 {
		return nil, errors.New("its document names no files")
	}
	f, err := l.store.Get(ctx, store.Artifact, needs[0].ID, needs[0].Version)
	if err != nil {
		return nil, err
	}
	return artifact.Files(f.Type, f.Body)
}

// universe lays out an environment universe.
func (l *Library) universe(ctx context.Context, d store.Doc) ([]artifact.Bytes, error) {
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return nil, err
	}
	var faults diag.List
	var out []artifact.Bytes
	first := map[string]string{} // the artifact of each environment's name
	for _, n := range needs {
		part, err := l.store.Get(ctx, store.Artifact, n.ID, n.Version)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			faults.Add(fault(d, err.Error()))
			continue
		}
		dir, files := n.As, []artifact.Bytes(nil)
		if n.As == "environment" {
			dir = artifact.EnvironmentName(part.Body)
			if other, twice := first[dir]; twice {
				faults.Add(fault(d, fmt.Sprintf("both %s and %s are for the environment %s: their files would have one place", other, name(n.ID, n.Version), diag.Repr(dir))))
				continue
			}
			first[dir] = name(n.ID, n.Version)
			if dir == "metadata" || strings.HasPrefix(dir, "metadata/") {
				faults.Add(fault(d, fmt.Sprintf("%s is for an environment called %s, and that folder is kept for the universe's metadata", first[dir], diag.Repr(dir))))
				continue
			}
			files, err = l.needed(ctx, part)
		} else {
			files, err = artifact.Files(part.Type, part.Body)
		}
		if err != nil {
			faults.Add(fault(d, fmt.Sprintf("%s: %s", name(n.ID, n.Version), err)))
			continue
		}
		for _, f := range files {
			f.Path = dir + "/" + f.Path
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b artifact.Bytes) int { return cmp.Compare(a.Path, b.Path) })
	return out, faults.Err()
}

func fault(d store.Doc, what string) diag.Problem {
	return diag.Problem{Pos: diag.Pos{File: name(d.ID, d.Version)}, Code: "artifact.layout", Summary: what}
}

// legal refuses paths that can't be laid out: names that no folder can hold, ways out of it, and files where others need a folder. files are
// sorted by path.
func legal(label string, files []artifact.Bytes) error {
	var faults diag.List
	refuse := func(p, why string) {
		faults.Add(diag.Problem{Pos: diag.Pos{File: label}, Code: "artifact.layout", Summary: fmt.Sprintf("%s can't be laid out: %s", diag.Repr(p), why)})
	}
	leaves := make(map[string]bool, len(files))
	for _, f := range files {
		if leaves[f.Path] {
			refuse(f.Path, "two files have this place")
		}
		leaves[f.Path] = true
		for seg := range strings.SplitSeq(f.Path, "/") {
			switch {
			case seg == "" || seg == "." || seg == "..":
				refuse(f.Path, "a part of it is empty, . or ..")
			case len(seg) > longest:
				refuse(f.Path, fmt.Sprintf("a part of it has %d bytes, and a name has at most %d", len(seg), longest))
			case strings.ContainsRune(seg, 0):
				refuse(f.Path, "it holds a NUL byte")
			}
		}
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if leaves[dir] {
				refuse(f.Path, diag.Repr(dir)+" is a file")
			}
		}
	}
	return faults.Err()
}
