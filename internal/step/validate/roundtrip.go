package validate

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// exportLimit bounds one export.
	exportLimit = 10 * time.Minute
	// maxCompared is up to which size exports are compared by what they mean; larger ones are compared by their bytes.
	maxCompared = 64 << 20
)

// CheckRoundTrip loads a universe, exports it, loads the export, exports that, and compares both exports. kept may be nil; it is called with every
// export before it goes. The environment holds the export afterwards.
func CheckRoundTrip(ctx context.Context, v *deploy.Env, objects store.Objects, d envstore.Data, kept func(Exported) error) ([]step.Row, error) {
	loaded, err := v.Load(ctx, objects, d)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return []step.Row{outcome("", "the universe is loaded", err.Error())}, nil
	}
	scratch, err := atomicfile.NewScratch("agent-env-exports")
	if err != nil {
		return nil, step.Infra(fmt.Errorf("make room for exports: %w", err))
	}
	defer func() { _ = scratch.Remove() }()
	var out []step.Row
	for _, name := range loaded.Names {
		x := turn{v: v, name: name, spool: spool{scratch.Dir}, kept: kept}
		row, err := x.row(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	for _, name := range loaded.Skipped {
		out = append(out, skipped(name, "export, load and export again give the same", "the environment has no server of that name"))
	}
	return out, nil
}

// Exported is one export, in a file that is there while kept runs.
type Exported struct {
	Environment string
	Round       int    // 1, or 2 after the first was loaded
	Name        string // of the file, as the server calls it
	Path        string // on this machine
}

// turn is the round trip of one environment.
type turn struct {
	v     *deploy.Env
	name  string
	spool spool
	kept  func(Exported) error
}

func (x *turn) row(ctx context.Context) (step.Row, error) {
	what := "export, load and export again give the same"
	first, err := x.export(ctx, 1)
	if err == nil {
		_, err = x.v.Load(ctx, x.spool, envstore.Data{Artifact: envstore.Pin{ID: x.name}, Payloads: []envstore.Payload{{
			Environment: x.name, File: artifact.Bytes{Path: first.name, Digest: first.digest, Size: first.size, Mode: 0o644}, Media: artifact.ContentType(first.name),
		}}})
		if err != nil {
			err = fmt.Errorf("its own export can't be loaded: %w", err)
		}
	}
	var second export
	if err == nil {
		second, err = x.export(ctx, 2)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if infra := (keepError{}); errors.As(err, &infra) {
		return nil, step.Infra(infra.error)
	}
	if err != nil {
		return outcome(x.name, what, err.Error()), nil
	}
	row := outcome(x.name, what, x.spool.difference(first, second))
	row["first_digest"], row["second_digest"] = string(first.digest), string(second.digest)
	return row, nil
}

// keepError is a fault of this machine, not of the server.
type keepError struct{ error }

type export struct {
	name   string
	digest ref.Digest
	size   int64
}

func (x *turn) export(ctx context.Context, round int) (export, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, exportLimit, fmt.Errorf("the server took more than %s", exportLimit))
	defer cancel()
	e, err := x.v.Get(ctx, x.name)
	if err != nil {
		return export{}, err
	}
	defer e.Close()
	out, err := x.spool.keep(e.File, e)
	if err != nil {
		return out, err
	}
	if x.kept == nil {
		return out, nil
	}
	if err := x.kept(Exported{x.name, round, out.name, x.spool.path(out.digest)}); err != nil {
		return out, keepError{err}
	}
	return out, nil
}

// spool is a folder of exports by digest, as objects that a deployment loads.
type spool struct{ dir string }

var _ store.Objects = spool{}

func (s spool) path(d ref.Digest) string { return filepath.Join(s.dir, d.Hex()) }

func (s spool) keep(name string, r io.Reader) (export, error) {
	f, err := os.CreateTemp(s.dir, "in-")
	if err != nil {
		return export{}, keepError{err}
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), r)
	if err != nil {
		return export{}, fmt.Errorf("read the export: %w", err)
	}
	d := ref.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
	if err := os.Rename(f.Name(), s.path(d)); err != nil {
		return export{}, keepError{err}
	}
	return export{name, d, n}, nil
}

// Open is an export.
func (s spool) Open(_ context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	f, err := os.Open(s.path(d))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Verify is for stores that are kept; an export was read a moment ago.
func (s spool) Verify(context.Context, ref.Digest) error { return nil }

// difference tells how two exports differ; "" when they mean the same: JSON and archives are compared by what they hold, the rest by its bytes.
func (s spool) difference(a, b export) string {
	if a.digest == b.digest {
		return ""
	}
	if a.size > maxCompared || b.size > maxCompared {
		return "the exports differ, and are too large to be compared otherwise than by their bytes"
	}
	one, err1 := os.ReadFile(s.path(a.digest))
	two, err2 := os.ReadFile(s.path(b.digest))
	if err := errors.Join(err1, err2); err != nil {
		return err.Error()
	}
	x, y := canonical(one), canonical(two)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if other, has := y[name]; !has {
			out = append(out, "the second export lacks "+name)
		} else if other != x[name] {
			out = append(out, name+" differs")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		if _, has := x[name]; !has {
			out = append(out, "the second export has more: "+name)
		}
	}
	const most = 10
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, "; ")
}

// canonical is an export as texts by name, in which what means nothing is the same: the members of an archive, each JSON with sorted keys.
func canonical(b []byte) map[string]string {
	if z, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err == nil {
		out := map[string]string{}
		left := int64(maxCompared)
		for _, f := range z.File {
			if strings.HasSuffix(f.Name, "/") {
				continue
			}
			text, err := member(f, left)
			if err != nil {
				return map[string]string{"the export": string(b)}
			}
			left -= int64(len(text))
			out[diag.Repr(path.Clean(f.Name))] = sortedJSON(text)
		}
		return out
	}
	return map[string]string{"the export": sortedJSON(b)}
}

func member(f *zip.File, most int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("the archive holds too much")
	}
	return b, err
}

// sortedJSON is a JSON document with its keys sorted and no spaces; what is none stays as it is.
func sortedJSON(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.Decode(new(any)) != io.EOF {
		return string(b)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(b)
	}
	return string(out)
}
