package git

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/subprocess"
)

// passed are the variables of the caller that git gets.
func passed() []string {
	return []string{
		"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK",
	}
}

// command is one git that is to run.
type command struct {
	source Source // whose transport alone is allowed; the zero Source allows none
	dir    string // the bare repository; "" for none
	args   []string
	stdin  io.Reader
	read   func(io.Reader) error // stdout; nil keeps it
	limit  time.Duration
}

// maxOutput bounds what is kept of a git's output.
const (
	maxOutput  = 64 << 20
	maxMessage = 64 << 10
	maxChatter = 4 << 20 // git is ended by more of it: a server may send remarks for ever
	maxShown   = 300     // characters of git's words that people see
)

// run runs git to its end and answers what it printed. An error is a *Failure, or the context's.
func (f *Fetcher) run(ctx context.Context, c command) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	argv := f.limited(f.argv(c))
	cmd := exec.CommandContext(within, argv[0], argv[1:]...)
	cmd.Env = f.environ(c.source)
	cmd.Dir = f.home
	subprocess.Own(cmd)
	subprocess.Tie(cmd)
	cmd.WaitDelay = 2 * time.Second
	if f.o.Hold != nil {
		cmd.ExtraFiles = []*os.File{f.o.Hold}
	}
	cmd.Stdin = c.stdin
	stderr := &bounded{max: maxMessage, stop: maxChatter, over: cancel}
	cmd.Stderr = stderr
	stdout := &bounded{max: maxOutput, stop: maxOutput, over: cancel}
	var read error
	done := make(chan struct{})
	if c.read == nil {
		cmd.Stdout = stdout
		close(done)
	} else {
		r, w := io.Pipe()
		cmd.Stdout = w
		go func() {
			defer close(done)
			read = c.read(r)
			if read != nil {
				cancel()
			}
			_, _ = io.Copy(io.Discard, r)
		}()
		defer func() { w.Close(); <-done }()
		err := runLocked(cmd)
		w.Close()
		<-done
		if read != nil && ctx.Err() == nil {
			return nil, read
		}
		return nil, f.failed(ctx, within, c, stderr, err)
	}
	err := runLocked(cmd)
	if stdout.ended && ctx.Err() == nil {
		return nil, &Failure{Source: c.source, Message: fmt.Sprintf("git printed more than %d MiB and was ended", maxOutput>>20)}
	}
	if err := f.failed(ctx, within, c, stderr, err); err != nil {
		return nil, err
	}
	return stdout.buf.Bytes(), nil
}

// DefaultMemory is what one git may hold of its own, 1 GiB: a server may send objects and lists that are small on the line and grow without end in memory.
const DefaultMemory = 1 << 30

// shell sets limits for what it becomes; every git brings one.
const shell = "/bin/sh"

// limited is a command line that runs git under a limit of memory, where there is a shell to set one.
func (f *Fetcher) limited(argv []string) []string {
	if fi, err := os.Stat(shell); err != nil || !fi.Mode().IsRegular() {
		return append([]string{f.git}, argv...)
	}
	return append([]string{shell, "-c", fmt.Sprintf(`ulimit -d %d 2>/dev/null; exec "$0" "$@"`, f.o.Memory>>10), f.git}, argv...)
}

// runLocked runs a command that ends with the thread that began it.
func runLocked(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// Failure is a git that failed.
type Failure struct {
	Source  Source
	Message string // what to tell people, on one line
	Text    string // what git said
	Timeout bool
}

func (e *Failure) Error() string {
	if e.Source.Scheme == "" {
		return e.Message
	}
	return e.Source.String() + ": " + e.Message
}

func (f *Fetcher) failed(ctx, within context.Context, c command, stderr *bounded, err error) error {
	if err == nil && !stderr.ended {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(within.Err(), context.DeadlineExceeded) {
		return &Failure{Source: c.source, Message: fmt.Sprintf("git didn't end within %s", c.limit), Timeout: true}
	}
	if stderr.ended {
		return &Failure{Source: c.source, Message: fmt.Sprintf("it sent more than %d MiB of remarks, and git was ended", maxChatter>>20)}
	}
	text := stderr.buf.String()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		return fmt.Errorf("run git: %w", err)
	}
	return &Failure{Source: c.source, Message: f.explain(text), Text: text}
}

// explain is what git's own words mean for people.
func (f *Fetcher) explain(text string) string {
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("could not read Username") || has("could not read Password") || has("Authentication failed") || has("terminal prompts disabled"):
		return "it asks for a login: there is no such public repository, or it is private (for github.com set GITHUB_TOKEN, elsewhere use ssh)"
	case has("Host key verification failed"):
		return "the host's key isn't known: connect once with ssh and check it, so that it stands in known_hosts"
	case has("Permission denied (publickey"):
		return "the host knows none of your keys"
	case has("Could not resolve host") || has("Could not resolve hostname"):
		return "the host name can't be resolved"
	case has("Repository not found") || has("does not appear to be a git repository") || has("does not exist") || has("error: 404") || has("not found: did you run"):
		return "there is no such repository"
	case has("Connection refused") || has("Failed to connect"):
		return "nothing answers at the host"
	case has("Out of memory") || has("out of memory"):
		return fmt.Sprintf("it sends what takes git more than %d MiB of memory", f.o.Memory>>20)
	case has("dubious ownership"):
		return "the repository belongs to somebody else; git refuses it"
	}
	if has("fsck error") { // git's last words don't say which
		for line := range strings.SplitSeq(text, "\n") {
			if object, why, ok := strings.Cut(strings.TrimPrefix(line, "error: object "), ": "); ok && fullSHA().MatchString(object) {
				return "git refuses what it holds: " + shorten(why)
			}
		}
	}
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && (last == "" || strings.HasPrefix(line, "fatal:") || strings.HasPrefix(line, "error:")) {
			last = line
		}
	}
	if last == "" {
		return "git failed and said nothing"
	}
	return "git: " + shorten(strings.TrimPrefix(last, "fatal: "))
}

// shorten makes what git and its server say fit into a message.
func shorten(text string) string {
	text = diag.Clean(text)
	if r := []rune(text); len(r) > maxShown {
		text = string(r[:maxShown]) + "…"
	}
	return text
}

// argv is git's whole command line: settings first, none of them from outside.
func (f *Fetcher) argv(c command) []string {
	set := []string{
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.autocrlf=false", "core.attributesFile=/dev/null", "core.bigFileThreshold=16m",
		"protocol.allow=never", "credential.helper=", "credential.interactive=false", "http.followRedirects=false", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60",
		"fetch.fsckObjects=true", "transfer.fsckObjects=true", "transfer.credentialsInUrl=die", "transfer.unpackLimit=1", "gc.auto=0", "maintenance.auto=false",
		"submodule.recurse=false", "safe.directory=*",
	}
	if c.source.Scheme != "" {
		set = append(set, "protocol."+c.source.Scheme+".allow=always")
	}
	var out []string
	for _, s := range set {
		out = append(out, "-c", s)
	}
	if c.dir != "" {
		out = append(out, "--git-dir="+c.dir)
	}
	return append(out, c.args...)
}

// environ is git's whole environment.
func (f *Fetcher) environ(s Source) []string {
	transport := s.Scheme
	if transport == "" {
		transport = "none"
	}
	hosts := filepath.Join(f.o.Home, ".ssh", "known_hosts")
	out := []string{
		"HOME=" + f.home, "XDG_CONFIG_HOME=" + f.home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false", "GIT_LFS_SKIP_SMUDGE=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=" + transport, "GIT_PROTOCOL_FROM_USER=0",
		"GIT_SSH_COMMAND=ssh -F /dev/null -oBatchMode=yes -oStrictHostKeyChecking=yes '-oUserKnownHostsFile=\"" + strings.ReplaceAll(hosts, "'", `'\''`) +
			"\"' -oIdentitiesOnly=yes -oForwardAgent=no -oClearAllForwardings=yes -oConnectTimeout=10" + f.o.SSH,
		"GIT_SSH_VARIANT=ssh",
	}
	for _, name := range append([]string{"PATH"}, passed()...) {
		if v, ok := f.o.Env(name); ok && v != "" {
			out = append(out, name+"="+v)
		}
	}
	if token := f.token(s); token != "" {
		out = append(out, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.https://github.com/.extraheader",
			"GIT_CONFIG_VALUE_0=Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token)))
	}
	return out
}

// token is what github.com may see; "" for every other host.
func (f *Fetcher) token(s Source) string {
	if s.Scheme != HTTPS || s.Host != "github.com" || s.Port != 0 {
		return ""
	}
	for _, name := range []string{"GITHUB_TOKEN", "GH_TOKEN"} {
		if v, ok := f.o.Env(name); ok && v != "" && !strings.ContainsAny(v, "\r\n") {
			return v
		}
	}
	return ""
}

// bounded keeps the first max bytes that are written to it. Once more than stop were written, over is called.
type bounded struct {
	buf   bytes.Buffer
	max   int
	stop  int // 0: none
	over  func()
	n     int
	ended bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if b.n += n; b.stop > 0 && b.n > b.stop && !b.ended {
		b.ended = true
		b.over()
	}
	b.buf.Write(p[:min(n, b.max-b.buf.Len())])
	return n, nil
}
