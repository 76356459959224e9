//go:build integration && linux

package git

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// secureShell starts a server of ssh on a free port, with a key that it knows, and answers its port, the user's home and the options that log in.
func secureShell(t *testing.T, accept string) (port int, home, options string) {
	t.Helper()
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("sshd is missing: install openssh-server")
		}
		t.Skip("needs sshd")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	for _, key := range []string{"host", "mine"} {
		run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key))
	}
	_ = os.MkdirAll("/run/sshd", 0o755) // sshd as root wants it
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/mine.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n%s\n", port, dir, dir, accept)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), sshd, "-D", "-e", "-f", filepath.Join(dir, "config"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	listening, ended := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			said.WriteString(s.Text() + "\n")
			if strings.Contains(s.Text(), "Server listening") {
				listening <- true
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	select {
	case <-listening:
	case <-ended:
		t.Fatalf("sshd ended: %s", said.String())
	case <-time.After(20 * time.Second):
		t.Fatal("sshd doesn't listen")
	}
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	home = filepath.Join(dir, "my home")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	known := fmt.Sprintf("[127.0.0.1]:%d %s", port, host)
	if err := os.WriteFile(filepath.Join(home, ".ssh", "known_hosts"), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	return port, home, fmt.Sprintf(" -l %s -i %s/mine", me.Username, dir)
}

// Row 16 and 28 over ssh: with a server that speaks the new protocol, and with a stock one, which gives only what refs name. A host whose key
// isn't known is refused.
func TestSSH(t *testing.T) {
	for name, accept := range map[string]string{"protocol 2": "AcceptEnv GIT_PROTOCOL", "stock": ""} {
		t.Run(name, func(t *testing.T) {
			r := gittest.Plugin(t, "shell")
			first := r.InWork("rev-parse", "HEAD")
			r.InWork("tag", "-a", "-m", "x", "v1")
			r.Commit("more", "x")
			r.Commit("still more", "x")
			port, home, options := secureShell(t, accept)
			s := newStore(t, func(o *Options) { o.Fetch.Home, o.Fetch.SSH = home, options })
			url := fmt.Sprintf("ssh://git@127.0.0.1:%d%s", port, r.Bare)
			mustInstall(t, s, false, Want{URL: url, Ref: "v1"})
			if got := row(t, s, "shell"); got.ResolvedSHA != first || got.SourceURL != url {
				t.Errorf("row %+v", got)
			}
			middle := r.InWork("rev-parse", "HEAD~1")
			mustInstall(t, s, false, Want{URL: url, Ref: middle})
			if got := row(t, s, "shell"); got.ResolvedSHA != middle {
				t.Errorf("a commit that is no tip: %+v", got)
			}
			if err := os.WriteFile(filepath.Join(home, ".ssh", "known_hosts"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := install(t.Context(), s, false, Want{URL: url, Ref: "main"}); err == nil || !strings.Contains(err.Error(), "the host's key isn't known") {
				t.Errorf("an unknown host: %v", err)
			}
		})
	}
}
