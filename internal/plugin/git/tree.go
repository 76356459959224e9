package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Limits bound what a repository may hold.
type Limits struct {
	Packed int64 // bytes that are downloaded
	Bytes  int64 // of all files together
	Files  int
	Depth  int // parts of a path
}

// DefaultLimits are 64 MiB packed, 256 MiB of files, 20,000 files, 32 parts of a path.
func DefaultLimits() Limits { return Limits{64 << 20, 256 << 20, 20_000, 32} }

// entry is one file of a tree.
type entry struct {
	path string
	exec bool
	size int64
	sha  string // git's object id; "" where files were unpacked from an archive
	sum  [sha256.Size]byte
}

// treeSum is the digest of a tree, in hex: sha256 over path, mode, size and content's sha256 of every file, sorted by path. Folders count by their
// files alone, and of a mode only whether a file is executable, as in git.
func treeSum(files []entry) string {
	files = slices.SortedFunc(slices.Values(files), func(a, b entry) int { return strings.Compare(a.path, b.path) })
	h := sha256.New()
	_, _ = io.WriteString(h, "agentenv tree 1\n")
	for _, f := range files {
		mode := "100644"
		if f.exec {
			mode = "100755"
		}
		fmt.Fprintf(h, "%d %s %s %d %x\n", len(f.path), f.path, mode, f.size, f.sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sum is the digest of the tree in a folder, as locks name it. What is neither file nor folder is an error.
func Sum(ctx context.Context, fsys fs.FS) (string, error) {
	files, err := walk(ctx, fsys)
	if err != nil {
		return "", err
	}
	return treeSum(files), nil
}

// walk reads every file of a tree.
func walk(ctx context.Context, fsys fs.FS) ([]entry, error) {
	var out []entry
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a folder", diag.Repr(name))
		}
		e, err := readEntry(fsys, name)
		out = append(out, e)
		return err
	})
	return out, err
}

func readEntry(fsys fs.FS, name string) (entry, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return entry{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return entry{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return entry{}, err
	}
	e := entry{path: name, exec: fi.Mode()&0o111 != 0, size: n}
	h.Sum(e.sum[:0])
	return e, nil
}

// shown is how many paths a message names.
const shown = 10

func someOf(paths []string) string {
	var out []string
	for _, p := range paths[:min(len(paths), shown)] {
		out = append(out, showPath(p))
	}
	if n := len(paths) - shown; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, ", ")
}

// maxPath is how much of a path a message shows.
const maxPath = 120

// showPath is a path of a repository as messages show it.
func showPath(p string) string {
	if r := []rune(p); len(r) > maxPath {
		return diag.Repr(string(r[:maxPath])) + "…"
	}
	return diag.Repr(p)
}

var deviceName = lazyregexp.New(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$`)

// badName says why no tree may hold a path; "" when one may.
func badName(p string, depth int) string {
	switch {
	case !utf8.ValidString(p):
		return "is not UTF-8"
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "holds control characters"
	case strings.Contains(p, "\\"):
		return "holds a backslash"
	case len(p) > 1000:
		return "is longer than 1000 bytes"
	case !fs.ValidPath(p):
		return "leads out of the repository"
	}
	parts := strings.Split(p, "/")
	if len(parts) > depth {
		return fmt.Sprintf("lies more than %d folders deep", depth)
	}
	for _, part := range parts {
		folded := archive.Fold(part)
		switch {
		case folded == ".git" || strings.HasPrefix(folded, "git~") || strings.HasPrefix(folded, ".git:") || strings.TrimRight(folded, ". ") == ".git":
			return "holds a .git"
		case deviceName().MatchString(part):
			return "holds the name of a device of Windows"
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
			return "holds a name that ends with a dot or a blank"
		case len(part) > 255:
			return "holds a name longer than 255 bytes"
		}
	}
	return ""
}

// checkFiles refuses trees that are too large, or whose names some file system takes differently. All bad names are told.
func checkFiles(files []entry, l Limits) error {
	if len(files) > l.Files {
		return fmt.Errorf("it has %d files, and at most %d are allowed", len(files), l.Files)
	}
	var total int64
	for _, f := range files {
		if f.size > l.Bytes || total+f.size > l.Bytes {
			return fmt.Errorf("its files have more than %d MiB together", l.Bytes>>20)
		}
		total += f.size
	}
	var faults []string
	folded := map[string]string{}
	for _, f := range files {
		if why := badName(f.path, l.Depth); why != "" {
			faults = append(faults, showPath(f.path)+" "+why)
			continue
		}
		for i, c := range []byte(f.path + "/") {
			if c != '/' {
				continue
			}
			prefix := f.path[:i]
			key := archive.Fold(prefix)
			if other, ok := folded[key]; ok && other != prefix {
				faults = append(faults, fmt.Sprintf("%s and %s are one name where case or Unicode form doesn't count", showPath(other), showPath(prefix)))
			} else {
				folded[key] = prefix
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	faults = slices.Compact(faults)
	more := ""
	if n := len(faults) - shown; n > 0 {
		faults, more = faults[:shown], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Errorf("it holds names that can't be kept: %s%s", strings.Join(faults, "; "), more)
}
