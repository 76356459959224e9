package term

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
)

func TestPlainProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out, errs := Buffers("")
		p := s.NewProgress(t.Context())
		defer p.Close()
		quick := p.Bar("quick", 3, Count)
		quick.Add(3)
		quick.Done()
		slow := p.Bar("put\n x", 2_000_000, Bytes)
		for range 12 {
			time.Sleep(time.Second)
			slow.Add(100_000)
		}
		slow.Done()
		slow.Fail() // too late to say anything
		lost := p.Bar("lost", 0, Count)
		time.Sleep(2 * time.Second)
		lost.Add(7)
		lost.Fail()
		want := `put\n x: 100.0 kB/2.0 MB` + "\n" + `put\n x: 600.0 kB/2.0 MB` + "\n" + `put\n x: 1.1 MB/2.0 MB` + "\n" + `put\n x: done in 12.0s` + "\n" +
			"lost: 7\nlost: stopped after 2.0s\n"
		if errs.String() != want {
			t.Errorf("got\n%swant\n%s", errs, want)
		}
		if out.Len() > 0 {
			t.Errorf("progress on the results: %q", out)
		}
	})
}

func TestQuietProgressSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, errs := Buffers("")
		s.Quiet = true
		p := s.NewProgress(t.Context())
		b := p.Bar("work", 10, Count)
		time.Sleep(time.Minute)
		b.Add(10)
		b.Done()
		p.Close()
		if errs.Len() > 0 {
			t.Errorf("said %q", errs)
		}
	})
}

func TestBarReaderCounts(t *testing.T) {
	s, _, _ := Buffers("")
	p := s.NewProgress(t.Context())
	defer p.Close()
	b := p.Bar("copy", 5, Bytes)
	if n, err := io.Copy(io.Discard, b.Reader(strings.NewReader("hello"))); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if b.count() != "5 B/5 B" {
		t.Error(b.count())
	}
}

// tty is streams on a pseudo terminal whose output is collected.
type tty struct {
	*Streams
	mu   sync.Mutex
	got  bytes.Buffer
	done chan struct{}
	end  *os.File
}

func newTTY(t *testing.T, size pty.Winsize, kv ...string) *tty {
	t.Helper()
	us, it, err := pty.Open()
	if err != nil {
		t.Skip("needs a pseudo terminal:", err)
	}
	if err := pty.Setsize(us, &size); err != nil {
		t.Fatal(err)
	}
	s, _, _ := Buffers("")
	s.env = env(kv...)
	s.ErrTTY, s.OutTTY = true, true
	s.Err = &stream{con: s.con, w: it, tty: true}
	s.Out = &stream{con: s.con, w: it, tty: true, out: true}
	y := &tty{Streams: s, done: make(chan struct{}), end: it}
	go func() {
		defer close(y.done)
		b := make([]byte, 4096)
		for {
			n, err := us.Read(b)
			y.mu.Lock()
			y.got.Write(b[:n])
			y.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		y.finish()
		us.Close()
	})
	return y
}

// finish closes the terminal and answers all that was written to it.
func (y *tty) finish() string {
	y.end.Close()
	<-y.done
	return y.got.String()
}

func (y *tty) wait(t *testing.T, what string) {
	t.Helper()
	for range 1000 {
		y.mu.Lock()
		have := y.got.String()
		y.mu.Unlock()
		if strings.Contains(have, what) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never saw %q", what)
}

func TestBarsOnATerminal(t *testing.T) {
	y := newTTY(t, pty.Winsize{Rows: 24, Cols: 80})
	p := y.NewProgress(t.Context())
	b := p.Bar("first \x1b[2K", 10, Count)
	p.start(t.Context()) // as the timer would after a second
	b.Add(5)
	y.wait(t, `5/10`)
	y.Note("a note")
	y.Printf("half a ")
	y.Println("result")
	c := p.Bar("second "+strings.Repeat("文", 100), 0, Bytes)
	c.Add(1500)
	y.wait(t, "1.5 kB")
	b.Done()
	c.Fail()
	p.Close()
	p.Close()
	y.Println("the end")
	got := y.finish()
	screen := replay(got)
	if screen != "a note\nhalf a result\nthe end\n" {
		t.Errorf("left on the screen: %q\nwritten: %q", screen, got)
	}
	if !strings.Contains(got, `first \x1b[2K`) || strings.Contains(got, "\x1b[2K") {
		t.Errorf("the label was not cleaned: %q", got)
	}
	if !regexp.MustCompile(`\[=+>? +\] +5/10`).MatchString(got) {
		t.Errorf("no half-full bar: %q", got)
	}
}

func TestShortWorkShowsNoBar(t *testing.T) {
	y := newTTY(t, pty.Winsize{Rows: 24, Cols: 80})
	p := y.NewProgress(t.Context())
	b := p.Bar("quick", 1, Count)
	b.Add(1)
	b.Done()
	p.Close()
	if got := y.finish(); got != "" {
		t.Errorf("%q", got)
	}
}

func TestNoBarsWhereTheyWouldBreak(t *testing.T) {
	for name, y := range map[string]*tty{
		"dumb terminal": newTTY(t, pty.Winsize{Rows: 24, Cols: 80}, "TERM", "dumb"),
		"no columns":    newTTY(t, pty.Winsize{}),
	} {
		p := y.NewProgress(t.Context())
		if p.mode != plain {
			t.Errorf("%s: mode %v", name, p.mode)
		}
		p.Close()
	}
}

func TestBarsEndWithTheContext(t *testing.T) {
	y := newTTY(t, pty.Winsize{Rows: 24, Cols: 80})
	ctx, cancel := context.WithCancel(t.Context())
	p := y.NewProgress(ctx)
	p.Bar("work", 2, Count)
	p.start(ctx)
	y.wait(t, "0/2")
	cancel()
	y.Note("interrupted")
	p.Close()
	if screen := replay(y.finish()); screen != "interrupted\n" {
		t.Errorf("%q", screen)
	}
}

func TestOnlyOneProgressIsLive(t *testing.T) {
	y := newTTY(t, pty.Winsize{Rows: 24, Cols: 80})
	a, b := y.NewProgress(t.Context()), y.NewProgress(t.Context())
	a.start(t.Context())
	b.start(t.Context())
	if a.mpb == nil || b.mpb != nil {
		t.Error("two progresses draw on one screen")
	}
	b.Bar("unseen", 1, Count).Add(1)
	b.Close()
	if y.con.live != a.screen {
		t.Error("closing one ended the other")
	}
	a.Close()
}

// replay is what a terminal shows in the end: it knows lines, "cursor up" and "clear to the end".
func replay(written string) string {
	lines, row := []string{""}, 0
	up := regexp.MustCompile(`^\x1b\[(\d+)A\x1b\[J`)
	for written != "" {
		if m := up.FindStringSubmatch(written); m != nil {
			n := 0
			for _, c := range m[1] {
				n = n*10 + int(c-'0')
			}
			row -= n
			lines = append(lines[:row], "")
			written = written[len(m[0]):]
			continue
		}
		switch written[0] {
		case '\r':
		case '\n':
			row++
			lines = append(lines, "")
		default:
			lines[row] += written[:1]
		}
		written = written[1:]
	}
	return strings.Join(lines, "\n")
}
