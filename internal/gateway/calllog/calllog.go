// Package calllog is the gateway's record of what was called: one JSON object a line, appended, never rewritten.
//
// An event is written before whoever caused it is answered, so that a killed process has lost nothing that somebody was told; a group of events is
// synced to the disk within a second. Secrets are taken out by value. The log holds no more in memory than the line under way, and of a large result a part.
package calllog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/internal/redact"
)

// syncEvery is how long an event may wait for the disk.
const syncEvery = time.Second

// Options say where the log is.
type Options struct {
	Path   string                   // "" keeps no log, but counts events all the same
	Redact *redact.Redactor         // nil: nothing is secret
	Clock  func() (string, bool)    // the virtual time while one is set; nil: never
	Now    func() time.Time         // nil: time.Now
	Seen   func(id string, e Event) // told of each event as it is written, under the log's lock; may be nil
}

// Log is one log. Its methods may be called from several goroutines.
type Log struct {
	o     Options
	stop  context.CancelFunc
	wg    sync.WaitGroup
	dirty chan struct{}

	mu   sync.Mutex
	f    *os.File
	n    uint64 // events so far, which is the last id
	size int64
	buf  []byte
	err  error // the log can't be written any more
}

// Event is one line. Members are appended as they are, in this order: members, then those that the log adds.
type Event struct {
	Type    string
	Members []byte      // `"tool":"x","role":"y"`, without braces; may be empty
	Value   io.WriterTo // of the member Name, when that isn't ""; valid JSON of any size
	Name    string
	After   []byte // more members, as Members
}

// Open opens the log at its end. A line that a killed process left half written is cut off. ctx is only the parent of what syncs; Close ends it.
func Open(ctx context.Context, o Options) (*Log, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{o: o, dirty: make(chan struct{}, 1)}
	if o.Path == "" {
		return l, nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(o.Path)); err != nil {
		return nil, fmt.Errorf("make the call log's folder: %w", err)
	}
	f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the call log: %w", err)
	}
	l.f = f
	if err := l.recover(); err != nil {
		f.Close()
		return nil, fmt.Errorf("read the call log %s: %w", o.Path, err)
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.wg.Go(func() { l.syncLoop(ctx) })
	return l, nil
}

// recover counts the lines, since ids go on, and drops a torn one.
func (l *Log) recover() error {
	buf := make([]byte, 256<<10)
	var off, whole int64
	for {
		n, err := l.f.ReadAt(buf, off)
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			whole = off + int64(i) + 1
		}
		l.n += uint64(bytes.Count(buf[:n], []byte{'\n'}))
		off += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	l.size = whole
	if whole < off {
		return l.f.Truncate(whole)
	}
	return nil
}

func (l *Log) syncLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.dirty:
		}
		t := time.NewTimer(syncEvery)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		if err := l.f.Sync(); err != nil {
			l.fail(fmt.Errorf("sync the call log: %w", err))
		}
	}
}

func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// Err tells why the log can't be written; then nothing may be called any more that would go unrecorded.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close syncs and closes.
func (l *Log) Close() error {
	if l.f == nil {
		return nil
	}
	l.stop()
	l.wg.Wait()
	err := l.f.Sync()
	if cerr := l.f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("close the call log: %w", err)
	}
	return nil
}

// Append writes one event and tells its id, "event_<n>".
func (l *Log) Append(e Event) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return "", l.err
	}
	l.n++
	id := "event_" + strconv.FormatUint(l.n, 10)
	if l.f != nil {
		if err := l.write(id, e); err != nil {
			l.n--
			return "", err
		}
	}
	if l.o.Seen != nil {
		l.o.Seen(id, e)
	}
	return id, nil
}

func (l *Log) write(id string, e Event) error {
	w := &lineWriter{l: l, buf: append(l.buf[:0], `{"event_type":`...)}
	w.buf = rawjson.AppendString(w.buf, e.Type)
	if len(e.Members) > 0 {
		w.buf = append(append(w.buf, ','), e.Members...)
	}
	if e.Name != "" {
		w.buf = append(w.buf, ',')
		w.buf = append(rawjson.AppendString(w.buf, e.Name), ':')
		if _, err := e.Value.WriteTo(w); err != nil {
			return l.torn(w, err)
		}
	}
	if len(e.After) > 0 {
		w.buf = append(append(w.buf, ','), e.After...)
	}
	w.buf = append(append(append(w.buf, `,"event_id":"`...), id...), `","timestamp_utc":"`...)
	w.buf = l.o.Now().UTC().AppendFormat(w.buf, "2006-01-02T15:04:05.000000+00:00")
	w.buf = append(w.buf, '"')
	if l.o.Clock != nil {
		if virtual, ok := l.o.Clock(); ok {
			w.buf = append(append(append(w.buf, `,"virtual_time":"`...), virtual...), '"')
		}
	}
	w.buf = append(w.buf, "}\n"...)
	err := w.end()
	if cap(w.buf) <= 2*chunk {
		l.buf = w.buf
	}
	if err != nil {
		return l.torn(w, err)
	}
	l.size += w.written
	select {
	case l.dirty <- struct{}{}:
	default:
	}
	return nil
}

// torn takes back a line that couldn't be written whole.
func (l *Log) torn(w *lineWriter, err error) error {
	if w.written > 0 || w.tried {
		if terr := l.f.Truncate(l.size); terr != nil {
			l.err = fmt.Errorf("the call log ends in half a line that can't be cut off: %w", terr)
			return l.err
		}
	}
	return fmt.Errorf("write the call log: %w", err)
}

// chunk is how much of a line is held before it is written.
const chunk = 1 << 20

// lineWriter gathers a line and takes secrets out; what is larger than chunk is written in parts.
type lineWriter struct {
	l       *Log
	buf     []byte
	written int64
	tried   bool
	parts   bool // the line is written in parts, which are no JSON each
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := min(len(p)-n, chunk)
		w.buf = append(w.buf, p[n:n+k]...)
		n += k
		if len(w.buf) > chunk {
			if err := w.part(); err != nil {
				return n, err
			}
		}
	}
	return len(p), nil
}

// part writes what is gathered but for an end that may be the beginning of a secret, or half a character.
func (w *lineWriter) part() error {
	w.parts = true
	text, rest := w.buf, 0
	if r := w.l.o.Redact; r != nil {
		s := string(text)
		rest = r.Open(s)
		s = s[:len(s)-rest]
		if err := w.put([]byte(r.String(s))); err != nil {
			return err
		}
	} else if err := w.put(text); err != nil {
		return err
	}
	w.buf = append(w.buf[:0], text[len(text)-rest:]...)
	return nil
}

func (w *lineWriter) end() error {
	out := w.buf
	if r := w.l.o.Redact; r != nil {
		if w.parts {
			out = []byte(r.String(string(out)))
		} else {
			out = r.JSON(out)
		}
	}
	return w.put(out)
}

func (w *lineWriter) put(b []byte) error {
	w.tried = true
	n, err := w.l.f.Write(b)
	w.written += int64(n)
	return err
}

// Size is how many bytes of whole lines there are.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Reader reads the lines that are there now; close it. It is nil when no log is kept.
func (l *Log) Reader() (io.ReadCloser, int64, error) {
	if l.f == nil {
		return nil, 0, nil
	}
	f, err := os.Open(l.o.Path)
	if err != nil {
		return nil, 0, fmt.Errorf("read the call log: %w", err)
	}
	size := l.Size()
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, size), f}, size, nil
}
