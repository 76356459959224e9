// Package term is the one place that touches the process's streams: results go to Out, everything else to Err.
//
// Streams is a value, so that tests run commands on buffers. It knows which of its streams are terminals, and decides about colour,
// live bars and questions: none of them appears where no person looks. Lists are Tables, long work has a Progress.
// What is printed is the caller's business; text from outside goes through Clean first (Table, Bar and Confirm do that themselves).
package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	xterm "golang.org/x/term"
)

// Streams are where a command reads and writes. The writers may be used from several goroutines.
type Streams struct {
	In  io.Reader
	Out io.Writer // results, and what scripts rely on
	Err io.Writer // progress, notes, questions, problems

	InTTY, OutTTY, ErrTTY bool
	Quiet                 bool // Note, Detail and Progress say nothing
	Verbose               bool // Detail speaks

	color string // "auto", "always" or "never"
	env   func(string) (string, bool)
	con   *console
}

// console is what the writers of one Streams share: a live screen takes every line that goes to the same terminal.
type console struct {
	mu     sync.Mutex
	live   *screen
	held   int   // how many questions keep it off the terminal
	failed error // of the first write to Out that failed
}

// stream is one output. Lines for a terminal that shows bars are put above them.
type stream struct {
	con *console
	w   io.Writer
	tty bool
	out bool
}

func (s *stream) Write(b []byte) (int, error) {
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	var n int
	var err error
	if s.con.live != nil && s.tty {
		n, err = s.con.live.above(s.w, b)
	} else {
		n, err = s.w.Write(b)
	}
	if err != nil && s.out && s.con.failed == nil {
		s.con.failed = err
	}
	return n, err
}

// System is the streams of this process. env looks environment variables up, as os.LookupEnv does.
func System(env func(string) (string, bool)) *Streams {
	s := &Streams{
		In:     os.Stdin,
		InTTY:  xterm.IsTerminal(int(os.Stdin.Fd())),
		OutTTY: xterm.IsTerminal(int(os.Stdout.Fd())),
		ErrTTY: xterm.IsTerminal(int(os.Stderr.Fd())),
		color:  "auto",
		env:    env,
		con:    &console{},
	}
	s.Out = &stream{con: s.con, w: os.Stdout, tty: s.OutTTY, out: true}
	s.Err = &stream{con: s.con, w: os.Stderr, tty: s.ErrTTY}
	return s
}

// Buffers are streams for tests: no terminal, no colour, input from in.
func Buffers(in string) (s *Streams, out, err *bytes.Buffer) {
	out, err = &bytes.Buffer{}, &bytes.Buffer{}
	s = &Streams{
		In:    strings.NewReader(in),
		color: "auto",
		env:   func(string) (string, bool) { return "", false },
		con:   &console{},
	}
	s.Out = &stream{con: s.con, w: out, out: true}
	s.Err = &stream{con: s.con, w: err}
	return s, out, err
}

// Files are the process's own files behind the streams, for handing to a child; nil for a stream that is none.
func (s *Streams) Files() (in, out, err *os.File) {
	in, _ = s.In.(*os.File)
	return in, s.file(s.Out), s.file(s.Err)
}

func (s *Streams) file(w io.Writer) *os.File {
	if st, ok := w.(*stream); ok {
		w = st.w
	}
	f, _ := w.(*os.File)
	return f
}

// Printf prints a result.
func (s *Streams) Printf(format string, args ...any) { fmt.Fprintf(s.Out, format, args...) }

// Println prints a result's line.
func (s *Streams) Println(args ...any) { fmt.Fprintln(s.Out, args...) }

// JSON prints v on one line of Out.
func (s *Streams) JSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := s.Out.Write(b.Bytes())
	return err
}

// Note prints a line about what is being done.
func (s *Streams) Note(format string, args ...any) {
	if !s.Quiet {
		s.Problem(format, args...)
	}
}

// Detail prints a line for those who asked to be told more.
func (s *Streams) Detail(format string, args ...any) {
	if s.Verbose {
		s.Note(format, args...)
	}
}

// Problem prints a line that nobody can turn off.
func (s *Streams) Problem(format string, args ...any) {
	fmt.Fprintf(s.Err, format+"\n", args...) // one write, so that lines of several processes don't mix
}

// Failed is the first error met in writing results (a full disk, a closed pipe): a command that lost its output has failed.
func (s *Streams) Failed() error {
	s.con.mu.Lock()
	defer s.con.mu.Unlock()
	if s.con.failed == nil {
		return nil
	}
	return fmt.Errorf("write the result: %w", s.con.failed)
}

// Width is the columns of the terminal that Err is; 0 when it is none, or has no size.
func (s *Streams) Width() int {
	f := s.file(s.Err)
	if f == nil || !s.ErrTTY {
		return 0
	}
	w, _, err := xterm.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}

// dumb terminals can't move their cursor.
func (s *Streams) dumb() bool {
	v, _ := s.env("TERM")
	return v == "dumb"
}
