package deploy

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/step"
)

// treeWriter writes folders of a box into one archive, without the secrets that are known: these are taken out of texts, and a file that holds one and is no
// text is left out.
type treeWriter struct {
	w      *tar.Writer
	redact *redact.Redactor
	spool  string // a file for one file at a time
	left   int64  // bytes that may be written yet
}

// putTree puts an archive that fill writes as StateWorkspace.
func (a *Agent) putTree(fill func(w *treeWriter) error, put func(string, io.Reader) error) error {
	scratch, err := atomicfile.NewScratch("agent-env-agent-state")
	if err != nil {
		return step.Infra(err)
	}
	_, err = piped(func(w io.Writer) error {
		t := &treeWriter{w: tar.NewWriter(w), redact: a.all.o.Redact, spool: filepath.Join(scratch.Dir, "file"), left: maxStateWorkspace}
		if err := fill(t); err != nil {
			return err
		}
		return t.w.Close()
	}, func(r io.Reader) error { return put(StateWorkspace, r) })
	return errors.Join(err, scratch.Remove())
}

// add writes a folder of a box under a name, "" for the archive's own root; needed says that nothing of it may be left out.
func (t *treeWriter) add(ctx context.Context, box guest.Box, folder, as string, needed bool) error {
	tree, err := box.Tree(ctx, folder)
	if err != nil {
		return step.Infra(fmt.Errorf("read the agent's folder %s: %w", folder, err))
	}
	defer tree.Close()
	for r := tar.NewReader(tree); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return step.Infra(fmt.Errorf("read the agent's folder %s: %w", folder, err))
		}
		name := h.Name
		h.Format = tar.FormatUnknown
		h.Name = under(as, name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = under(as, h.Linkname)
		}
		if err := t.file(h, r); err != nil {
			if errors.Is(err, errSecretFile) && !needed {
				continue
			}
			return fmt.Errorf("%s: %w", diag.Repr(path.Join(folder, name)), err)
		}
	}
}

// under is a name in an archive below a folder of it; one of a folder keeps its end.
func under(folder, name string) string {
	if folder == "" {
		return name
	}
	out := path.Join(folder, name)
	if strings.HasSuffix(name, "/") {
		out += "/"
	}
	return out
}

// errSecretFile: a file that is no text holds a secret, which can't be taken out without breaking it.
var errSecretFile = errors.New("it is no text and holds a secret, so it can't be saved")

func (t *treeWriter) file(h *tar.Header, in io.Reader) error {
	if t.left -= h.Size; t.left < 0 {
		return fmt.Errorf("the agent's folders are larger than %d GiB", maxStateWorkspace>>30)
	}
	clean := in
	if t.redact != nil {
		clean = t.redact.Reader(in)
	}
	if clean == in || h.Typeflag != tar.TypeReg || h.Size == 0 { // nothing is secret
		if err := t.w.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t.w, in)
		return err
	}
	f, err := os.OpenFile(t.spool, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return step.Infra(err)
	}
	defer f.Close()
	text := &texts{}
	n, err := io.Copy(f, io.TeeReader(clean, text))
	if err != nil {
		return err
	}
	if n != h.Size { // a mask is shorter than every secret
		if !text.valid() {
			return errSecretFile
		}
		h.Size = n
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return step.Infra(err)
	}
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t.w, f)
	return err
}

// texts tells whether what is written to it, in pieces, is UTF-8 without NUL.
type texts struct {
	rest []byte // of a letter that a piece ends within
	odd  bool
}

func (t *texts) Write(p []byte) (int, error) {
	b := append(t.rest, p...)
	for len(b) > 0 && !t.odd {
		c, n := utf8.DecodeRune(b)
		if c == utf8.RuneError && n == 1 && !utf8.FullRune(b) {
			break
		}
		t.odd = c == utf8.RuneError && n == 1 || c == 0
		b = b[n:]
	}
	t.rest = append([]byte(nil), b...)
	return len(p), nil
}

func (t *texts) valid() bool { return !t.odd && len(t.rest) == 0 }
