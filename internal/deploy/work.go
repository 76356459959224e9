package deploy

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/redact"
)

// Work is how far something is that can take long before a sandbox or a server stands: packages that are installed, a folder that is built, an image that
// comes in. What needs no work, because it was done before, is not told of.
type Work struct {
	ID      int64  `json:"id"` // the same in all that is told of one piece of work, and in this process of no other
	Step    string `json:"step_id,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	What    string `json:"what"`          // "install requirements.txt", "pull registry.example/x:1"
	For     string `json:"for,omitempty"` // whom it is for: "mail"
	// Done are the bytes that have come in, of Total; both are 0 where nothing is counted, Total where it is not known.
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
	Note  string `json:"note,omitempty"` // the last line that it wrote, without secrets
	// State is WorkBegun the first time, WorkUnderWay then, and WorkDone or WorkFailed the last time. Why it failed is in the error of what needed it.
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"` // since it began
}

// States of a Work.
const (
	WorkBegun    = "begun"
	WorkUnderWay = "under_way"
	WorkDone     = "done"
	WorkFailed   = "failed"
)

// Ended tells whether it is the last that is told of the work.
func (w *Work) Ended() bool { return w.State == WorkDone || w.State == WorkFailed }

// String is the work in words: "install requirements.txt for 'mail'".
func (w *Work) String() string {
	if w.For == "" {
		return w.What
	}
	return w.What + " for " + diag.Repr(w.For)
}

// tellEvery is the least time between two reports of one piece of work, its first and last apart.
const tellEvery = 100 * time.Millisecond

// maxNote bounds the last line of a work's output.
const maxNote = 200

var works atomic.Int64 // IDs that were given

// work tells of one piece of work. A nil one tells nobody.
type work struct {
	tell func(Work)
	hide func(string) string

	mu    sync.Mutex
	w     Work
	began time.Time
	said  time.Time
	later *time.Timer // tells what was too early to be told; nil where nothing was
	lines [2][]byte   // that are being written, by stream
}

// work begins to tell of something that a run waits for; nil where nobody asked to be told. It is told of from begin on.
func (d *Deployments) work(r Request, what, of string) *work {
	tell := d.policy(r.Run).Tell
	if tell == nil {
		return nil
	}
	return &work{tell: tell, w: Work{ID: works.Add(1), Step: r.Step, Attempt: r.Attempt, What: what, For: of}}
}

// begin tells that the work begins, once.
func (k *work) begin() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
}

// start is called with mu held.
func (k *work) start() {
	if k.w.State == "" {
		k.began = time.Now()
		k.say(WorkBegun)
	}
}

// say is called with mu held, so that reports come in order.
func (k *work) say(state string) {
	now := time.Now()
	k.w.State, k.w.Seconds, k.said = state, float64(now.Sub(k.began).Microseconds())/1e6, now
	w := k.w
	if k.hide != nil {
		w.Note = k.hide(w.Note)
	}
	w.Note = short(w.Note)
	k.tell(w)
}

// update tells how far the work is, now or in a moment. It is called with mu held.
func (k *work) update() {
	switch wait := tellEvery - time.Since(k.said); {
	case wait <= 0:
		k.say(WorkUnderWay)
	case k.later == nil:
		k.later = time.AfterFunc(wait, k.updateLater)
	}
}

func (k *work) updateLater() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later = nil
	if !k.w.Ended() {
		k.update()
	}
}

// bytes tells how many have come in; it begins the work.
func (k *work) bytes(done, total int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.w.Ended() || done == 0 && total == 0 {
		return
	}
	k.w.Done, k.w.Total = done, total
	if k.w.State == "" {
		k.start() // it tells of them
		return
	}
	k.update()
}

// output is given what the work writes, by stream. It does not keep p.
func (k *work) output(stderr bool, p []byte) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	line := &k.lines[0]
	if stderr {
		line = &k.lines[1]
	}
	for {
		i := bytes.IndexAny(p, "\r\n")
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if room := maxLine - len(*line); room > 0 {
			*line = append(*line, part[:min(len(part), room)]...)
		}
		if i < 0 {
			break
		}
		if text := strings.TrimSpace(diag.Clean(strings.ToValidUTF8(string(*line), "�"))); text != "" {
			k.w.Note = text
		}
		*line, p = (*line)[:0], p[i+1:]
	}
	if k.w.State != "" && !k.w.Ended() {
		k.update()
	}
}

// maxLine bounds what is kept of a line until its end: secrets are looked for in it before it is cut.
const maxLine = 4096

// end tells how work ended that has begun.
func (k *work) end(err error) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.later != nil {
		k.later.Stop() // one that is under way finds that the work has ended
	}
	switch {
	case k.w.State == "" || k.w.Ended():
	case err != nil:
		k.say(WorkFailed)
	default:
		k.say(WorkDone)
	}
}

// hide takes secrets out of what an installer or a build wrote: those that are known, and whoever URLs sign in as.
func (m *maker) hide(text string) string { return withoutUsers(m.options.Redact.String(text)) }

// withoutUsers takes the names and passwords out of the URLs in a text. What may stand in a password ends none: rather too much is taken out.
func withoutUsers(text string) string { return redact.Users(text, "/?# \t\r\n\"`<>[]{}|") }

// short is a line as it is shown.
func short(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote], "") + "…"
}
