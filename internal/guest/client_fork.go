package guest

import (
	"context"
	"io"
)

// How a path differs from what the box began with.
const (
	Added    = "A"
	Modified = "M"
	Deleted  = "D"
)

// ChangeRecord is the PAX record of an entry of Diff that tells which of them it is. A deleted path is a character device 0,0.
const ChangeRecord = "AGENTENV.change"

// Snapshot is a tar of all that the box wrote, in the form of an overlay's layer: one folder for each of its places (PlaceName), whiteouts
// and opaque marks included. The box stands still until it is read or closed. merge is how many of the topmost layers that the box began with
// are to be part of it. The caller closes it.
func (b *Client) Snapshot(ctx context.Context, merge int) (io.ReadCloser, error) {
	return b.stream(ctx, &Request{Op: OpSnapshot, Merge: merge})
}

// Diff is a tar of what is different from what the box began with, under its real names; brief leaves the bytes of files out. The caller closes it.
func (b *Client) Diff(ctx context.Context, brief bool) (io.ReadCloser, error) {
	return b.stream(ctx, &Request{Op: OpDiff, Brief: brief})
}
