package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentenv.internal/agentenv/internal/archive"
)

// Bounds of one layer, far above what real ones have. The floor of the disk's room bounds bytes as well.
const (
	maxLayerBytes   = 256 << 30
	maxLayerEntries = 4 << 20
	maxLayerDepth   = 255
)

// unpacking is one layer on its way into its tree.
type unpacking struct {
	s      *Store
	blob   blob
	record *layerRecord
	meter  *meter
	below  func() ([]string, error) // the layers below, topmost first, once they are there
}

// build fills the layer's tree. It is called again when another process's build of it failed.
func (u *unpacking) build(ctx context.Context, dir string) error {
	to := filepath.Join(dir, layerDir)
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	report, err := u.unpack(ctx, to)
	if err != nil {
		return err
	}
	if len(report.Implied) > 0 {
		below, err := u.below()
		if err != nil {
			return err
		}
		if err := u.s.owners.do(ctx, &job{Op: opAdopt, Dir: to, Names: report.Implied, Below: below}, nil, nil); err != nil {
			return fmt.Errorf("copy what the layer's folders have below: %w", err)
		}
	}
	r := *u.record
	r.Bytes, r.Files, r.Devices, r.Unowned = report.Bytes, report.Files+report.Dirs+report.Links, report.Devices, report.Unowned
	return writeJSON(filepath.Join(dir, layerFile), &r)
}

// unpack writes the layer's files and checks every byte of it.
func (u *unpacking) unpack(ctx context.Context, to string) (archive.Report, error) {
	r, err := u.blob.open()
	if err != nil {
		return archive.Report{}, err
	}
	stop := context.AfterFunc(ctx, func() { r.Close() }) // ends a read that hangs
	defer func() {
		if stop() {
			r.Close()
		}
	}()
	packed := &digesting{r: io.TeeReader(r, metered{u.meter}), sum: sha256.New()}
	plain, _, err := decompress(packed)
	if err != nil {
		return archive.Report{}, err
	}
	defer plain.Close()
	layer := &digesting{r: u.s.bounded(ctx, plain), sum: sha256.New()}
	var report archive.Report
	if err := u.s.owners.do(ctx, &job{Op: opUnpack, Dir: to}, layer, &report); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if layer.err != nil { // what went wrong with the stream tells more than what became of it
			err = layer.err
		}
		return archive.Report{}, err
	}
	// What follows the tar's end counts in the digests.
	if _, err := io.Copy(io.Discard, layer); err != nil {
		return archive.Report{}, err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil {
		return archive.Report{}, err
	}
	if got := layer.digest(); got != u.record.DiffID {
		return archive.Report{}, fmt.Errorf("the image is damaged: the layer's files have the digest %s", got)
	}
	if got := packed.digest(); u.blob.digest != "" && got != u.blob.digest {
		return archive.Report{}, fmt.Errorf("the image is damaged: %s came in place of %s", got, u.blob.digest)
	}
	return report, nil
}

// metered tells a meter what is written to it.
type metered struct{ m *meter }

func (w metered) Write(p []byte) (int, error) {
	w.m.add(len(p))
	return len(p), nil
}

// digesting hashes what is read through it.
type digesting struct {
	r   io.Reader
	sum hash.Hash
	err error // that ended it, but for io.EOF
}

func (d *digesting) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	d.sum.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		d.err = err
	}
	return n, err
}

func (d *digesting) digest() string { return "sha256:" + hex.EncodeToString(d.sum.Sum(nil)) }

// decompress reads gzip and zstd, told by their first bytes, and anything else as it is. The caller closes what it answers.
func decompress(r io.Reader) (_ io.ReadCloser, packed bool, err error) {
	b := bufio.NewReaderSize(r, 256<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, true, err
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const window = 128 << 20 // what image builders use at most
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window))
		if err != nil {
			return nil, true, err
		}
		return z.IOReadCloser(), true, nil
	}
	return io.NopCloser(b), false, nil
}

// job is what a process with the right owners does for the store.
type job struct {
	Op    string   `json:"op"`
	Dir   string   `json:"dir"`
	Names []string `json:"names,omitempty"`
	Below []string `json:"below,omitempty"`
	OneID bool     `json:"one_id,omitempty"`
}

const (
	opUnpack = "unpack" // a tar of a layer into Dir
	opAdopt  = "adopt"  // give folders of Dir the mode, owner and times that they have below
	opRemove = "remove" // Dir and all in it
)

// run does the job in this process.
func (j *job) run(ctx context.Context, in io.Reader, report *archive.Report) error {
	switch j.Op {
	case opUnpack:
		root, err := os.OpenRoot(j.Dir)
		if err != nil {
			return err
		}
		defer root.Close()
		*report, err = archive.Unpack(ctx, in, root, archive.Options{
			Limits: archive.Limits{Bytes: maxLayerBytes, Entries: maxLayerEntries, Depth: maxLayerDepth, Ratio: 1 << 30},
			Layer:  &archive.Layer{OneID: j.OneID}, Strict: true,
		})
		return err
	case opAdopt:
		return adopt(j.Dir, j.Names, j.Below, j.OneID)
	case opRemove:
		return os.RemoveAll(j.Dir)
	}
	return fmt.Errorf("job %q is unknown", j.Op)
}
