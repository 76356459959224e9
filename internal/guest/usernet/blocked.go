package usernet

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// Bounds of the log, which a hostile box writes at will.
const (
	maxLog    = 1 << 20
	maxTracks = 4096 // destinations told apart; later ones are not logged
)

// blockedLog writes one line of JSON per destination, and again at each tenfold count.
type blockedLog struct {
	mu    sync.Mutex
	w     io.Writer // nil: nothing is written
	size  int
	count map[guest.Blocked]int
	full  bool // the log has said that it is full
}

func newBlockedLog(w io.Writer) *blockedLog {
	return &blockedLog{w: w, count: map[guest.Blocked]int{}}
}

// add tells of one refusal. b.Time and b.Count are set here.
func (l *blockedLog) add(b guest.Blocked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Time, b.Count = time.Time{}, 0
	n, known := l.count[b]
	if !known && len(l.count) >= maxTracks {
		l.overflow()
		return
	}
	n++
	l.count[b] = n
	if !powerOfTen(n) {
		return
	}
	b.Count = n
	l.write(b)
}

func (l *blockedLog) overflow() {
	if !l.full {
		l.full = true
		l.write(guest.Blocked{Why: "more destinations were tried than are logged", Count: 1})
	}
}

func (l *blockedLog) write(b guest.Blocked) {
	if l.w == nil {
		return
	}
	b.Time = time.Now().UTC()
	line, err := json.Marshal(b)
	if err != nil || l.size+len(line)+1 > maxLog {
		return
	}
	l.size += len(line) + 1
	_, _ = l.w.Write(append(line, '\n')) // a full disk must not stop the network
}

func powerOfTen(n int) bool {
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}
