package ledger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// fileDigest is what was read of a file.
type fileDigest struct {
	ref.Digest
	size int64
}

// text is the digest as a row has it.
func (d fileDigest) text(f bundle.File) string {
	if mode := permissions(f.Mode); f.HashMode && mode != 0o644 {
		return string(d.Digest) + "+" + strconv.FormatUint(uint64(mode), 8)
	}
	return string(d.Digest)
}

// permissions are the mode bits that a file keeps, as Unix has them.
func permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	for bit, unix := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			p |= unix
		}
	}
	return p
}

// job is one file to read.
type job struct {
	x *write
	i int
}

func (j job) file() *bundle.File { return &j.x.Files[j.i] }

func (j job) name() string { return j.x.Label + "/" + j.file().Path }

// each runs f over the jobs on every processor. Buffers are reused.
func each(ctx context.Context, jobs []job, f func(j job, buf []byte) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		g.Go(func() error {
			buf := make([]byte, 256<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(jobs[i], buf); err != nil {
					return fmt.Errorf("%s: %w", jobs[i].name(), err)
				}
			}
		})
	}
	return g.Wait()
}

// hash reads the files of the entities whose digest decides. Those of others are only opened, so that a dry run finds what can't be read; their
// digests come from the store.
func (w *writer) hash(ctx context.Context) error {
	var jobs []job
	for _, x := range w.writes {
		x.digests = make([]fileDigest, len(x.Files))
		for i := range x.Files {
			if w.mayReuse(x) || w.options.DryRun {
				jobs = append(jobs, job{x, i})
			}
		}
	}
	return each(ctx, jobs, func(j job, buf []byte) error {
		if !w.mayReuse(j.x) {
			r, err := j.file().Open()
			if err != nil {
				return err
			}
			return r.Close()
		}
		h := sha256.New()
		n, err := j.file().ReadTo(h, buf)
		if err != nil {
			return err
		}
		j.x.digests[j.i] = fileDigest{ref.DigestSum(h), n}
		return nil
	})
}

// put stores the files of an entity that is written. Bytes that the store has already, by the row's account, are not sent again.
func (w *writer) put(ctx context.Context, s store.Stage) error {
	var jobs []job
	for _, x := range w.writes {
		if x.same {
			continue
		}
		for i := range x.Files {
			jobs = append(jobs, job{x, i})
		}
	}
	return each(ctx, jobs, func(j job, _ []byte) error {
		f, was := j.file(), j.x.digests[j.i]
		if was.Digest != "" && j.x.row != nil && j.x.row.Inputs.Files[f.Path] == was.text(*f) && w.has(ctx, was.Digest) {
			return nil
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		put := s.Put
		if j.x.Plugin && j.x.Kind == ref.Artifact { // what is stored of it is the plugin's to say
			put = sum
		}
		d, n, err := put(r)
		if err != nil {
			return err
		}
		if was.Digest != "" && was.Digest != d {
			return errChanged
		}
		j.x.digests[j.i] = fileDigest{d, n}
		return nil
	})
}

// sum is the digest of what r holds.
func sum(r io.Reader) (ref.Digest, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return ref.DigestSum(h), n, err
}

// has tells whether the store has an object.
func (w *writer) has(ctx context.Context, d ref.Digest) bool {
	r, _, err := w.store.Open(ctx, d)
	if err != nil {
		return false
	}
	_ = r.Close()
	return true
}
