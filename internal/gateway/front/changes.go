package front

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"
)

// maxWindows bounds what is remembered of who wrote when; older writes lose their actors.
const maxWindows = 100_000

// window is a stretch of the log of changes, (before, after], during which somebody could write.
type window struct {
	before, after int64
	actor         json.RawMessage
}

// windows are those of this gateway's life, in the order in which the calls ended.
type windows struct {
	mu  sync.Mutex
	all []window
}

// add takes ids as lastChange gives them; a window without changes is none.
func (w *windows) add(before, after string, actor []byte) {
	b, _ := strconv.ParseInt(before, 10, 64) // of an empty log there is none, which counts as 0
	a, err := strconv.ParseInt(after, 10, 64)
	if err != nil || a <= b {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) >= maxWindows {
		w.all = slices.Delete(w.all, 0, maxWindows/10)
	}
	w.all = append(w.all, window{b, a, actor})
}

// attribute gives each row a member "actors": who could have written it.
func (w *windows) attribute(rows []json.RawMessage) []json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]json.RawMessage, len(rows))
	for i, row := range rows {
		var id struct{ ID int64 }
		_ = json.Unmarshal(row, &id) // a row without an id has no actors
		b := slices.Clone(row[:len(row)-1])
		b = append(b, `,"actors":[`...)
		first := true
		for _, win := range w.all {
			if win.before < id.ID && id.ID <= win.after {
				if !first {
					b = append(b, ',')
				}
				b, first = append(b, win.actor...), false
			}
		}
		out[i] = append(b, "]}"...)
	}
	return out
}
