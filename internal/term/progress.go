package term

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

const (
	// showAfter is how long work may last before its progress is worth a line.
	showAfter = time.Second
	// plainEvery is the time between the lines of one Bar off a terminal.
	plainEvery = 5 * time.Second
)

// Unit is what a Bar counts.
type Unit int

const (
	Count Unit = iota
	Bytes
	Elapsed // nothing: how long it takes is all there is to show
)

func (u Unit) spell(n int64) string {
	if u == Bytes {
		return Size(n)
	}
	return fmt.Sprint(n)
}

// Progress shows how far pieces of work are: live bars on a terminal once the work has lasted a second, now and then a line elsewhere,
// nothing when quiet. Lines printed through the same Streams meanwhile stand above the bars. Close ends it; the bars leave the screen.
type Progress struct {
	s    *Streams
	mode mode

	mu     sync.Mutex
	bars   map[*Bar]bool
	timer  *time.Timer // starts the bars
	mpb    *mpb.Progress
	screen *screen
	closed bool
}

type mode int

const (
	silent mode = iota
	plain
	live
)

// NewProgress begins to show progress on Err. Of several at one time only the first has live bars. The caller closes it.
func (s *Streams) NewProgress(ctx context.Context) *Progress {
	p := &Progress{s: s, mode: plain, bars: map[*Bar]bool{}}
	switch {
	case s.Quiet:
		p.mode = silent
	case s.ErrTTY && !s.dumb() && s.Width() > 0:
		p.mode = live
		p.timer = time.AfterFunc(showAfter, func() { p.start(ctx) })
	}
	return p
}

// Live tells whether bars are drawn; elsewhere lines are printed, or nothing.
func (p *Progress) Live() bool { return p.mode == live }

// Bar adds a piece of work. A total of 0 is not known yet. The caller ends it by Done or Fail.
func (p *Progress) Bar(label string, total int64, unit Unit) *Bar {
	now := time.Now()
	b := &Bar{p: p, unit: unit, began: now, said: now.Add(showAfter - plainEvery)}
	b.total.Store(total)
	b.SetLabel(label)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bars[b] = true
	if p.mpb != nil {
		b.show()
	}
	return b
}

// Close ends every bar and clears the screen. It is legal more than once.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.mpb == nil {
		return
	}
	con := p.s.con
	con.mu.Lock()
	p.screen.end()
	con.live = nil
	con.mu.Unlock()
	p.mpb.Shutdown()
}

// start puts the bars on the screen.
func (p *Progress) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || ctx.Err() != nil {
		return
	}
	con := p.s.con
	con.mu.Lock()
	if con.live != nil {
		con.mu.Unlock()
		return
	}
	p.screen = &screen{con: con, f: p.s.file(p.s.Err)}
	con.live = p.screen
	con.mu.Unlock()
	p.mpb = mpb.NewWithContext(ctx, mpb.WithConsoleWriter(p.screen))
	for b := range p.bars {
		b.show()
	}
}

// Bar is one piece of work. Its methods may be called from several goroutines.
type Bar struct {
	p           *Progress
	unit        Unit
	began       time.Time
	done, total atomic.Int64
	label       atomic.Pointer[string]

	mu   sync.Mutex
	said time.Time // of the last plain line

	bar *mpb.Bar // under p.mu
}

// SetLabel changes the words before the bar.
func (b *Bar) SetLabel(label string) {
	label = Clean(label)
	b.label.Store(&label)
}

// SetTotal tells how much there is to do.
func (b *Bar) SetTotal(total int64) {
	b.total.Store(total)
	b.update()
}

// Add tells that n more are done.
func (b *Bar) Add(n int64) {
	b.done.Add(n)
	b.update()
}

// Reader counts what is read through it.
func (b *Bar) Reader(r io.Reader) io.Reader { return &barReader{r, b} }

type barReader struct {
	r io.Reader
	b *Bar
}

func (r *barReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.b.Add(int64(n))
	}
	return n, err
}

// Done ends work that succeeded.
func (b *Bar) Done() { b.end("done in") }

// Fail ends work that did not. It does nothing after Done, so that it can be deferred.
func (b *Bar) Fail() { b.end("stopped after") }

func (b *Bar) end(how string) {
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if !b.p.bars[b] {
		return
	}
	delete(b.p.bars, b)
	if b.bar != nil {
		b.bar.Abort(true)
	}
	if took := time.Since(b.began); b.p.mode == plain && took >= showAfter {
		b.p.s.Note("%s: %s %.1fs", *b.label.Load(), how, took.Seconds())
	}
}

// update says plain lines; live bars look at the numbers when they are drawn.
func (b *Bar) update() {
	if b.p.mode != plain {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.said) >= plainEvery {
		b.said = now
		b.p.s.Note("%s", strings.TrimSuffix(*b.label.Load()+": "+b.count(), ": "))
	}
}

// count is "3/12", "1.0 MB/2.5 MB", or the first half alone; "" where nothing is counted.
func (b *Bar) count() string {
	if b.unit == Elapsed {
		return ""
	}
	text := b.unit.spell(b.done.Load())
	if total := b.total.Load(); total > 0 {
		text += "/" + b.unit.spell(total)
	}
	return text
}

// elapsedRoom is what the time of a bar takes that counts nothing.
const elapsedRoom = 10

// show makes the live bar. It never completes by itself: a full bar stays until its work ends. The caller holds p.mu.
func (b *Bar) show() {
	columns := max(b.p.s.Width(), 20)
	room, beside := columns/2, decor.WCSyncSpaceR
	if b.unit == Elapsed { // no bar needs the room, and the bars of others don't move for it
		room, beside = columns-elapsedRoom, decor.WC{}
	}
	label := decor.Any(func(decor.Statistics) string { return shorten(*b.label.Load(), room) }, beside)
	tail := decor.Any(func(decor.Statistics) string {
		return fmt.Sprintf(" %s%ds", strings.TrimPrefix(b.count()+"  ", "  "), int(time.Since(b.began).Seconds()))
	})
	style := mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]").Build()
	filler := mpb.BarFillerFunc(func(w io.Writer, st decor.Statistics) error {
		if b.unit == Elapsed {
			return nil
		}
		st.Current, st.Total = b.done.Load(), b.total.Load()
		return style.Fill(w, st)
	})
	b.bar, _ = b.p.mpb.Add(1, filler, mpb.BarWidth(min(columns/4, 30)), mpb.PrependDecorators(label), mpb.AppendDecorators(tail))
}
