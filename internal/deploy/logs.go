package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"agentenv.internal/agentenv/internal/envstore"
)

// Keys of a snapshot's metadata.
const (
	KeptCalls   = "env_trajectory" // the log of calls, a JSON object a line
	KeptChanges = "env_changes"    // the log of changes, likewise
)

const (
	// logLimit bounds reading either log.
	logLimit = 5 * time.Minute
	// changesPage is how many rows are asked for at a time.
	changesPage = 10_000
)

// errNoCalls: there is no log of calls to be kept.
var errNoCalls = errors.New("no log of calls is kept")

// putLogs adds the logs that a snapshot asks for. One that can't be read is left out, and Missed told; the error is put's.
func (v *Env) putLogs(ctx context.Context, o Snapshot, put func(envstore.Piece) error) error {
	for _, l := range []struct {
		asked bool
		key   string
		file  string
		open  func(context.Context) (io.ReadCloser, error)
	}{
		{o.Calls, KeptCalls, "trajectory.jsonl", func(context.Context) (io.ReadCloser, error) {
			r, err := v.Gateway.Calls()
			if err == nil && r == nil {
				err = errNoCalls
			}
			return r, err
		}},
		{o.Changes, KeptChanges, "changes.jsonl", v.changes},
	} {
		if !l.asked {
			continue
		}
		if err := putLog(ctx, l.key, l.file, l.open, put, o.Missed); err != nil {
			return err
		}
	}
	return nil
}

func putLog(ctx context.Context, key, file string, open func(context.Context) (io.ReadCloser, error), put func(envstore.Piece) error, missed func(string, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, logLimit, fmt.Errorf("it took more than %s", logLimit))
	defer cancel()
	r, err := open(ctx)
	if err != nil {
		if missed != nil {
			missed(key, caused(ctx, err))
		}
		return nil
	}
	defer r.Close()
	return put(envstore.Piece{Folder: "metadata/" + key, File: file, Reader: r})
}

// changes reads the log of changes a page at a time. Its first page is read at once, so that a database that can't be asked is told before anything is put.
func (v *Env) changes(ctx context.Context) (io.ReadCloser, error) {
	rows, err := v.Gateway.Changes(ctx, 0, changesPage)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(v.writeChanges(ctx, w, rows))
	}()
	return &changesReader{PipeReader: r, done: done}, nil
}

// changesReader waits for what writes it.
type changesReader struct {
	*io.PipeReader
	done chan struct{}
}

func (r *changesReader) Close() error {
	err := r.PipeReader.Close()
	<-r.done
	return err
}

func (v *Env) writeChanges(ctx context.Context, w io.Writer, rows []json.RawMessage) error {
	b := bufio.NewWriter(w)
	for {
		var last struct{ ID int64 }
		for _, row := range rows {
			if err := json.Unmarshal(row, &last); err != nil {
				return err
			}
			if _, err := b.Write(append(row, '\n')); err != nil {
				return err
			}
		}
		if len(rows) < changesPage {
			return b.Flush()
		}
		var err error
		if rows, err = v.Gateway.Changes(ctx, last.ID, changesPage); err != nil {
			return err
		}
	}
}
