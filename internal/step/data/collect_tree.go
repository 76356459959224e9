package data

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// maxCollected and maxCollectedFiles bound what one step collects.
	maxCollected      = 4 << 30
	maxCollectedFiles = 200_000
	// readAgain is how often a file that changes while it is copied is copied again.
	readAgain = 3
)

// errAbsent: there is no such path in the sandbox.
var errAbsent = errors.New("does not exist")

// collector copies files out of one sandbox into one stage.
type collector struct {
	box     guest.Box
	stage   store.Stage
	exclude map[string]bool // names of files and folders that are left out
	warn    func(message string, attrs ...any)
	max     int64 // bytes in all

	entries map[string]artifact.Bytes // by path in the universe
	from    map[string]string         // where each file of entries stands in the sandbox
	names   claims
	outward []wanted // links that lead out of what is collected: what they lead to is copied
	size    int64
}

func newCollector(box guest.Box, stage store.Stage, exclude map[string]bool, warn func(string, ...any)) *collector {
	return &collector{
		box: box, stage: stage, exclude: exclude, warn: warn, max: maxCollected, entries: map[string]artifact.Bytes{}, from: map[string]string{},
		names: claims{files: map[string]string{}, folders: map[string]string{}},
	}
}

// collect copies one path, a file or a folder with all that it holds. errAbsent when it isn't there.
func (k *collector) collect(ctx context.Context, w wanted) error {
	r, err := k.box.Tree(ctx, w.from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errAbsent
	case err != nil:
		return unreadable(ctx, w.from, err)
	}
	defer r.Close()
	t := tar.NewReader(r)
	links := map[string]string{} // names in this archive, which its hard links go by, to paths in the universe
	dir := false
	for first := true; ; first = false {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(ctx, w.from, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if first && h.Typeflag == tar.TypeDir {
			dir = true
			continue
		}
		one := wanted{from: w.from, as: w.as}
		if dir {
			if !fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) { // no sandbox sends it that is what it seems
				return step.Errorf("ReadError", "%s: an entry is called %s", diag.Repr(w.from), diag.Repr(h.Name))
			}
			if k.excluded(name) {
				continue
			}
			one = wanted{from: path.Join(w.from, name), as: path.Join(w.as, name)}
		} else if k.exclude[path.Base(w.from)] {
			continue
		}
		if one.as == "" {
			one.as = path.Base(w.from) // the base itself is a file
		}
		links[h.Name] = one.as
		if err := k.entry(ctx, one, h, t, links); err != nil {
			return err
		}
	}
}

func (k *collector) excluded(name string) bool {
	if len(k.exclude) == 0 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if k.exclude[part] {
			return true
		}
	}
	return false
}

// entry takes one entry of an archive.
func (k *collector) entry(ctx context.Context, w wanted, h *tar.Header, r io.Reader, links map[string]string) error {
	if !utf8.ValidString(w.as) {
		return step.Errorf("NameError", "%s can't be kept: its name isn't valid UTF-8", diag.Repr(w.from))
	}
	if at, have := k.from[w.as]; have && at == w.from {
		return nil // two of the named paths hold it
	}
	if len(k.entries) >= maxCollectedFiles {
		return step.Errorf("LimitError", "more than %d files", maxCollectedFiles)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return k.file(ctx, w, h, r)
	case tar.TypeLink:
		same, ok := k.entries[links[h.Linkname]]
		if !ok {
			k.outward = append(k.outward, w) // its first name was left out
			return nil
		}
		same.Path = w.as
		return k.add(w, same)
	case tar.TypeSymlink:
		if !artifact.LinkStays(w.as, h.Linkname) || !utf8.ValidString(h.Linkname) {
			k.outward = append(k.outward, w)
			return nil
		}
		return k.add(w, artifact.Bytes{Path: w.as, Link: h.Linkname})
	case tar.TypeDir:
		if err := k.names.claim(w.as+"/.", w.from); err != nil {
			return err
		}
		k.entries[w.as] = artifact.Bytes{Path: w.as, Folder: true}
	default:
		k.warn("left out: it is neither a file, a folder nor a link", "path", w.from)
	}
	return nil
}

func (k *collector) add(w wanted, b artifact.Bytes) error {
	if err := k.names.claim(w.as, w.from); err != nil {
		return err
	}
	k.entries[w.as], k.from[w.as] = b, w.from
	return nil
}

func (k *collector) file(ctx context.Context, w wanted, h *tar.Header, r io.Reader) error {
	if k.size += h.Size; k.size > k.max {
		return step.Errorf("LimitError", "more than %d bytes in all, with %s", k.max, diag.Repr(w.from))
	}
	b, err := k.put(ctx, w, h, r)
	if err != nil {
		return err
	}
	return k.add(w, b)
}

func (k *collector) put(ctx context.Context, w wanted, h *tar.Header, r io.Reader) (artifact.Bytes, error) {
	source := &sourceReader{r: r}
	digest, n, err := k.stage.Put(source)
	switch {
	case source.err != nil:
		return artifact.Bytes{}, unreadable(ctx, w.from, source.err)
	case err != nil:
		return artifact.Bytes{}, step.Infra(&step.Error{Type: "StoreError", Err: err})
	case n != h.Size:
		return artifact.Bytes{}, step.Errorf("ReadError", "%s: %d of its %d bytes came", diag.Repr(w.from), n, h.Size)
	}
	return artifact.Bytes{Path: w.as, Digest: digest, Size: n, Mode: uint32(h.Mode) & 0o777}, nil
}

// sourceReader remembers that a copy failed at its reading end.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// follow copies what links that lead out of the collected folders lead to, where that is a file.
func (k *collector) follow(ctx context.Context) error {
	for _, w := range k.outward {
		info, err := k.box.Stat(ctx, w.from)
		switch {
		case lost(ctx, err) != nil:
			return lost(ctx, err)
		case err != nil || !info.Mode().IsRegular():
			k.warn("left out: the link leads out of what is collected, and to no file", "path", w.from)
			continue
		}
		if err := k.collect(ctx, w); err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return nil
}

// settle makes sure that every file was copied as it is: one whose size has changed since is copied again, and given up when it goes on changing.
func (k *collector) settle(ctx context.Context) error {
	for _, as := range slices.Sorted(maps.Keys(k.from)) {
		w := wanted{from: k.from[as], as: as}
		for try := 0; k.entries[as].Link == ""; try++ {
			info, err := k.box.Stat(ctx, w.from)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				k.warn("was removed while it was collected; what it held is kept", "path", w.from)
			case err != nil:
				return unreadable(ctx, w.from, err)
			case info.Size() != k.entries[as].Size && try == readAgain:
				return step.Errorf("ReadError", "%s changes while it is copied; collect it when nothing writes to it any more", diag.Repr(w.from))
			case info.Size() != k.entries[as].Size:
				if err := k.again(ctx, w); err != nil {
					return err
				}
				continue
			}
			break
		}
	}
	return nil
}

// again copies one file anew.
func (k *collector) again(ctx context.Context, w wanted) error {
	r, err := k.box.Tree(ctx, w.from)
	if err != nil {
		return unreadable(ctx, w.from, err)
	}
	defer r.Close()
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil {
		return unreadable(ctx, w.from, err)
	}
	if h.Typeflag != tar.TypeReg {
		return step.Errorf("ReadError", "%s is no file any more", diag.Repr(w.from))
	}
	if k.size += h.Size - k.entries[w.as].Size; k.size > k.max {
		return step.Errorf("LimitError", "more than %d bytes in all, with %s", k.max, diag.Repr(w.from))
	}
	k.entries[w.as], err = k.put(ctx, w, h, t)
	return err
}

// sorted are the entries by path; a folder is one of its own only where it holds nothing.
func (k *collector) sorted() []artifact.Bytes {
	full := map[string]bool{}
	for as := range k.entries {
		for dir := path.Dir(as); dir != "." && !full[dir]; dir = path.Dir(dir) {
			full[dir] = true
		}
	}
	var out []artifact.Bytes
	for _, as := range slices.Sorted(maps.Keys(k.entries)) {
		if b := k.entries[as]; !b.Folder || !full[as] {
			out = append(out, b)
		}
	}
	return out
}

// lost is err when it says nothing about a path: the sandbox is gone, or the step was stopped.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if step.IsInfra(err) {
		return err
	}
	return nil
}

// unreadable is the error of something that exists in the sandbox and can't be read.
func unreadable(ctx context.Context, at string, err error) error {
	if e := lost(ctx, err); e != nil {
		return e
	}
	return &step.Error{Type: "ReadError", Err: fmt.Errorf("%s exists but can't be read: %w", diag.Repr(at), err)}
}
