package verb

import (
	"context"
	"sync"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/term"
)

// Works shows work that a deployment waits for: on a terminal a bar for each piece, with how long it has taken and the last line that it wrote, elsewhere
// one line when it begins, nothing when quiet. Its methods may be called from several goroutines.
type Works struct {
	s        *term.Streams
	progress *term.Progress

	mu   sync.Mutex
	bars map[int64]*workBar
}

type workBar struct {
	*term.Bar
	done int64
}

// NewWorks shows work among the bars of p, which stays the caller's.
func NewWorks(s *term.Streams, p *term.Progress) *Works {
	return &Works{s: s, progress: p, bars: map[int64]*workBar{}}
}

// Show shows a piece of work; before is what it stands behind, "" for nothing.
func (w *Works) Show(before string, k deploy.Work) {
	if before != "" {
		before += " "
	}
	label := before + term.Clean(k.String())
	if !w.progress.Live() {
		if k.State == deploy.WorkBegun {
			w.s.Note("%s …", label)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	bar := w.bars[k.ID]
	if k.Ended() {
		if bar != nil {
			delete(w.bars, k.ID)
			bar.Done()
		}
		return
	}
	if bar == nil {
		unit := term.Elapsed
		if k.Total > 0 || k.Done > 0 {
			unit = term.Bytes
		}
		bar = &workBar{Bar: w.progress.Bar(label, k.Total, unit)}
		w.bars[k.ID] = bar
	}
	if k.Note != "" {
		label += ": " + term.Clean(k.Note)
	}
	bar.SetLabel(label)
	bar.SetTotal(k.Total)
	bar.Add(k.Done - bar.done)
	bar.done = k.Done
}

// Working shows what a deployment tells of work until end is called.
func Working(ctx context.Context, p *Program) (tell func(deploy.Work), end func()) {
	shown := p.Streams.NewProgress(ctx)
	works := NewWorks(p.Streams, shown)
	return func(k deploy.Work) { works.Show("", k) }, shown.Close
}
