package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

func newCopy(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "cp SANDBOX:PATH TARGET | SOURCE SANDBOX:PATH",
		Short: "Copy a file or a folder into a sandbox or out of one",
		Long: `Copies a file, or a folder with all in it, as cp -r does: into the target when that is a folder, else in its name. Modes, links, times and empty folders are
kept, and so are all names. What comes out of a sandbox is unpacked with care: links that lead outside the copied folder, and names that could do harm, are left out and
told of, one by one. A target that has no sandbox's name before a colon is a path of this machine; put ./ before one that has a colon.`,
		Example: "  agent-env sandbox cp ./data try:/root/data\n  agent-env sandbox cp try:/root/result.json .",
		Args:    verb.Args("SOURCE", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return copyFiles(cmd.Context(), p, args[0], args[1], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// copied is what --json prints.
type copied struct {
	verb.Format
	Sandbox string            `json:"sandbox_id"`
	Target  string            `json:"target"` // what was made or replaced
	Files   int               `json:"files"`
	Dirs    int               `json:"dirs"`
	Links   int               `json:"links"`
	Bytes   int64             `json:"bytes"`
	LeftOut []archive.Refused `json:"left_out,omitempty"`
}

// boxed splits SANDBOX:PATH. A path of this machine has no colon before its first slash.
func boxed(text string) (box, name string, ok bool) {
	box, name, ok = strings.Cut(text, ":")
	return box, name, ok && box != "" && name != "" && !strings.Contains(box, "/") && box != "." && box != ".."
}

func copyFiles(ctx context.Context, p *verb.Program, source, target string, asJSON bool) error {
	from, fromPath, out := boxed(source)
	to, toPath, in := boxed(target)
	if in == out {
		return verb.Usagef("one of the two is SANDBOX:PATH, and the other a path of this machine")
	}
	if in {
		from = to
	}
	_, info, box, err := connect(ctx, p, from)
	if err != nil {
		return err
	}
	defer box.Close()
	res := copied{Format: verb.V1(), Sandbox: info.ID}
	if in {
		err = upload(ctx, box, source, toPath, &res)
	} else {
		err = download(ctx, box, fromPath, target, &res)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = p.Streams.JSON(res)
	} else {
		p.Streams.Note("Copied %s, %s.", diag.Count(res.Files, "file"), term.Size(res.Bytes))
		for _, r := range res.LeftOut {
			p.Streams.Note("Left out %s", term.Clean(r.String()))
		}
	}
	if n := len(res.LeftOut); err == nil && n > 0 {
		return fmt.Errorf("%s left out", diag.Count(n, "file"))
	}
	return err
}

func (c *copied) count(r archive.Report) {
	c.Files, c.Dirs, c.Links, c.Bytes, c.LeftOut = r.Files, r.Dirs, r.Links, r.Bytes, r.Refused
}

// upload copies a file or a folder of this machine to a path of the box.
func upload(ctx context.Context, box guest.Box, source, target string, res *copied) error {
	full, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	src, err := os.Stat(full)
	if err != nil {
		return err
	}
	if target, err = inside(ctx, box, target, filepath.Base(full), src.IsDir()); err != nil {
		return err
	}
	res.Target = target
	if !src.IsDir() {
		if !src.Mode().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a folder", source)
		}
		f, err := os.Open(full)
		if err != nil {
			return err
		}
		defer f.Close()
		if src, err = f.Stat(); err != nil {
			return err
		}
		res.Files, res.Bytes = 1, src.Size()
		return guest.Put(ctx, box, path.Dir(target), []guest.PutFile{{
			Path: path.Base(target), Mode: src.Mode(), Size: src.Size(), Open: func() (io.ReadCloser, error) { return io.NopCloser(f), nil },
		}})
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		report, err := archive.Pack(ctx, w, root, archive.PackOptions{Format: archive.Tar, KeepSetuid: true, Xattrs: true, Times: true})
		res.count(report)
		w.CloseWithError(err)
		packed <- err
	}()
	err = box.Extract(ctx, target, r)
	r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return err
}

// inside is where a source of the name base goes in the box.
func inside(ctx context.Context, box guest.Box, target, base string, dir bool) (string, error) {
	if !path.IsAbs(target) {
		target = path.Join("/root", target) + strings.Repeat("/", strings.Count(target[len(target)-1:], "/"))
	}
	info, err := box.Stat(ctx, target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if strings.HasSuffix(target, "/") {
			return path.Join(target, base), nil
		}
		return path.Clean(target), nil
	case err != nil:
		return "", err
	case info.IsDir():
		return path.Join(target, base), nil
	case dir:
		return "", fmt.Errorf("%s is a file of the sandbox, and the source is a folder", target)
	}
	return path.Clean(target), nil
}

// Bounds of what comes out of a sandbox. Its disk holds less, but files may have holes.
const (
	maxCopyBytes   = 64 << 30
	maxCopyEntries = 10_000_000
	maxCopyDepth   = 1000
)

// download copies a file or a folder of the box to a path of this machine.
func download(ctx context.Context, box guest.Box, source, target string, res *copied) error {
	if !path.IsAbs(source) {
		source = path.Join("/root", source)
	}
	info, err := box.Stat(ctx, source)
	if err != nil {
		return err
	}
	full, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	base := path.Base(path.Clean(source))
	switch at, err := os.Stat(full); {
	case err == nil && at.IsDir():
		if base == "/" || base == ".." {
			return verb.Usagef("%s has no name to copy it by; name the folder to make", source)
		}
		full = filepath.Join(full, base)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil && strings.HasSuffix(target, "/") && !info.IsDir():
		return &fs.PathError{Op: "copy to", Path: target, Err: fs.ErrNotExist}
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a file, and %s a folder of the sandbox", target, source)
	}
	res.Target = full
	if info.IsDir() {
		if err := os.Mkdir(full, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return unpack(ctx, box, source, full, res)
	}
	// Under its own name in a folder beside, then in place by one rename.
	work, err := os.MkdirTemp(filepath.Dir(full), ".agent-env-cp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := unpack(ctx, box, source, work, res); err != nil || len(res.LeftOut) > 0 {
		return err
	}
	entries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	if len(entries) != 1 {
		return fmt.Errorf("%s changed while it was copied", source)
	}
	return os.Rename(filepath.Join(work, entries[0].Name()), full)
}

func unpack(ctx context.Context, box guest.Box, source, dir string, res *copied) error {
	stream, err := box.Tree(ctx, source)
	if err != nil {
		return err
	}
	defer stream.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r := bufio.NewReaderSize(stream, 64<<10)
	report, err := archive.Unpack(ctx, r, root, archive.Options{
		Limits: archive.Limits{Bytes: maxCopyBytes, Entries: maxCopyEntries, Depth: maxCopyDepth}, KeepClashes: true, Xattrs: true, Times: true, Overwrite: true,
	})
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the sandbox's own word on it comes last
	}
	res.count(report)
	return err
}
