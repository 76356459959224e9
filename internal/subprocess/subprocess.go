// Package subprocess is what all programs have in common that this one starts and that are no sandbox's: process groups of their own, how they are
// ended, the end of what they say, and what they may see of our environment.
//
// Words: a group is a command and what it started that did not leave for another group. The package starts nothing and reads no stream.
package subprocess

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Own has a command that is not started yet begin a process group, all of which ends where the command's context would end the command.
func Own(cmd *exec.Cmd) {
	attr(cmd).Setpgid = true
	cmd.Cancel = func() error { return signal(cmd, syscall.SIGKILL) }
}

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

func signal(cmd *exec.Cmd, s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }

// Stop ends the group of a command that has one: the command gets grace to leave by itself, and the group then a moment (term) from SIGTERM to
// SIGKILL. It returns when done is closed, which whoever waits for the command does.
func Stop(cmd *exec.Cmd, done <-chan struct{}, grace, term time.Duration) {
	StopBy(func(s syscall.Signal) { _ = signal(cmd, s) }, done, grace, term) // a group that is gone is gone
}

// StopBy is Stop of what send sends signals to.
func StopBy(send func(syscall.Signal), done <-chan struct{}, grace, term time.Duration) {
	for _, s := range []struct {
		after  time.Duration
		signal syscall.Signal
	}{{grace, syscall.SIGTERM}, {term, syscall.SIGKILL}} {
		t := time.NewTimer(s.after)
		select {
		case <-done:
			t.Stop()
			return
		case <-t.C:
			send(s.signal)
		}
	}
	<-done
}

// Environment is what every program may see of ours, which lookup knows: nothing that could hold a secret.
func Environment(lookup func(string) (string, bool)) []string {
	var out []string
	for _, name := range []string{
		"PATH", "HOME", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
	} {
		if v, ok := lookup(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// Tail keeps the last Max bytes that are written to it. Its methods may be called from several goroutines.
type Tail struct {
	Max int
	mu  sync.Mutex
	buf []byte
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - t.Max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(b), nil
}

// Text is what is kept now; it may begin in the middle of a character.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// Last is the last n lines of Text that aren't empty, or all where there are fewer, without what is no UTF-8.
func (t *Tail) Last(n int) []string {
	lines := strings.FieldsFunc(strings.ToValidUTF8(t.Text(), ""), func(r rune) bool { return r == '\n' || r == '\r' })
	return lines[max(0, len(lines)-n):]
}

// Look finds a program in a PATH, in absolute folders alone; "" when there is none.
func Look(list, name string) string {
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}
