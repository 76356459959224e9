package local_test

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// hostile is a box with small limits and a short lease for what may get out of hand.
func hostile(t *testing.T) guest.Box {
	t.Helper()
	_, box := create(t, open(t), sandbox.Spec{Tied: true, Pids: 100, DiskMB: 24, MemoryMB: 256, Lease: time.Minute})
	return box
}

// whileRunning runs a script inside for as long as f takes.
func whileRunning(t *testing.T, box guest.Box, script string, f func()) {
	t.Helper()
	started := "/tmp/started"
	ended := make(chan error)
	go func() {
		c := guest.Command{Argv: []string{"sh", "-c", "touch " + started + "; while ! [ -e /tmp/stop ]; do " + script + "; done"}, Timeout: 30 * time.Second, KillTree: true}
		_, err := guest.Output(t.Context(), box, c, guest.Limits{})
		ended <- err
	}()
	within(t, hang, "the attack has begun", func() bool {
		_, err := box.Stat(t.Context(), started)
		return err == nil
	})
	f()
	sh(t, box, "touch /tmp/stop")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A folder that becomes a link while files are put below it never leads an upload elsewhere.
func TestUploadRace(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	sh(t, box, "mkdir -p /tmp/up/real /tmp/target")
	written := 0
	whileRunning(t, box, "mv -T /tmp/up/real /tmp/up/d; rm -rf /tmp/up/d; ln -s /tmp/target /tmp/up/d; rm /tmp/up/d; mkdir -p /tmp/up/real", func() {
		for until := time.Now().Add(700 * time.Millisecond); time.Now().Before(until); {
			if guest.Put(t.Context(), box, "/tmp/up", []guest.PutFile{guest.PutBytes("d/f", 0o644, []byte("x"))}) == nil {
				written++
			}
		}
	})
	if got := sh(t, box, "ls -A /tmp/target"); got != "" {
		t.Errorf("written through a link: %q", got)
	}
	if written == 0 {
		t.Error("no upload ever worked, so that nothing was raced")
	}
}

// A file that becomes a link to what PID 1 has while it is read never gives that away, and a folder never gives the tree behind a link.
func TestDownloadRace(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	sh(t, box, "mkdir -p /tmp/down/d; echo mine > /tmp/mine; echo mine > /tmp/down/d/f; cp /tmp/mine /tmp/down/f")
	read := 0
	flip := "ln -sf /proc/self/environ /tmp/down/l; mv -T /tmp/down/l /tmp/down/f; ln -sf /proc/1/maps /tmp/down/l; mv -T /tmp/down/l /tmp/down/f; cp /tmp/mine /tmp/down/n; mv -T /tmp/down/n /tmp/down/f;" +
		"mv /tmp/down/d /tmp/kept; ln -s /etc /tmp/down/d; rm /tmp/down/d; mv /tmp/kept /tmp/down/d"
	whileRunning(t, box, flip, func() {
		for until := time.Now().Add(700 * time.Millisecond); time.Now().Before(until); {
			if b, err := box.ReadFile(t.Context(), "/tmp/down/f", 1<<20); err == nil {
				read++
				if string(b) != "mine\n" {
					t.Errorf("read %.200q", b)
					return
				}
			}
			for _, name := range treeNames(t, box, "/tmp/down") {
				if strings.Contains(name, "passwd") {
					t.Errorf("the tree has %s", name)
					return
				}
			}
		}
	})
	if read == 0 {
		t.Error("no download ever worked, so that nothing was raced")
	}
}

// treeNames are the names of what can be had of a tree that changes meanwhile.
func treeNames(t *testing.T, box guest.Box, dir string) []string {
	t.Helper()
	r, err := box.Tree(t.Context(), dir)
	if err != nil {
		return nil
	}
	defer r.Close()
	var names []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Logf("the tree ends with %v", err)
			}
			return names
		}
		names = append(names, h.Name)
	}
}

// Files without content are counted too: the box's disk has only so many, and the box lives on.
func TestInodeBomb(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	if !has(t, box, "python3") {
		t.Skip("no python3 to make files with")
	}
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"python3", "-c", "n = 0\nwhile True:\n  try: open('/tmp/%d' % n, 'w').close()\n  except OSError as e: print(n, e.errno); break\n  n += 1"}, Timeout: 30 * time.Second,
	}, guest.Limits{})
	if err != nil || r.Exit.TimedOut {
		t.Fatalf("%+v, %v", r.Exit, err)
	}
	n, why, _ := strings.Cut(strings.TrimSpace(r.Stdout.String()), " ")
	if made, _ := strconv.Atoi(n); made < 1000 || made > 24<<20/4096 || why != "28" {
		t.Errorf("%s files were made, then errno %s", n, why)
	}
	if got := sh(t, box, "find /tmp -type f -delete; echo x > /tmp/f; cat /tmp/f"); got != "x\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// A disk bomb fills the box's disk and nothing else.
func TestDiskBomb(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"sh", "-c", "for i in 1 2 3 4; do (while :; do head -c 1000000 /dev/zero >> /tmp/bomb$i || exit 1; done) & done; wait; rm /tmp/bomb*; echo over"}, Timeout: 30 * time.Second,
	}, guest.Limits{})
	if err != nil || r.Stdout.String() != "over\n" {
		t.Errorf("%+v, %v: %s", r.Exit, err, r.Stderr.String())
	}
}

// However many send whatever signals to PID 1, it stays, and so do the commands of others.
func TestSignalStorm(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	storm := "for p in 1 2 3 4 5 6 7 8; do (while :; do for s in 1 2 3 6 9 10 11 12 13 14 15 17 18 19 20 21 22 34 40 50 64; do kill -$s 1; done; done) & done; sleep 0.7"
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", storm}, Timeout: 20 * time.Second, KillTree: true}, guest.Limits{})
	if err != nil || !r.Exit.OK() || r.Exit.Left < 8 {
		t.Errorf("%+v, %v", r.Exit, err)
	}
	if got := sh(t, box, "echo here"); got != "here\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// Who kills all that he can kills the box's own commands.
func TestKillEverybody(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	sh(t, box, "setsid sleep 300 >/dev/null 2>&1 & echo")
	if _, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "kill -STOP -1; kill -9 -1; sleep 0.05"}, Timeout: 10 * time.Second}, guest.Limits{}); err != nil {
		t.Error(err)
	}
	if got := sh(t, box, "grep -c . /proc/[2-9]*/stat /proc/[1-9][0-9]*/stat 2>/dev/null | grep -c sleep; echo here"); !strings.HasSuffix(got, "here\n") {
		t.Errorf("afterwards: %q", got)
	}
}

// A command that forks into sessions of its own, again and again, is gone whole at its time-out.
func TestDoubleForksDieAtTheTimeout(t *testing.T) {
	t.Parallel()
	box := hostile(t)
	forks := "for i in 1 2 3 4 5; do (setsid sh -c '(setsid sh -c \"trap \\\"\\\" TERM HUP INT; sleep 311\" &) &' &) ; done; sleep 312"
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", forks}, Timeout: time.Second}, guest.Limits{})
	if err != nil || !r.Exit.TimedOut || r.Exit.Left < 5 {
		t.Errorf("%+v, %v", r.Exit, err)
	}
	if r.Exit.Elapsed > hang {
		t.Errorf("it took %s", r.Exit.Elapsed)
	}
	if got := sh(t, box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 31[12]'; true"); got != "" {
		t.Errorf("left: %q", got)
	}
}
