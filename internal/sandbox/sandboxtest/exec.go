package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

func sh(script string) guest.Command { return guest.Command{Argv: []string{"sh", "-c", script}} }

// alive counts the box's sleeping processes of so many seconds.
func alive(t *testing.T, b guest.Box, text string) int {
	t.Helper()
	r := output(t, b, guest.Command{Argv: []string{
		"sh", "-c",
		`n=0; for d in /proc/[0-9]*; do if tr '\0' ' ' <$d/cmdline 2>/dev/null | grep -qF -- "sleep $1"; then [ ${d#/proc/} = $$ ] || n=$((n+1)); fi; done; echo $n`, "count", text,
	}}, guest.Limits{})
	n, err := strconv.Atoi(strings.TrimSpace(r.Stdout.String()))
	if err != nil {
		t.Fatalf("count processes: %q %q", r.Stdout.String(), r.Stderr.String())
	}
	return n
}

func execBasics(t *testing.T, s *suite) {
	p := s.provider(t)
	box := connect(t, p, create(t, p, s.spec(func(s *sandbox.Spec) { s.Env = []string{"FROM=spec", "BOTH=spec"} })).ID)
	if r := output(t, box, argv("false"), guest.Limits{}); r.Exit.Code != 1 || r.Exit.OK() || r.Exit.Status() != 1 {
		t.Errorf("false: %+v", r.Exit)
	}
	if r := output(t, box, argv("pwd"), guest.Limits{}); r.Stdout.String() != "/root\n" {
		t.Errorf("a command without a folder runs in %q", r.Stdout.String())
	}
	if r := output(t, box, guest.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, guest.Limits{}); r.Stdout.String() != "/tmp\n" {
		t.Errorf("a command in /tmp runs in %q", r.Stdout.String())
	}
	r := output(t, box, guest.Command{Argv: []string{"env"}, Env: []string{"BOTH=command", "MINE=a=b"}}, guest.Limits{})
	env := "\n" + r.Stdout.String()
	for _, want := range []string{"\nFROM=spec\n", "\nBOTH=command\n", "\nMINE=a=b\n", "\nHOME=/root\n", "\nLANG=C.UTF-8\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment lacks %q:%s", want, env)
		}
	}
	if strings.Count(env, "\nBOTH=") != 1 {
		t.Errorf("a name twice in the environment:%s", env)
	}
	if r := output(t, box, argv("cat"), guest.Limits{Stdin: []byte("in\x00out")}); r.Stdout.String() != "in\x00out" {
		t.Errorf("cat: %q", r.Stdout.String())
	}
	if r := output(t, box, argv("cat"), guest.Limits{}); r.Stdout.Total != 0 || !r.Exit.OK() {
		t.Errorf("cat of no input: %+v", r)
	}
	for _, c := range []guest.Command{argv("no-such-program"), argv("/no/such/program"), {Argv: []string{"true"}, Dir: "/no/such/folder"}} {
		if _, err := guest.Output(t.Context(), box, c, guest.Limits{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v, want fs.ErrNotExist", c, err)
		}
	}
	for _, c := range []guest.Command{{}, {Argv: []string{"true"}, Dir: "/etc/hostname"}} {
		if _, err := guest.Output(t.Context(), box, c, guest.Limits{}); err == nil {
			t.Errorf("%+v ran", c)
		}
	}
}

func execTimeout(t *testing.T, s *suite) {
	box := s.box(t)
	start := time.Now()
	r := output(t, box, guest.Command{Argv: []string{"sleep", "60"}, Timeout: 100 * time.Millisecond}, guest.Limits{})
	if !r.Exit.TimedOut || r.Exit.Status() != 124 || r.Exit.OK() {
		t.Errorf("a command at its limit: %+v", r.Exit)
	}
	if took := time.Since(start); took < 100*time.Millisecond || took > hang {
		t.Errorf("it took %s", took)
	}
	if r := output(t, box, guest.Command{Argv: []string{"true"}, Timeout: time.Minute}, guest.Limits{}); !r.Exit.OK() {
		t.Errorf("true under a limit: %+v", r.Exit)
	}
}

func execCancel(t *testing.T, s *suite) {
	box := s.box(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := guest.Output(ctx, box, argv("sleep", "60"), guest.Limits{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled command: %v, want context.DeadlineExceeded", err)
	}
	if took := time.Since(start); took > hang {
		t.Errorf("it took %s", took)
	}
}

func shell(t *testing.T, s *suite) {
	box := s.box(t)
	for _, c := range []struct {
		script   string
		out, err string
		code     int
	}{
		{"exit 7", "", "", 7},
		{"echo out; echo err >&2", "out\n", "err\n", 0},
		{"kill -TERM $$", "", "", 143},
		{"mkdir -p /app/a && echo hello > /app/a/greeting && cat /app/a/greeting", "hello\n", "", 0},
		{"cat /app/a/greeting", "hello\n", "", 0}, // the box keeps its files between commands
		{"cd /tmp; pwd", "/tmp\n", "", 0},
		{"printf '%s' \"$0\"", "sh", "", 0},
	} {
		r := output(t, box, sh(c.script), guest.Limits{})
		if r.Stdout.String() != c.out || r.Stderr.String() != c.err || r.Exit.Status() != c.code {
			t.Errorf("%s: %q, %q, %d", c.script, r.Stdout.String(), r.Stderr.String(), r.Exit.Status())
		}
	}
	if r := output(t, box, sh("echo $PPID"), guest.Limits{}); !s.f.Minded && r.Stdout.String() != "1\n" {
		t.Errorf("a command's parent is %s", r.Stdout.String())
	}
	r := output(t, box, sh(`i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done`), guest.Limits{})
	if r.Exit.CPU <= 0 || r.Exit.Elapsed <= 0 {
		t.Errorf("time spent: %+v", r.Exit)
	}
}

func signals(t *testing.T, s *suite) {
	box := s.box(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV} {
		r := output(t, box, sh(fmt.Sprintf("kill -%d $$", sig)), guest.Limits{})
		if r.Exit.Signal != int(sig) || r.Exit.Status() != 128+int(sig) || r.Exit.OK() {
			t.Errorf("signal %d: %+v", sig, r.Exit)
		}
	}
	// A command starts with default signal handling and an open mask, whatever PID 1 does with its own.
	r := output(t, box, sh(`grep -E '^Sig(Ign|Blk)' /proc/self/status | tr -d '\t'`), guest.Limits{})
	if got := r.Stdout.String(); got != "SigBlk:0000000000000000\nSigIgn:0000000000000000\n" {
		t.Errorf("signal state of a command: %q", got)
	}
}

// everyByte sends text of every width of a character and bytes that are no text, cut at every place.
func everyByte(t *testing.T, s *suite) {
	box := s.box(t)
	text := []byte("aé€😀\r\n\x00\xff\xfe\xc3")
	for cut := range len(text) + 1 {
		script := fmt.Sprintf("printf '%s'; sleep 0.005; printf '%s'", octal(text[:cut]), octal(text[cut:]))
		r := output(t, box, sh(script), guest.Limits{})
		if !bytes.Equal(r.Stdout.Bytes(), text) || r.Stdout.Truncated || r.Stdout.Total != int64(len(text)) {
			t.Errorf("cut at %d: %q", cut, r.Stdout.Bytes())
		}
	}
}

func octal(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		fmt.Fprintf(&s, `\%03o`, c)
	}
	return s.String()
}

func bigOutput(t *testing.T, s *suite) {
	box := s.box(t)
	const lines = 200000
	script := fmt.Sprintf("seq 1 %d; seq 1 10 >&2", lines)
	var whole bytes.Buffer
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(&whole, i)
	}
	r := output(t, box, sh(script), guest.Limits{Stdout: -1})
	if !bytes.Equal(r.Stdout.Bytes(), whole.Bytes()) || r.Stdout.Truncated {
		t.Errorf("unlimited: %d bytes of %d", len(r.Stdout.Bytes()), whole.Len())
	}
	r = output(t, box, sh(script), guest.Limits{Stdout: 1001})
	if !r.Stdout.Truncated || r.Stdout.Total != int64(whole.Len()) || len(r.Stdout.Bytes()) != 1001 {
		t.Errorf("limited: truncated %v, %d of %d bytes", r.Stdout.Truncated, len(r.Stdout.Bytes()), r.Stdout.Total)
	}
	if !bytes.HasPrefix(whole.Bytes(), r.Stdout.Head) || !bytes.HasSuffix(whole.Bytes(), r.Stdout.Tail) {
		t.Error("what was kept is not the head and the tail")
	}
	if r.Stderr.Total != 21 || r.Stderr.Truncated || !r.Exit.OK() {
		t.Errorf("stderr beside it: %+v, %+v", r.Stderr, r.Exit)
	}
}

func stdinBytes(t *testing.T, s *suite) {
	box := s.box(t)
	in := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 1<<16)
	r := output(t, box, argv("cat"), guest.Limits{Stdin: in, Stdout: -1})
	if !bytes.Equal(r.Stdout.Bytes(), in) {
		t.Errorf("%d bytes in, %d out", len(in), r.Stdout.Total)
	}
	if r := output(t, box, sh("head -c 3; exit 5"), guest.Limits{Stdin: in}); r.Stdout.String() != "012" || r.Exit.Code != 5 {
		t.Errorf("a command that reads a part: %q, %+v", r.Stdout.String(), r.Exit)
	}
}

func daemonHoldsOutput(t *testing.T, s *suite) {
	box := s.box(t)
	start := time.Now()
	r := output(t, box, sh("echo before; sleep 71 & seq 1 5000; exit 3"), guest.Limits{})
	if took := time.Since(start); took > hang {
		t.Errorf("it waited %s for a daemon", took)
	}
	if got := r.Stdout.String(); !strings.HasPrefix(got, "before\n1\n") || !strings.HasSuffix(got, "\n5000\n") || r.Exit.Code != 3 {
		t.Errorf("lost output: %d bytes, %+v", len(got), r.Exit)
	}
	if n := alive(t, box, "71"); n != 1 {
		t.Errorf("%d daemons live, want the one that was left", n)
	}
}

// stubborn leaves processes in new sessions, double forks, and such that ignore signals.
const stubborn = `
trap '' TERM HUP INT
setsid sleep %[1]d &
(setsid sh -c 'sleep %[1]d & sleep %[1]d' &)
(sh -c '(setsid sleep %[1]d </dev/null >/dev/null 2>&1 &)' &)
setsid sh -c 'trap "" TERM; (sleep %[1]d & env -i sleep %[1]d &) ; sleep %[1]d' &
sleep 0.1
`

func timeoutKillsDescendants(t *testing.T, s *suite) {
	box := s.box(t)
	start := time.Now()
	r := output(t, box, guest.Command{Argv: sh(fmt.Sprintf(stubborn, 72) + "sleep 72").Argv, Timeout: time.Second}, guest.Limits{})
	if !r.Exit.TimedOut || r.Exit.Left < 5 {
		t.Errorf("at the limit: %+v", r.Exit)
	}
	if took := time.Since(start); took > hang {
		t.Errorf("it took %s", took)
	}
	if n := alive(t, box, "72"); n != 0 {
		t.Errorf("%d descendants live after the time-out", n)
	}
}

func cancelKillsDescendants(t *testing.T, s *suite) {
	box := s.box(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := guest.Output(ctx, box, sh(fmt.Sprintf(stubborn, 73)+"sleep 73"), guest.Limits{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	if n := alive(t, box, "73"); n != 0 {
		t.Errorf("%d descendants live after the cancellation", n)
	}
}

func killTree(t *testing.T, s *suite) {
	box := s.box(t)
	r := output(t, box, guest.Command{Argv: sh(fmt.Sprintf(stubborn, 74) + "exit 4").Argv, KillTree: true}, guest.Limits{})
	if r.Exit.Code != 4 || r.Exit.TimedOut || r.Exit.Left < 5 {
		t.Errorf("exit: %+v", r.Exit)
	}
	if n := alive(t, box, "74"); n != 0 {
		t.Errorf("%d descendants live", n)
	}
}

func timeoutSparesOthers(t *testing.T, s *suite) {
	box := s.box(t)
	output(t, box, sh("setsid sleep 75 >/dev/null 2>&1 &"), guest.Limits{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := guest.Output(t.Context(), box, sh("sleep 0.6; echo done"), guest.Limits{}); err != nil || r.Stdout.String() != "done\n" {
			t.Errorf("the command beside it: %q, %v", r.Stdout.String(), err)
		}
	})
	output(t, box, guest.Command{Argv: sh("setsid sleep 76 & sleep 76").Argv, Timeout: 200 * time.Millisecond}, guest.Limits{})
	wg.Wait()
	if n := alive(t, box, "75"); n != 1 {
		t.Errorf("%d of the server that an earlier command left live, want 1", n)
	}
	if n := alive(t, box, "76"); n != 0 {
		t.Errorf("%d descendants live after the time-out", n)
	}
}

func concurrentExecs(t *testing.T, s *suite) {
	box := s.box(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			want := strconv.Itoa(i)
			r, err := guest.Output(t.Context(), box, sh("echo "+want+"; exit "+want), guest.Limits{})
			if err != nil || r.Stdout.String() != want+"\n" || r.Exit.Code != i {
				t.Errorf("%d: %q, %+v, %v", i, r.Stdout.String(), r.Exit, err)
			}
		})
	}
	wg.Wait()
	// Nothing is left of the commands, not even zombies.
	most := 4
	if s.f.Minded {
		most++
	}
	r := output(t, box, sh("ls -d /proc/[0-9]* | wc -l"), guest.Limits{})
	if n, _ := strconv.Atoi(strings.TrimSpace(r.Stdout.String())); n > most {
		t.Errorf("%d processes in an idle box", n)
	}
}

func dialAfterDeath(t *testing.T, s *suite) {
	p := s.provider(t)
	id := create(t, p, s.spec()).ID
	box := connect(t, p, id)
	l, err := box.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		_, err := box.Exec(t.Context(), argv("sleep", "77"), [3]*os.File{})
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, guest.ErrGone) {
		t.Errorf("a running command: %v, want ErrGone", err)
	}
}
