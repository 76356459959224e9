//go:build integration || soak

package peer_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger is an ordinary user whom this machine doesn't know, with a folder of its own.
type stranger struct {
	uid  uint32
	home string
	bin  string
}

func newStranger(t *testing.T, uid uint32) *stranger {
	t.Helper()
	if uid != 0 && os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	home := filepath.Join(t.TempDir(), "s")
	for _, dir := range []string{filepath.Dir(home), filepath.Dir(filepath.Dir(home))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, int(uid), int(uid)); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: builtBinary(t)}
	readable(t, cmd)
	return &stranger{uid, home, cmd.Path}
}

func (s *stranger) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.home
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + s.home, "XDG_STATE_HOME=" + s.home + "/state"}
	if s.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}
	}
	return cmd
}

func (s *stranger) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.command(t.Context(), s.bin, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// TestComputerBoxed: a session comes up inside a local sandbox, of root's and of a user's who has no other id to give, whatever user it is then.
func TestComputerBoxed(t *testing.T) {
	for _, c := range []struct {
		who uint32
		id  string
	}{{0, "uid=1000"}, {54321, "uid=0(root)"}} {
		t.Run(strconv.Itoa(int(c.who)), func(t *testing.T) {
			s := newStranger(t, c.who)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := l.Addr().(*net.TCPAddr).Port
			l.Close()
			box := s.run(t, "sandbox", "start", "--lease", "5m", "--publish", fmt.Sprintf("18765:%d", port))
			defer s.run(t, "sandbox", "rm", box)
			s.run(t, "sandbox", "cp", s.bin, box+":/usr/local/bin/agent-env")
			s.run(t, "sandbox", "exec", box, "--", "mkdir", "-p", "/home/me/files")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			session := s.command(ctx, s.bin, "sandbox", "exec", box, "--", "agent-env", "computer", "session", "--home", "/home/me", "--own-home")
			session.Cancel = func() error { return session.Process.Signal(syscall.SIGTERM) }
			var said strings.Builder
			session.Stdout, session.Stderr = &said, &said
			if err := session.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				cancel()
				_ = session.Wait() // it was told to end
				if t.Failed() {
					t.Logf("the session said\n%s", said.String())
				}
			}()
			d := &desktop{url: fmt.Sprintf("http://127.0.0.1:%d", port)}
			d.ready(t, 30*time.Second)
			t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
			status, body := d.ask(t, "/agentenv/ext/computer-exec/run", `{"argv":["sh","-c","id; cd files && touch mine && echo made"],"request_id":"1"}`)
			if status != 200 || !strings.Contains(body, c.id) || !strings.Contains(body, `made\n`) {
				t.Errorf("%d %s, want %s", status, body, c.id)
			}
		})
	}
}

// TestComputerNamespace: root of a namespace of its own that may make others is an ordinary user there.
func TestComputerNamespace(t *testing.T) {
	s := newStranger(t, 54321)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	session := s.command(ctx, "unshare", "--user", "--map-root-user", s.bin, "computer", "session", "--home", filepath.Join(s.home, "desk"))
	session.Env = append(session.Env, "MCP_HOST=127.0.0.1", "MCP_PORT="+strconv.Itoa(port))
	session.Cancel = func() error { return session.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	session.Stdout, session.Stderr = &said, &said
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = session.Wait() // it was told to end
		if t.Failed() {
			t.Logf("the session said\n%s", said.String())
		}
	}()
	d := &desktop{url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	d.ready(t, 30*time.Second)
	if status, body := d.ask(t, "/agentenv/ext/computer-exec/run", `{"argv":["id","-u"],"request_id":"1"}`); status != 200 || !strings.Contains(body, `"stdout":"1000\n"`) {
		t.Errorf("%d %s", status, body)
	}
}
