package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"agentenv.internal/agentenv/sdk/wire"
)

const trajectoryPath = "/ext/trajectory"

// Bounds of a page of events. It always has one, however large.
const (
	maxPage      = 1000
	maxPageBytes = 4 << 20
)

// WithTrajectory lets callers read what turns record, while they run and afterwards.
func WithTrajectory() Option { return func(a *Agent) { a.trajectory = true } }

func (a *Agent) trajectoryExtension() (extension, bool, error) {
	if !a.trajectory {
		return extension{}, false, nil
	}
	const request = `{"oneOf":[{"required":["task_id"]},{"required":["task_id","objects"]},{"required":["context_id"]},{"required":["context_id","objects"]},` +
		`{"required":["task_id","after"],"optional":["limit"]},{"required":["context_id","after"],"optional":["limit"]}]}`
	return newExtension(wire.URNTrajectory, "Tells what a task or a context did.", trajectoryPath,
		operation{name: "get", verb: http.MethodPost, path: trajectoryPath, request: request, serve: a.getTrajectory})
}

// trajectoryRequest asks for the trajectory of a task or context: whole, by upload, or a page.
type trajectoryRequest struct {
	task, context string
	object        *wire.WriteObject
	paged         bool
	after, limit  int64
}

func decodeTrajectory(body []byte) (trajectoryRequest, error) {
	f, err := readFields(body, "task_id", "context_id", "objects", "after", "limit")
	if err != nil {
		return trajectoryRequest{}, err
	}
	if f.has("task_id") == f.has("context_id") {
		f.fail("task_id", "want either it or context_id")
	}
	r := trajectoryRequest{task: f.text("task_id", false), context: f.text("context_id", false), paged: f.has("after")}
	switch {
	case r.paged && f.has("objects"):
		f.fail("after", "objects hold whole trajectories")
	case !r.paged && f.has("limit"):
		f.fail("limit", "it goes with after")
	}
	r.after = f.integer("after", 0, math.MaxInt64, 0)
	r.limit = f.integer("limit", 1, maxPage, maxPage)
	r.object = member(f, "objects", false, func(b []byte) (*wire.WriteObject, error) {
		o, err := readFields(b, "trajectory")
		if err != nil {
			return nil, err
		}
		w := writeObject(o, "trajectory", "application/json", true)
		return w, o.err()
	})
	return r, f.err()
}

// writeObject reads a grant to write an object of a media type.
func writeObject(f *fields, name, media string, required bool) *wire.WriteObject {
	if !f.has(name) {
		if required {
			f.fail(name, "it is missing")
		}
		return nil
	}
	o, err := wire.ParseWriteObject(f.values[name])
	switch {
	case err != nil:
		f.fail(name, "%v", err)
	case o.MediaType != media:
		f.fail(name+".media_type", "want %s", media)
	}
	return &o
}

// readObject is writeObject for reading.
func readObject(f *fields, name, media string, required bool) *wire.ReadObject {
	if !f.has(name) {
		if required {
			f.fail(name, "it is missing")
		}
		return nil
	}
	o, err := wire.ParseReadObject(f.values[name])
	switch {
	case err != nil:
		f.fail(name, "%v", err)
	case o.MediaType != media:
		f.fail(name+".media_type", "want %s", media)
	}
	return &o
}

func (a *Agent) getTrajectory(ctx context.Context, body []byte) (any, error) {
	r, err := decodeTrajectory(body)
	if err != nil {
		return nil, err
	}
	if r.paged {
		return a.tasks.page(r)
	}
	whole, err := a.tasks.whole(r)
	if err != nil {
		return nil, err
	}
	if r.object == nil {
		return map[string]any{"trajectory": whole}, nil
	}
	up, err := a.transfers.Put(ctx, *r.object, bytes.NewReader(whole))
	if err != nil {
		return nil, err
	}
	return map[string]any{"objects": map[string]any{"trajectory": up}}, nil
}

// format names the form of a task's events, before the first.
func (s *store) format(t *task, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "":
		return errors.New("a trajectory's format needs a name")
	case len(t.events) > 0 && t.form != name:
		return errors.New("a trajectory's format must be named before its first event")
	}
	t.form = name
	return nil
}

func (s *store) record(t *task, raw json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case wire.TaskEnded(t.state):
		return nil
	case t.logged+len(raw) > maxLog:
		return fmt.Errorf("record an event: the trajectory would have more than %d bytes", maxLog)
	}
	t.logged += len(raw)
	s.keep(t, len(raw))
	t.events = append(t.events, raw)
	return nil
}

// asked are the tasks that a request is about.
func (s *store) asked(r trajectoryRequest) ([]*task, error) {
	if r.task != "" {
		t := s.tasks[r.task]
		if t == nil {
			return nil, Refuse(http.StatusNotFound, "there is no such task")
		}
		s.touch(s.contexts[t.context])
		return []*task{t}, nil
	}
	c := s.contexts[r.context]
	if c == nil || len(c.tasks) == 0 {
		return nil, Refuse(http.StatusNotFound, "there is no such context")
	}
	s.touch(c)
	return c.tasks, nil
}

// whole is a trajectory as one JSON text: of a task what its turn returned, else what was recorded; of a context all that was recorded.
func (s *store) whole(r trajectoryRequest) (json.RawMessage, error) {
	s.mu.Lock()
	tasks, err := s.asked(r)
	var events []json.RawMessage
	var native json.RawMessage
	if err == nil && r.task != "" && !wire.TaskEnded(tasks[0].state) {
		err = Refuse(http.StatusNotFound, "the task hasn't ended: read its events with after")
	}
	for _, t := range tasks {
		events = append(events, t.events...)
	}
	if err == nil && r.task != "" {
		if native = tasks[0].native; native == nil && len(events) == 0 {
			err = Refuse(http.StatusNotFound, "the task recorded nothing")
		}
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case native != nil:
		var b bytes.Buffer
		if err := json.Compact(&b, native); err != nil {
			return nil, fmt.Errorf("the trajectory that the turn returned is no JSON: %w", err)
		}
		return b.Bytes(), nil
	}
	return append(append(json.RawMessage("["), bytes.Join(raws(events), []byte(","))...), ']'), nil
}

func raws(in []json.RawMessage) [][]byte {
	out := make([][]byte, len(in))
	for i, r := range in {
		out[i] = r
	}
	return out
}

// page is some events of a trajectory, and where it stands.
type page struct {
	ContextID string            `json:"context_id"`
	TaskID    string            `json:"task_id"` // of a context, the first that hasn't ended, else the last
	State     string            `json:"state"`
	Format    string            `json:"format,omitempty"`
	Events    []json.RawMessage `json:"events"`
	Next      int64             `json:"next"`
	HasMore   bool              `json:"has_more"`
}

func (s *store) page(r trajectoryRequest) (page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks, err := s.asked(r)
	if err != nil {
		return page{}, err
	}
	total := int64(0)
	for _, t := range tasks {
		total += int64(len(t.events))
	}
	if r.after > total {
		return page{}, invalid("after: the trajectory has %d events", total)
	}
	p := standing(tasks)
	p.Events = []json.RawMessage{}
	size, at := 0, int64(0)
	for _, t := range tasks {
		if end := at + int64(len(t.events)); r.after+int64(len(p.Events)) >= end {
			at = end
			continue
		}
		for _, e := range t.events[r.after+int64(len(p.Events))-at:] {
			if int64(len(p.Events)) >= r.limit || len(p.Events) > 0 && size+len(e) > maxPageBytes {
				break
			}
			size += len(e)
			p.Events = append(p.Events, e)
		}
		if at += int64(len(t.events)); r.after+int64(len(p.Events)) < at {
			break
		}
	}
	p.Next = r.after + int64(len(p.Events))
	p.HasMore = p.Next < total
	return p, nil
}

// standing is a page without events.
func standing(tasks []*task) page {
	cur := tasks[len(tasks)-1]
	for _, t := range tasks {
		if !wire.TaskEnded(t.state) {
			cur = t
			break
		}
	}
	p := page{ContextID: cur.context, TaskID: cur.id, State: cur.state}
	switch cur.state {
	case wire.TaskSubmitted:
		p.State = "pending"
	case wire.TaskWorking:
		p.State = "running"
	}
	for _, t := range tasks {
		if t.form != "" {
			p.Format = t.form
		}
	}
	return p
}
