package local

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/treestore"
)

var _ sandbox.Forker = (*Provider)(nil)

// Snapshot keeps what a living box wrote as a layer, on top of those that it began with.
func (p *Provider) Snapshot(ctx context.Context, id string, o sandbox.SnapshotOptions) (_ sandbox.Snapshot, err error) {
	box, r, err := p.living(ctx, id)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer box.Close()
	n := merge(r.Layers)
	l, held, err := p.newLayer(ctx, r.Shift, func(dir string, o tree.Options) (tree.Report, error) {
		stream, err := box.Snapshot(ctx, n)
		if err != nil {
			return tree.Report{}, err
		}
		defer stream.Close()
		report, err := o.Extract(stream, dir)
		if err == nil {
			_, err = io.Copy(io.Discard, stream) // the box's own word on it comes last
		}
		return report, err
	})
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("take a snapshot of sandbox %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	k := &kept{Chain: append([]layer{l}, r.Layers[n:]...), Shift: r.Shift}
	k.Name, k.Box, k.Image, k.Needs = o.Name, id, r.Image, p.needs()
	k.Needs.IDs = false // its layers tell
	if k.Image != "" {
		k.Needs.System = ""
	}
	if err := p.keepSnapshot(ctx, k, o.Passing); err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("keep the snapshot of sandbox %s: %w", id, err)
	}
	return k.Snapshot, nil
}

// living connects to a box and reads its record.
func (p *Provider) living(ctx context.Context, id string) (*guest.Client, record, error) {
	box, err := p.Connect(ctx, id)
	if err != nil {
		return nil, record{}, err
	}
	client, ok := box.(*guest.Client)
	s, err := openSlot(p.boxes, id)
	if !ok || err != nil {
		box.Close()
		return nil, record{}, fmt.Errorf("%s: %w", id, sandbox.ErrNotFound)
	}
	defer s.close()
	return client, s.read(), nil
}

// newLayer makes a layer by fill, which unpacks it with the options, and holds it. Its ids are raised by shift. The caller releases it.
func (p *Provider) newLayer(ctx context.Context, shift int, fill func(dir string, o tree.Options) (tree.Report, error)) (layer, *treestore.Held, error) {
	l := layer{Key: strings.ToLower(rand.Text())}
	o := tree.Options{
		Shift: shift, Open: !p.host.wide, Sparse: true, Marks: true, Max: maxSnapshot,
		Each: func(h *tar.Header, _ io.Reader) (bool, error) {
			l.IDs = l.IDs || h.Uid != 0 || h.Gid != 0
			return false, nil
		},
	}
	held, err := p.layers.Get(ctx, l.Key, func(_ context.Context, dir string) error {
		if err := os.Chmod(dir, 0o755); err != nil { // all users of a box pass through it
			return err
		}
		report, err := fill(dir, o)
		l.Bytes, l.Files, l.Lost = report.Bytes, report.Files, report.Owners
		return err
	})
	return l, held, err
}

// lookAtDisk finds out without a box whether the state root's file system can map ids: overlays, as a container's root is, can't.
func (p *Provider) lookAtDisk() {
	var st unix.Statfs_t
	for dir := p.boxes; ; dir = filepath.Dir(dir) {
		if err := unix.Statfs(dir, &st); err == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	if p.host.wide && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		p.host.cannotMap()
	}
}

// Diff is what a living box has changed.
func (p *Provider) Diff(ctx context.Context, id string, brief bool) (io.ReadCloser, error) {
	box, _, err := p.living(ctx, id)
	if err != nil {
		return nil, err
	}
	stream, err := box.Diff(ctx, brief)
	if err != nil {
		box.Close()
		return nil, fmt.Errorf("look for the changes of sandbox %s: %w", id, err)
	}
	return &diffStream{stream, box}, nil
}

type diffStream struct {
	io.ReadCloser
	box *guest.Client
}

func (d *diffStream) Close() error { return errors.Join(d.ReadCloser.Close(), d.box.Close()) }

// metaFile is the first entry of an exported snapshot, endFile the last; what is between them is one layer.
const (
	metaFile = "snapshot.json"
	endFile  = "snapshot.end"
)

// exported is what it holds.
type exported struct {
	Format   int              `json:"format_version"`
	Snapshot sandbox.Snapshot `json:"snapshot"`
}

const maxMeta = 1 << 20

// ExportSnapshot writes a snapshot as a tar of one layer.
func (p *Provider) ExportSnapshot(ctx context.Context, id string, w io.Writer) error {
	k, err := p.loadSnapshot(id)
	if err != nil {
		return err
	}
	var dirs []int
	defer func() {
		for _, fd := range dirs {
			unix.Close(fd)
		}
	}()
	for _, l := range k.Chain {
		held, err := p.holdLayer(ctx, l.Key)
		if err != nil {
			return fmt.Errorf("export snapshot %s: %w", id, err)
		}
		defer func() { _ = held.Release() }() // read only
		fd, err := unix.Open(held.Path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("export snapshot %s: %w", id, err)
		}
		dirs = append(dirs, fd)
	}
	k.Snapshot.Layers = 1
	meta, err := json.Marshal(exported{1, k.Snapshot})
	if err != nil {
		return err
	}
	t := tree.NewPacker(w)
	t.Exact, t.Owner = true, func(uid, gid int) (int, int) { return max(uid-k.Shift, 0), max(gid-k.Shift, 0) }
	if !p.host.wide {
		t.Owner = func(int, int) (int, int) { return 0, 0 } // all files are the caller's, who is root inside
	}
	if err = t.File(metaFile, append(meta, '\n')); err == nil {
		err = tree.PackMerged(t, dirs, "")
	}
	if err == nil {
		err = t.File(endFile, nil)
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return fmt.Errorf("export snapshot %s: %w", id, err)
	}
	return nil
}

// ImportSnapshot keeps an exported snapshot.
func (p *Provider) ImportSnapshot(ctx context.Context, r io.Reader, so sandbox.SnapshotOptions) (_ sandbox.Snapshot, err error) {
	var from *sandbox.Snapshot
	whole := false
	p.lookAtDisk()
	l, held, err := p.newLayer(ctx, p.host.shift(), func(dir string, o tree.Options) (tree.Report, error) {
		each := o.Each
		o.Each = func(h *tar.Header, r io.Reader) (bool, error) {
			if from != nil {
				whole = h.Name == endFile
				taken, err := each(h, r)
				return taken || whole, err
			}
			var err error
			if from, err = p.readMeta(h, r); err != nil {
				return false, err
			}
			return true, nil
		}
		report, err := o.Extract(r, dir)
		if err == nil && from == nil {
			err = errNoSnapshot
		} else if err == nil && !whole {
			err = fmt.Errorf("it is not whole: %w", io.ErrUnexpectedEOF)
		}
		return report, err
	})
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("import the snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	k := &kept{Chain: []layer{l}, Shift: p.host.shift()}
	k.Name, k.Box, k.Image, k.Needs = so.Name, from.Box, from.Image, from.Needs
	if k.Name == "" && sandbox.CheckName(from.Name) == nil { // a stranger's
		k.Name = from.Name
	}
	if err := p.keepSnapshot(ctx, k, so.Passing); err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("import the snapshot: %w", err)
	}
	return k.Snapshot, nil
}

var errNoSnapshot = errors.New("this is no exported snapshot: its first entry is not " + metaFile)

// readMeta reads an exported snapshot's first entry and refuses one that can't begin a box here.
func (p *Provider) readMeta(h *tar.Header, r io.Reader) (*sandbox.Snapshot, error) {
	if h.Name != metaFile || h.Typeflag != tar.TypeReg || h.Size > maxMeta {
		return nil, errNoSnapshot
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var e exported
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", metaFile, err)
	}
	if e.Format != 1 {
		return nil, fmt.Errorf("it has the format %d, and this program reads 1: update it: %w", e.Format, sandbox.ErrUnsupported)
	}
	return &e.Snapshot, meets(p.needs(), &kept{Snapshot: e.Snapshot})
}

// needs is what this machine has, and a snapshot of a box on it needs.
func (p *Provider) needs() sandbox.Needs {
	return sandbox.Needs{Arch: runtime.GOARCH, System: system(readSetting("/etc/os-release")), IDs: p.host.wide}
}

// system is a distribution with its version, as os-release says.
func system(release string) string {
	values := map[string]string{}
	for line := range strings.Lines(release) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.Trim(value, `"'`)
	}
	return strings.TrimSpace(values["ID"] + " " + values["VERSION_ID"])
}

// meets refuses a snapshot that needs what is not there; all that lacks is told at once.
func meets(have sandbox.Needs, k *kept) error {
	var lacks []string
	n := k.Needs
	if n.Arch != have.Arch {
		lacks = append(lacks, fmt.Sprintf("it is for %s, and this machine is %s", n.Arch, have.Arch))
	}
	if k.Image == "" && n.System != have.System {
		lacks = append(lacks, fmt.Sprintf("its files are changes of %q, and this machine runs %q", n.System, have.System))
	}
	if n.IDs && !have.IDs {
		lacks = append(lacks, "it has files of other users than root, which an ordinary user's sandboxes can't have: run as root")
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return fmt.Errorf("the snapshot can't begin a sandbox here: %s: %w", strings.Join(lacks, "; "), sandbox.ErrUnsupported)
}
