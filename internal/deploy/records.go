package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/ref"
)

// Records keeps what environments leave of a run: the logs of their calls, and results that are too large for an agent to read.
type Records interface {
	// Folder is where files of a run are while it is under way.
	Folder(run string) string
	// Keep stores a piece of a run for as long as the run is on record.
	Keep(ctx context.Context, run string, r io.Reader) (Piece, error)
	// Open reads a piece that was kept, and tells its size.
	Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error)
}

// Piece is something that Records has kept. Its handle is Digest.
type Piece struct {
	What     string     `json:"what"` // PieceCalls, PieceResult, PieceErrand or PieceScreen
	Env      string     `json:"env_id"`
	Instance string     `json:"instance_id"`
	Digest   ref.Digest `json:"digest"`
	Size     int64      `json:"size"`
}

// What a Piece is.
const (
	PieceCalls  = "calls"  // the log of all calls, one JSON object a line
	PieceResult = "result" // of one call
	PieceScreen = "screen" // what a computer showed, as an animated PNG
	PieceErrand = "errand" // what an agent did that a trigger asked something of, as a trajectory
)

// recorded tells whether what an environment leaves goes into its run's record.
func (e *Envs) recorded(r EnvRequest) bool { return e.maker.options.Records != nil && r.CallLog == "" }

// callLog is where the log of a deployment's calls is while its run is under way. A step that runs again goes on where it was.
func (e *Envs) callLog(r EnvRequest) string {
	if !e.recorded(r) {
		return r.CallLog
	}
	return filepath.Join(e.maker.options.Records.Folder(r.Run), "calls "+fileName(cmp.Or(r.Step, r.Env.ID))+".jsonl")
}

// record puts what a deployment leaves into the record of its run.
func (e *Envs) record(r EnvRequest, v *Env, o *front.Options) {
	o.Redact = e.maker.options.Redact
	if !e.recorded(r) {
		return
	}
	v.calls = o.CallLog
	o.Spill = func(ctx context.Context, in io.Reader, _ string) (string, error) {
		p, err := e.keep(ctx, v, PieceResult, e.maker.options.Redact.Reader(in))
		return string(p.Digest), err
	}
	o.Kept = func(ctx context.Context, handle string) (io.ReadSeekCloser, int64, error) {
		return e.maker.options.Records.Open(ctx, ref.Digest(handle))
	}
}

// keep keeps a piece and has it in the run's record.
func (e *Envs) keep(ctx context.Context, v *Env, what string, in io.Reader) (Piece, error) {
	p, err := e.maker.options.Records.Keep(ctx, v.Run, in)
	if err != nil {
		return p, err
	}
	p.What, p.Env, p.Instance = what, v.ID, v.Instance
	if o := e.boxes.policy(v.Run).Observer; o != nil {
		o.EnvKept(v.Step, p)
	}
	return p, nil
}

// keepCalls moves the log of a deployment's calls from the run's folder into its record. A log that can't be kept stays where it is.
func (e *Envs) keepCalls(ctx context.Context, v *Env) error {
	if v.calls == "" {
		return nil
	}
	f, err := os.Open(v.calls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := e.keep(context.WithoutCancel(ctx), v, PieceCalls, f); err != nil {
		return fmt.Errorf("keep the log of the calls of %s: %w", diag.Repr(v.ID), err)
	}
	if err := os.Remove(v.calls); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(v.calls)) // the last one's; others' logs keep it
	return nil
}
