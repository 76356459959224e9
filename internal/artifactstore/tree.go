package artifactstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
)

// PackTree packs a folder into one file that is loaded as the files in it: a zip with sorted names, fixed times and mode bits, so that equal
// folders make equal bytes. Links stay links, and what file managers leave behind is left out. A folder that holds something else than files,
// folders and links, or no file, is a refusal.
func PackTree(ctx context.Context, dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return refusal("tree.read", diag.Clean(dir)+": "+reason(err), "")
	}
	defer root.Close()
	report, err := archive.Pack(ctx, w, root, archive.PackOptions{
		Format: archive.Zip, Skip: func(name string, _ bool) bool { return bundle.Leaving(path.Base(name)) },
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", diag.Clean(dir), err)
	}
	var l diag.List
	for _, r := range report.Refused {
		l.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(filepath.Join(dir, r.Name))}, Code: "tree.special", Summary: r.Why, Fix: "remove it"})
	}
	if report.Files == 0 && len(l) == 0 {
		l.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(dir)}, Code: "tree.empty", Summary: "there are no files in it to pack"})
	}
	return l.Err()
}

// PackTreeFile is PackTree into a file, which appears whole. One that exists is replaced with force alone.
func PackTreeFile(ctx context.Context, dir, file string, force bool) error {
	var l diag.List
	if !strings.HasSuffix(file, ".zip") {
		l.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(file)}, Code: "tree.name", Summary: "a packed tree is known by its name; end it with .tree.zip"})
	}
	if inside(dir, file) {
		l.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(file)}, Code: "tree.inside", Summary: "this is in the folder that is packed; write it elsewhere"})
	}
	if err := l.Err(); err != nil {
		return err
	}
	write := atomicfile.Create
	if force {
		write = atomicfile.Write
	}
	err := write(file, 0o666, func(w io.Writer) error { return PackTree(ctx, dir, w) })
	if errors.Is(err, fs.ErrExist) {
		return refusal("artifact.exists", diag.Clean(file)+" exists already", "name another file, or replace it with --force")
	}
	if l, told := diag.From(err); told {
		return l.Err()
	}
	return err
}

// inside tells whether a file would lie in a folder.
func inside(dir, file string) bool {
	d, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return false
	}
	d, derr := filepath.Abs(d)
	parent, perr := filepath.Abs(parent)
	rel, rerr := filepath.Rel(d, parent)
	return derr == nil && perr == nil && rerr == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
