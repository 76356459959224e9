package deploy

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

// Fork makes a sandbox that begins with the files that another one of the run holds now, and with none of its processes. r says whose it is and its
// name; provider, files, network and egress are those of the other. An error is ErrNoBox, sandbox.ErrUnsupported where the provider can't, or
// step.Infra.
func (d *Deployments) Fork(ctx context.Context, r Request, of string) (sandbox.Info, error) {
	if _, err := d.Box(ctx, r.Run, of); err != nil { // adopts one that another process made
		return sandbox.Info{}, err
	}
	d.mu.Lock()
	var parent *box
	if a := d.runs[r.Run]; a != nil {
		parent = a.boxes[of]
	}
	d.mu.Unlock()
	if parent == nil {
		return sandbox.Info{}, fmt.Errorf("sandbox %s %w", diag.Repr(of), ErrNoBox)
	}
	f, ok := parent.prov.(sandbox.Forker)
	if !ok {
		return sandbox.Info{}, fmt.Errorf("sandboxes of %s can't be forked: %w", parent.info.Provider, sandbox.ErrUnsupported)
	}
	snap, err := f.Snapshot(ctx, parent.info.ID, sandbox.SnapshotOptions{Passing: true})
	if err != nil {
		return sandbox.Info{}, step.Infra(fmt.Errorf("keep the files of sandbox %s: %w", diag.Repr(of), err))
	}
	r.Spec.From, r.Spec.Image, r.Provider = snap.ID, snap.Image, parent.info.Provider
	r.Spec.Network, r.Spec.Egress = parent.info.Network, parent.info.Egress
	info, err := d.Create(ctx, r)
	if gone := f.RemoveSnapshot(context.WithoutCancel(ctx), snap.ID); gone != nil {
		d.log.Warn("remove a snapshot that nothing needs any more", "snapshot", snap.ID, "error", gone)
	}
	if err != nil {
		return info, step.Infra(errors.Join(err))
	}
	return info, nil
}
