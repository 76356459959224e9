package sandboxtest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// addUsers gives the box users whose ids and groups the suite knows.
func addUsers(t *testing.T, b guest.Box) {
	t.Helper()
	script := `echo 'worker:x:1234:1235:A worker:/tmp/worker:/bin/sh' >>/etc/passwd
echo 'workers:x:1235:' >>/etc/group; echo 'more:x:1236:other,worker' >>/etc/group
mkdir -p /tmp/worker && chmod 755 /tmp/worker`
	if r := output(t, b, sh(script), guest.Limits{}); !r.Exit.OK() {
		t.Fatalf("add users: %+v %s", r.Exit, r.Stderr.String())
	}
}

func user(t *testing.T, s *suite) {
	box := s.box(t)
	addUsers(t, box)
	who := func(name string) (string, error) {
		c := sh(`id -u; id -g; id -G; echo $HOME; pwd; echo $USER; touch "$HOME/mine" 2>/dev/null; cat /proc/self/status | grep ^CapEff`)
		c.User = name
		r, err := guest.Output(t.Context(), box, c, guest.Limits{})
		return strings.Join(strings.Fields(r.Stdout.String()), " "), err
	}
	for _, name := range []string{"root", "0"} {
		got, err := who(name)
		if err != nil || !strings.HasPrefix(got, "0 0 0 /root /root root CapEff:") {
			t.Errorf("as %s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"nobody-of-that-name", "worker:no-such-group"} {
		if _, err := who(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("as %s: %v, want fs.ErrNotExist", name, err)
		}
	}
	for _, name := range []string{":", "worker:", ":more"} {
		if _, err := who(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("as %q: %v, want fs.ErrInvalid", name, err)
		}
	}
	const none = " CapEff: 0000000000000000"
	for name, want := range map[string]string{
		"worker":      "1234 1235 1235 1236 /tmp/worker /tmp/worker worker" + none,
		"1234":        "1234 1235 1235 1236 /tmp/worker /tmp/worker worker" + none,
		"worker:more": "1234 1236 1236 /tmp/worker /tmp/worker worker" + none,
		"worker:77":   "1234 77 77 /tmp/worker /tmp/worker worker" + none,
		"4321:77":     "4321 77 77 / /" + none,
	} {
		if f := strings.Fields(want); s.f.Dir != "" { // the image's folder comes before a user's home
			at := slices.Index(f, "CapEff:") - 1
			if name != "4321:77" { // it has no name
				at--
			}
			f[at] = s.f.Dir
			want = strings.Join(f, " ")
		}
		got, err := who(name)
		if errors.Is(err, errors.ErrUnsupported) {
			if !strings.Contains(err.Error(), "user") {
				t.Errorf("a box with one id refuses a user with: %v", err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("as %s: %q, %v, want %q", name, got, err, want)
		}
	}
	c := sh("id -u")
	c.User, c.Env, c.Dir = "root", []string{"HOME=/tmp"}, "/tmp"
	if r := output(t, box, c, guest.Limits{}); r.Stdout.String() != "0\n" {
		t.Errorf("root in /tmp: %q", r.Stdout.String())
	}
}

// screen collects what a terminal shows.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *screen) has(text string) func() bool {
	return func() bool { return strings.Contains(s.String(), text) }
}

func terminal(t *testing.T, s *suite) {
	if s.f.NoTerminals {
		noTerminal(t, s)
		return
	}
	box := s.box(t)
	keysR, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keysR.Close()
	defer keys.Close()
	shown, sizes := &screen{}, make(chan guest.Size)
	type end struct {
		exit guest.Exit
		err  error
	}
	ended := make(chan end, 1)
	c := sh(`tty; stty size; echo ready; while read -r line; do echo "got $line"; stty size; [ "$line" = bye ] && exit 7; done; exit 8`)
	go func() {
		exit, err := guest.Attach(t.Context(), box, c, guest.Terminal{In: keysR, Out: shown, Size: guest.Size{Rows: 33, Cols: 101}, Sizes: sizes})
		ended <- end{exit, err}
	}()
	eventually(t, "the command to show that it is ready", shown.has("ready"))
	if got := shown.String(); !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "33 101") {
		t.Errorf("the terminal's name and size: %q", got)
	}
	keys.WriteString("hello\n")
	eventually(t, "an answer", shown.has("got hello"))
	sizes <- guest.Size{Rows: 44, Cols: 202}
	sizes <- guest.Size{Rows: 44, Cols: 202} // the first has been set when the second is taken
	keys.WriteString("again\n")
	eventually(t, "the new size", shown.has("44 202"))
	keys.WriteString("bye\n")
	select {
	case e := <-ended:
		if e.err != nil || e.exit.Code != 7 {
			t.Errorf("the end: %+v, %v", e.exit, e.err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the command with a terminal doesn't end")
	}
	// Ctrl-C ends what is in the foreground, and only in that terminal.
	r := guest.Command{Argv: []string{"sh", "-c", "echo ready; sleep 300"}}
	shown = &screen{}
	go func() {
		exit, err := guest.Attach(t.Context(), box, r, guest.Terminal{In: keysR, Out: shown, Size: guest.Size{Rows: 24, Cols: 80}})
		ended <- end{exit, err}
	}()
	eventually(t, "the second command", shown.has("ready"))
	eventually(t, "Ctrl-C to end what runs", func() bool {
		keys.WriteString("\x03") // the shell may be between two programs, and deaf to the first
		select {
		case e := <-ended:
			if e.err != nil || e.exit.OK() {
				t.Errorf("after Ctrl-C: %+v, %v", e.exit, e.err)
			}
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	})
	if _, err := guest.Attach(t.Context(), box, argv("no-such-program"), guest.Terminal{Out: shown}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that isn't there: %v", err)
	}
	if r := output(t, box, sh("ls /dev/pts"), guest.Limits{}); strings.TrimSpace(r.Stdout.String()) != "ptmx" {
		t.Errorf("terminals are left: %q", r.Stdout.String())
	}
}

func terminalOfAUser(t *testing.T, s *suite) {
	if s.f.NoTerminals {
		noTerminal(t, s)
		return
	}
	box := s.box(t)
	addUsers(t, box)
	c := sh(`echo me >/dev/tty; stat -c %u $(tty)`)
	c.User = "worker"
	shown := &screen{}
	exit, err := guest.Attach(t.Context(), box, c, guest.Terminal{Out: shown, Size: guest.Size{Rows: 24, Cols: 80}})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the box has one id")
	}
	if got := strings.Fields(shown.String()); err != nil || !exit.OK() || len(got) != 2 || got[0] != "me" || got[1] != "1234" {
		t.Errorf("a user's terminal: %+v, %v: %q", exit, err, shown.String())
	}
}

func terminalTimeout(t *testing.T, s *suite) {
	if s.f.NoTerminals {
		noTerminal(t, s)
		return
	}
	box := s.box(t)
	shown := &screen{}
	// The one that stays holds the terminal; it ignores the hang-up.
	c := sh(`trap '' HUP; (sleep 300 &) ; echo started`)
	begin := time.Now()
	exit, err := guest.Attach(t.Context(), box, c, guest.Terminal{Out: shown})
	if err != nil || !exit.OK() || !strings.Contains(shown.String(), "started") || time.Since(begin) > hang {
		t.Errorf("with a daemon on the terminal: %+v, %v: %q", exit, err, shown.String())
	}
	c = sh(`echo started; sleep 300`)
	c.Timeout = 300 * time.Millisecond
	if exit, err = guest.Attach(t.Context(), box, c, guest.Terminal{Out: shown}); err != nil || !exit.TimedOut {
		t.Errorf("a time-out: %+v, %v", exit, err)
	}
}

// noTerminal: a provider without terminals says so, and starts nothing.
func noTerminal(t *testing.T, s *suite) {
	b := s.box(t)
	c := argv("touch", "/tmp/started")
	c.TTY = &guest.TTY{Rows: 24, Cols: 80, Open: func(*os.File) { t.Error("there is a terminal all the same") }}
	if _, err := b.Exec(t.Context(), c, [3]*os.File{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a terminal: %v, want ErrUnsupported", err)
	}
	if _, err := b.Stat(t.Context(), "/tmp/started"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command was started: %v", err)
	}
}
