package front

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/access"
)

// session is one MCP session of a client.
type session struct {
	id      string
	door    access.Principal // whose door it was begun at, and the only one it is known at
	role    string           // fixed for its life
	version string
	asks    map[string]bool // methods that its client can be asked: sampling/createMessage, elicitation/create

	used   atomic.Int64 // unix nanoseconds
	active atomic.Int32 // requests under way

	mu      sync.Mutex
	ended   chan struct{}
	over    bool
	calls   map[string]context.CancelCauseFunc // by the request's id as it was written
	pending map[string]chan []byte             // asked of the client; takes the member of its answer
	asked   uint64
	news    chan []byte // to the standing stream; nil while there is none
}

// sessions are those of all doors.
type sessions struct {
	most int
	idle time.Duration
	now  func() time.Time
	mu   sync.Mutex
	all  map[string]*session
}

func newSessions(most int, idle time.Duration, now func() time.Time) *sessions {
	return &sessions{most: most, idle: idle, now: now, all: map[string]*session{}}
}

// add begins a session; nil when there is room for none: the longest idle one makes room, but one with requests under way never does.
func (t *sessions) add(door access.Principal, role, version string, asks map[string]bool) *session {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it can't fail
	s := &session{id: hex.EncodeToString(b[:]), door: door, role: role, version: version, asks: asks, ended: make(chan struct{})}
	s.used.Store(t.now().UnixNano())
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= t.most {
		var oldest *session
		for _, o := range t.all {
			if o.active.Load() == 0 && (oldest == nil || o.used.Load() < oldest.used.Load()) {
				oldest = o
			}
		}
		if oldest == nil {
			return nil
		}
		delete(t.all, oldest.id)
		oldest.end()
	}
	t.all[s.id] = s
	return s
}

// get finds a session at the door that it was begun at, and notes its use.
func (t *sessions) get(id string, door access.Principal) *session {
	t.mu.Lock()
	s := t.all[id]
	t.mu.Unlock()
	if s == nil || s.door != door {
		return nil
	}
	s.used.Store(t.now().UnixNano())
	return s
}

func (t *sessions) remove(s *session) {
	t.mu.Lock()
	delete(t.all, s.id)
	t.mu.Unlock()
	s.end()
}

func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

func (t *sessions) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.all {
		delete(t.all, id)
		s.end()
	}
}

// expire ends sessions that nobody has used for long, until ctx ends.
func (t *sessions) expire(ctx context.Context) {
	tick := time.NewTicker(max(t.idle/10, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.sweep()
		}
	}
}

func (t *sessions) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.now().Add(-t.idle).UnixNano()
	for id, s := range t.all {
		if s.active.Load() == 0 && s.used.Load() < before {
			delete(t.all, id)
			s.end()
		}
	}
}

// listChanged tells every standing stream that tools/list has another answer now.
func (t *sessions) listChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all {
		s.tell([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	}
}

// tell sends a message on the standing stream, when there is one; a client that doesn't read loses it.
func (s *session) tell(msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news != nil {
		select {
		case s.news <- msg:
		default:
		}
	}
}

// end cancels what is under way.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	close(s.ended)
	for _, cancel := range s.calls {
		cancel(errSessionEnded)
	}
}

// begin makes a call known under its id, so that it can be cancelled; the answer undoes that.
func (s *session) begin(id string, cancel context.CancelCauseFunc) (done func()) {
	s.active.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		cancel(errSessionEnded)
	}
	if s.calls == nil {
		s.calls = map[string]context.CancelCauseFunc{}
	}
	s.calls[id] = cancel
	return func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
		s.active.Add(-1)
	}
}

// cancel ends a call by its id.
func (s *session) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[id]; cancel != nil {
		cancel(errCancelled)
	}
}

// listen opens the standing stream; false when there is one already.
func (s *session) listen() (<-chan []byte, func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news != nil {
		return nil, nil, false
	}
	s.news = make(chan []byte, 16)
	s.active.Add(1)
	return s.news, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.news = nil
		s.active.Add(-1)
	}, true
}
