package term

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrNoTerminal: a question had nobody to answer it.
	ErrNoTerminal = errors.New("there is no terminal to ask on")
	// ErrAborted: the person ended the input, or the command was interrupted, instead of answering.
	ErrAborted = errors.New("aborted")
)

// CanAsk tells whether a person sees questions and can answer them.
func (s *Streams) CanAsk() bool { return s.InTTY && s.ErrTTY }

// Confirm asks a yes-or-no question; an empty answer is no. Off a terminal it is refused, naming the flag that answers.
func (s *Streams) Confirm(ctx context.Context, question, flag string) (bool, error) {
	question = Clean(question)
	if !s.CanAsk() {
		return false, fmt.Errorf("%s %w; pass %s", question, ErrNoTerminal, flag)
	}
	for {
		fmt.Fprintf(s.Err, "%s [y/N]: ", question)
		answer, err := s.line(ctx)
		if err != nil {
			s.Problem("")
			return false, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return true, nil
		case "", "n", "no":
			return false, nil
		}
		s.Problem("Please answer y or n.")
	}
}

// Ask shows a text and reads a line behind a mark: what bars there are leave the screen meanwhile. An empty line asks again. ErrNoTerminal off a terminal,
// ErrAborted when the input ends or ctx does.
func (s *Streams) Ask(ctx context.Context, text, mark string) (string, error) {
	if !s.CanAsk() {
		return "", ErrNoTerminal
	}
	defer s.con.hold()()
	for line := range strings.Lines(text) {
		s.Problem("%s", Clean(strings.TrimRight(line, "\n")))
	}
	for {
		s.con.mu.Lock()
		_, err := io.WriteString(s.file(s.Err), Clean(mark))
		s.con.mu.Unlock()
		if err != nil {
			return "", fmt.Errorf("ask: %w", err)
		}
		answer, err := s.line(ctx)
		if err != nil {
			s.Problem("")
			return "", err
		}
		if answer = strings.TrimRight(answer, "\r"); strings.TrimSpace(answer) != "" {
			return answer, nil
		}
	}
}

// line reads up to a newline, byte by byte, so that what follows stays for the next reader.
func (s *Streams) line(ctx context.Context) (string, error) {
	const longest = 4096 // what a terminal hands over at once
	var line []byte
	b := make([]byte, 1)
	for len(line) < longest {
		if err := s.readable(ctx); err != nil {
			return "", err
		}
		n, err := s.In.Read(b)
		if n == 0 && errors.Is(err, io.EOF) {
			return "", ErrAborted
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the answer: %w", err)
		}
		if n == 1 && b[0] == '\n' {
			break
		}
		line = append(line, b[:n]...)
	}
	return string(line), nil
}

// readable waits for input: a read that has begun can't be taken back when ctx ends, so none begins before there is something.
func (s *Streams) readable(ctx context.Context) error {
	const look = 50 // milliseconds between looks at ctx
	for {
		if ctx.Err() != nil {
			return ErrAborted
		}
		f, ok := s.In.(*os.File)
		if !ok {
			return nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, look)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the answer: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
}
