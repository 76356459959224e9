package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// Forker is a Provider that can keep what a box wrote and begin other boxes with it, by Spec.From. A fork is a snapshot and such a box.
// A box that begins with a snapshot shares nothing that it can write with the snapshot, its maker, or other boxes.
type Forker interface {
	// Snapshot keeps all files that the box id has beyond its root: not its processes, sockets and what is in /dev. The box stands still
	// meanwhile, then goes on. It costs what the box wrote since it began, whatever the snapshot that it began with holds. ErrNotFound
	// for a box that doesn't live; an error that is EBUSY names a process that can't be stopped.
	Snapshot(ctx context.Context, id string, o SnapshotOptions) (Snapshot, error)
	// Snapshots tells of every snapshot of this provider on this machine, newest first.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// RemoveSnapshot removes a snapshot, and what only it needed; it is nil for an unknown one. Boxes that began with it live on.
	RemoveSnapshot(ctx context.Context, id string) error
	// ExportSnapshot writes a snapshot as one tar, which ImportSnapshot reads on this machine or another.
	ExportSnapshot(ctx context.Context, id string, w io.Writer) error
	// ImportSnapshot keeps an exported snapshot. It refuses, with an error that is ErrUnsupported, one that can't begin a box here.
	ImportSnapshot(ctx context.Context, r io.Reader, o SnapshotOptions) (Snapshot, error)
	// Diff is a tar of what is different from what the box began with, of which ReadChanges tells. brief leaves the bytes of files out.
	// The caller closes it; the box stands still until it is read.
	Diff(ctx context.Context, id string, brief bool) (io.ReadCloser, error)
}

// SnapshotOptions say how a snapshot is kept.
type SnapshotOptions struct {
	Name string // shown to people
	// Passing snapshots are for the process that takes them alone, and end with it. They are not listed.
	Passing bool
}

// Snapshot describes a snapshot.
type Snapshot struct {
	ID       string    `json:"id"`
	Provider string    `json:"provider"`
	Name     string    `json:"name,omitempty"`
	Box      string    `json:"sandbox_id,omitempty"` // that it was taken of
	Created  time.Time `json:"created"`
	Image    string    `json:"image,omitempty"` // of the box's root, with its digest
	Bytes    int64     `json:"bytes"`           // of all files that are kept, layers of earlier snapshots included
	Added    int64     `json:"added_bytes"`     // of those that this one added
	Files    int       `json:"files"`           // entries of all kinds
	Layers   int       `json:"layers"`
	Needs    Needs     `json:"needs"`
	// Owners is how many files lost their owner, since an ordinary user can't keep it.
	Owners int `json:"owners_lost,omitempty"`
}

// Needs is what a machine must have to begin a box with a snapshot.
type Needs struct {
	Arch string `json:"arch"`
	// System is the distribution and version that the root is of, where it isn't an image: the files are changes of that.
	System string `json:"system,omitempty"`
	IDs    bool   `json:"ids,omitempty"` // owners other than root
}

// Change is one path that is different from what a box began with.
type Change struct {
	Path string `json:"path"` // absolute
	Kind string `json:"kind"` // guest.Added, guest.Modified or guest.Deleted
	// Type is "file", "dir", "link" or "other"; "" for what was deleted.
	Type string      `json:"type,omitempty"`
	Mode fs.FileMode `json:"mode,omitempty"` // permissions and setuid bits
	Size int64       `json:"size,omitempty"`
}

// ReadChanges lists what a tar of Forker.Diff holds.
func ReadChanges(r io.Reader) ([]Change, error) {
	var out []Change
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the changes: %w", err)
		}
		c := Change{Path: path.Clean("/" + h.Name), Kind: h.PAXRecords[guest.ChangeRecord], Size: h.Size}
		switch c.Kind {
		case guest.Deleted:
			out = append(out, Change{Path: c.Path, Kind: c.Kind})
			continue
		case guest.Added, guest.Modified:
		default:
			return nil, fmt.Errorf("read the changes: %q is no kind of change", c.Kind)
		}
		if n, err := strconv.ParseInt(h.PAXRecords[tree.SizeRecord], 10, 64); err == nil {
			c.Size = n
		}
		c.Mode = h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		c.Type = typeOf(h.Typeflag)
		out = append(out, c)
	}
}

func typeOf(flag byte) string {
	switch flag {
	case tar.TypeReg, tar.TypeLink:
		return "file"
	case tar.TypeDir:
		return "dir"
	case tar.TypeSymlink:
		return "link"
	default:
		return "other"
	}
}
