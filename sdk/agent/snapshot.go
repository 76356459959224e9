package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	snapshotPath  = "/ext/snapshot"
	changelogPath = "/ext/snapshot/changelog"
	opaque        = "application/octet-stream"
)

// Sink takes one object that a caller lets the agent write.
type Sink struct {
	Max       int64 // bytes
	object    wire.WriteObject
	transfers *transfer.Client
	done      *wire.Uploaded
}

// Write uploads the object; content is read from its beginning, and again for another attempt.
func (s *Sink) Write(ctx context.Context, content io.ReadSeeker) error {
	up, err := s.transfers.Put(ctx, s.object, content)
	if err == nil {
		s.done = &up
	}
	return err
}

// Source gives one object that a caller lets the agent read.
type Source struct {
	Max       int64 // bytes
	object    wire.ReadObject
	transfers *transfer.Client
}

// Read downloads the object and checks it. begin is called before each attempt and answers where the bytes go; what was written counts only when
// the error is nil.
func (s *Source) Read(ctx context.Context, begin func() (io.Writer, error)) error {
	_, err := s.transfers.Get(ctx, s.object, begin)
	return err
}

// Bytes downloads an object of at most limit bytes.
func (s *Source) Bytes(ctx context.Context, limit int64) ([]byte, error) {
	return s.transfers.Bytes(ctx, s.object, limit)
}

// Snapshot is a request to save a context: the agent writes what it needs to go on with it. Workspace is nil unless it was asked for; then it must
// be written too, if only empty.
type Snapshot struct {
	ContextID             string
	Trajectory, Workspace *Sink
}

// Saved is a request to load what was saved. Workspace is nil when there is none.
type Saved struct {
	Trajectory, Workspace *Source
	TargetContextID       string // the context to load into; "" lets the agent choose
}

type snapshots struct {
	save func(context.Context, *Snapshot) error
	load func(context.Context, *Saved) (contextID string, err error)
}

// WithSnapshots lets callers save a context and load it again, here or in another agent of the same kind. Refuse with 404 a context that is
// unknown. load answers the context in which its caller goes on.
func WithSnapshots(save func(ctx context.Context, s *Snapshot) error, load func(ctx context.Context, s *Saved) (contextID string, err error)) Option {
	return func(a *Agent) {
		if save == nil || load == nil {
			a.problem("WithSnapshots needs both functions")
			return
		}
		a.snapshots = &snapshots{save, load}
	}
}

// Changes are the increments of a changelog, in order.
type Changes struct {
	Increments         []Increment
	ResumeConversation bool
	TargetContextID    string // "" lets the agent choose
}

// Increment is what one tool call changed; Sequence is its place, from 0.
type Increment struct {
	Sequence int64
	Source   *Source
}

// Uploads is where a changelog's increments go.
type Uploads struct{ to *transfer.Namespace }

// Upload writes the increment of the sequence-th tool call, from 0. ext is what its name ends in, such as ".tar", or "".
func (u *Uploads) Upload(ctx context.Context, sequence int64, ext string, content io.ReadSeeker) error {
	return u.to.Upload(ctx, fmt.Sprintf("%06d%s", sequence, ext), opaque, content)
}

type changelog struct {
	enable func(context.Context, *Uploads, []string) ([]string, error)
	apply  func(context.Context, *Changes) (string, error)
}

// WithChangelog lets callers follow what the agent changes, and apply it elsewhere; it goes with WithSnapshots. enable is told where increments
// go from now on and which folders are meant (none: the agent chooses), and answers those that it follows. apply answers the context that its
// caller may go on in, "" for none.
func WithChangelog(enable func(ctx context.Context, to *Uploads, roots []string) ([]string, error), apply func(ctx context.Context, c *Changes) (contextID string, err error)) Option {
	return func(a *Agent) {
		if enable == nil || apply == nil {
			a.problem("WithChangelog needs both functions")
			return
		}
		a.changelog = &changelog{enable, apply}
	}
}

func (a *Agent) snapshotExtension() (extension, bool, error) {
	switch {
	case a.snapshots == nil && a.changelog == nil:
		return extension{}, false, nil
	case a.snapshots == nil:
		return extension{}, false, errors.New("WithChangelog needs WithSnapshots")
	}
	ops := []operation{
		{name: "save", verb: http.MethodPost, path: snapshotPath, request: `{"required":["context_id","objects"]}`, response: `{"required":["context_id","objects"]}`, serve: a.saveSnapshot},
		{name: "load", verb: http.MethodPut, path: snapshotPath, request: `{"required":["objects"],"optional":["target_context_id"]}`, response: `{"required":["context_id"]}`, serve: a.loadSnapshot},
	}
	if a.changelog != nil {
		ops = append(ops,
			operation{name: "enable-changelog", verb: http.MethodPost, path: changelogPath, request: `{"required":["write_namespace"],"optional":["roots"]}`, response: `{"required":["roots"]}`, serve: a.enableChangelog},
			operation{name: "apply-changelog", verb: http.MethodPut, path: changelogPath, request: `{"required":["increments"],"optional":["resume_conversation","target_context_id"]}`, response: `{"required":["count"]}`, serve: a.applyChangelog})
	}
	return newExtension(wire.URNSnapshot, "Saves and loads what the agent needs to go on with a context.", snapshotPath, ops...)
}

func (a *Agent) sink(o *wire.WriteObject) *Sink {
	if o == nil {
		return nil
	}
	return &Sink{Max: o.MaxBytes, object: *o, transfers: &a.transfers}
}

func (a *Agent) source(o *wire.ReadObject) *Source {
	if o == nil {
		return nil
	}
	return &Source{Max: o.MaxBytes, object: *o, transfers: &a.transfers}
}

// saveRequest and its like are what calls carry.
type saveRequest struct {
	context               string
	trajectory, workspace *wire.WriteObject
}

func decodeSave(body []byte) (saveRequest, error) {
	f, err := readFields(body, "context_id", "objects")
	if err != nil {
		return saveRequest{}, err
	}
	r := saveRequest{context: f.text("context_id", true)}
	member(f, "objects", true, func(b []byte) (any, error) {
		o, err := readFields(b, "trajectory", "workspace")
		if err != nil {
			return nil, err
		}
		r.trajectory, r.workspace = writeObject(o, "trajectory", opaque, true), writeObject(o, "workspace", opaque, false)
		return nil, o.err()
	})
	return r, f.err()
}

func (a *Agent) saveSnapshot(ctx context.Context, body []byte) (any, error) {
	r, err := decodeSave(body)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{ContextID: r.context, Trajectory: a.sink(r.trajectory), Workspace: a.sink(r.workspace)}
	if err := a.snapshots.save(ctx, s); err != nil {
		return nil, err
	}
	if s.Trajectory.done == nil {
		return nil, errors.New("the snapshot was saved without its trajectory being written")
	}
	objects := map[string]any{"trajectory": s.Trajectory.done}
	if s.Workspace != nil {
		if s.Workspace.done == nil { // callers take a snapshot without what they asked for as broken
			return nil, errors.New("the snapshot was saved without the workspace that was asked for")
		}
		objects["workspace"] = s.Workspace.done
	}
	return map[string]any{"context_id": r.context, "objects": objects}, nil
}

type loadRequest struct {
	trajectory, workspace *wire.ReadObject
	target                string
}

func decodeLoad(body []byte) (loadRequest, error) {
	f, err := readFields(body, "objects", "target_context_id")
	if err != nil {
		return loadRequest{}, err
	}
	r := loadRequest{target: f.text("target_context_id", false)}
	member(f, "objects", true, func(b []byte) (any, error) {
		o, err := readFields(b, "trajectory", "workspace")
		if err != nil {
			return nil, err
		}
		r.trajectory, r.workspace = readObject(o, "trajectory", opaque, true), readObject(o, "workspace", opaque, false)
		return nil, o.err()
	})
	return r, f.err()
}

func (a *Agent) loadSnapshot(ctx context.Context, body []byte) (any, error) {
	r, err := decodeLoad(body)
	if err != nil {
		return nil, err
	}
	id, err := a.snapshots.load(ctx, &Saved{a.source(r.trajectory), a.source(r.workspace), r.target})
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, errors.New("the snapshot was loaded into no context")
	}
	return map[string]string{"context_id": id}, nil
}

type enableRequest struct {
	namespace wire.WriteNamespace
	roots     []string
}

func decodeEnable(body []byte) (enableRequest, error) {
	f, err := readFields(body, "write_namespace", "roots")
	if err != nil {
		return enableRequest{}, err
	}
	var r enableRequest
	r.namespace = member(f, "write_namespace", true, func(b []byte) (wire.WriteNamespace, error) { return wire.ParseWriteNamespace(b) })
	r.roots = member(f, "roots", false, func(b []byte) ([]string, error) { return decodeTexts(b) })
	return r, f.err()
}

func (a *Agent) enableChangelog(ctx context.Context, body []byte) (any, error) {
	r, err := decodeEnable(body)
	if err != nil {
		return nil, err
	}
	roots, err := a.changelog.enable(ctx, &Uploads{a.transfers.Namespace(r.namespace)}, r.roots)
	if err != nil {
		return nil, err
	}
	return map[string]any{"roots": append([]string{}, roots...)}, nil
}

type increment struct {
	sequence int64
	object   *wire.ReadObject
}

type applyRequest struct {
	increments []increment
	resume     bool
	target     string
}

func decodeApply(body []byte) (applyRequest, error) {
	f, err := readFields(body, "increments", "resume_conversation", "target_context_id")
	if err != nil {
		return applyRequest{}, err
	}
	r := applyRequest{target: f.text("target_context_id", false)}
	r.resume = member(f, "resume_conversation", false, decodeBool)
	last := int64(-1)
	for i, raw := range f.list("increments", true) {
		x, err := decodeIncrement(raw)
		switch name := fmt.Sprintf("increments[%d]", i); {
		case err != nil:
			f.fail(name, "%v", err)
		case x.sequence <= last:
			f.fail(name, "its sequence must be greater than the one before")
		}
		last = x.sequence
		r.increments = append(r.increments, x)
	}
	return r, f.err()
}

func decodeIncrement(raw []byte) (increment, error) {
	f, err := readFields(raw, "sequence", "object")
	if err != nil {
		return increment{}, err
	}
	if !f.has("sequence") {
		f.fail("sequence", "it is missing")
	}
	x := increment{sequence: f.integer("sequence", 0, math.MaxInt64, 0), object: readObject(f, "object", opaque, true)}
	return x, f.err()
}

func (a *Agent) applyChangelog(ctx context.Context, body []byte) (any, error) {
	r, err := decodeApply(body)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"count": len(r.increments)}
	if len(r.increments) == 0 {
		return out, nil
	}
	c := &Changes{ResumeConversation: r.resume, TargetContextID: r.target}
	for _, x := range r.increments {
		c.Increments = append(c.Increments, Increment{x.sequence, a.source(x.object)})
	}
	id, err := a.changelog.apply(ctx, c)
	if err != nil {
		return nil, err
	}
	if id != "" {
		out["context_id"] = id
	}
	return out, nil
}
