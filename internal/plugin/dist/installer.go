package dist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/subprocess"
)

const (
	resolveTime = 600 * time.Second
	installTime = 3600 * time.Second
)

// installer is what installs packages into a generation: uv or pip. An argv never holds a text that could be taken for an option.
type installer interface {
	name() string
	base() Interpreter
	start(ctx context.Context, w *work, dir string) error                // makes a copy of the current generation, or an empty one
	own(ctx context.Context, w *work, dir string, wheels []string) error // installs the program's own wheels
	addition(dir string, c Change, how asked) []string
	variables(c Change) []string // say where packages come from, in the place of addition's options, when that holds a password
	removal(dir string, names []string) []string
	// needsSource tells whether a plan without building, which failed with these words, may do with it.
	needsSource(said string) bool
}

// asked is how an installer is to be run.
type asked struct {
	dry    bool // say what would be done
	wheels bool // build nothing: no code of any package is run
}

// plan has the installer say what it would do.
func (w *work) plan(ctx context.Context, dir string, wheels bool) (lines []string, said string, err error) {
	said, err = w.exec(ctx, dir, resolveTime, w.tool.addition(dir, w.change, asked{true, wheels}))
	if err != nil {
		return nil, said, failure("the installer can't resolve this", said, err)
	}
	return planLines(said), said, nil
}

func findInstaller(env func(string) (string, bool), base Interpreter) installer {
	if uv := look(env, "uv"); uv != "" {
		return &uvTool{path: uv, py: base}
	}
	return &pipTool{py: base}
}

func interpreter(dir string) string { return filepath.Join(dir, "bin", "python") }

type uvTool struct {
	path string
	py   Interpreter
}

func (u *uvTool) name() string      { return "uv" }
func (u *uvTool) base() Interpreter { return u.py }

func (u *uvTool) start(ctx context.Context, w *work, dir string) error {
	if copied, err := w.copyOld(u.py, dir); copied || err != nil {
		return err
	}
	text, err := w.exec(ctx, dir, resolveTime, []string{u.path, "venv", "--quiet", "--no-project", "--allow-existing", "--relocatable", "--python", u.py.Path, dir})
	if err != nil {
		return failure("a virtual environment can't be made", text, err)
	}
	return w.refill(ctx, dir)
}

func (u *uvTool) own(ctx context.Context, w *work, dir string, wheels []string) error {
	argv := append(u.argv("install", dir), "--quiet", "--offline", "--no-index", "--no-deps", "--reinstall", "--compile-bytecode", "--no-config")
	text, err := w.execWith(ctx, dir, resolveTime, []string{"UV_CACHE_DIR"}, append(argv, wheels...))
	if err != nil {
		return failure("", text, err)
	}
	return nil
}

func (u *uvTool) argv(verb, dir string) []string {
	return []string{u.path, "pip", verb, "--python", interpreter(dir)}
}

func (u *uvTool) addition(dir string, c Change, how asked) []string {
	argv := append(u.argv("install", dir), "--link-mode", "copy", "--compile-bytecode", "--constraints", filepath.Join(dir, constraintsFile))
	if how.dry {
		argv = append(argv, "--dry-run")
	}
	if how.wheels {
		argv = append(argv, "--no-build")
	}
	if !c.hides() {
		if c.IndexURL != "" {
			argv = append(argv, "--default-index", c.IndexURL)
		}
		for _, f := range c.FindLinks {
			argv = append(argv, "--find-links", uncut(f))
		}
	}
	return append(append(argv, "--"), c.Add...)
}

func (u *uvTool) variables(c Change) []string {
	var out []string
	if c.IndexURL != "" {
		out = append(out, "UV_DEFAULT_INDEX="+c.IndexURL, "UV_INDEX_URL="+c.IndexURL) // the second is read by older ones
	}
	if len(c.FindLinks) > 0 {
		all := make([]string, len(c.FindLinks))
		for i, f := range c.FindLinks {
			all[i] = strings.ReplaceAll(uncut(f), ",", "%2C")
		}
		out = append(out, "UV_FIND_LINKS="+strings.Join(all, ","))
	}
	return out
}

// whole is a folder that an installer doesn't take for several: it divides values at marks.
func whole(folder, marks string) string {
	if !filepath.IsAbs(folder) || !strings.ContainsAny(folder, marks) {
		return folder
	}
	u := url.URL{Scheme: "file", Path: folder}
	return u.String()
}

// uncut is a folder that uv doesn't take for several: it divides values at commas.
func uncut(folder string) string {
	if !filepath.IsAbs(folder) {
		return folder
	}
	return strings.ReplaceAll(whole(folder, ","), ",", "%2C")
}

func (u *uvTool) removal(dir string, names []string) []string {
	return append(append(u.argv("uninstall", dir), "--"), names...)
}

func (u *uvTool) needsSource(said string) bool {
	for _, words := range []string{"has no usable wheels", "have no usable wheels", "has no wheels", "have no wheels", "Building source distributions", "building from source is disabled"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// planLines are the lines of uv's dry run that say what would change, and pip's one.
func planLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if sign, rest, ok := strings.Cut(line, " "); ok && rest != "" && (sign == "+" || sign == "-" || sign == "~") || strings.HasPrefix(line, "Would install ") {
			out = append(out, diag.Clean(line))
		}
	}
	return out
}

type pipTool struct{ py Interpreter }

func (p *pipTool) name() string      { return "pip" }
func (p *pipTool) base() Interpreter { return p.py }

func (p *pipTool) start(ctx context.Context, w *work, dir string) error {
	copied, err := w.copyOld(p.py, dir)
	if err != nil {
		return err
	}
	if copied {
		all, _ := Scan(sitePackages(dir))
		if _, found := search(all, "pip"); found {
			return nil
		}
		text, err := w.exec(ctx, dir, resolveTime, []string{interpreter(dir), "-I", "-m", "ensurepip"})
		if err != nil {
			return failure("there is neither uv nor pip; install uv", text, err)
		}
		return nil
	}
	text, err := w.exec(ctx, dir, resolveTime, []string{p.py.Path, "-I", "-m", "venv", dir})
	if err != nil {
		return failure("there is no uv, and Python can't make a virtual environment; install uv", text, err)
	}
	return w.refill(ctx, dir)
}

func (p *pipTool) own(ctx context.Context, w *work, dir string, wheels []string) error {
	argv := []string{interpreter(dir), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--force-reinstall", "--isolated"}
	text, err := w.execWith(ctx, dir, resolveTime, []string{"PIP_CACHE_DIR"}, append(argv, wheels...))
	if err != nil {
		return failure("", text, err)
	}
	return nil
}

func (p *pipTool) addition(dir string, c Change, how asked) []string {
	argv := []string{interpreter(dir), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--constraint", filepath.Join(dir, constraintsFile)}
	if how.dry {
		argv = append(argv, "--dry-run")
	}
	if how.wheels {
		argv = append(argv, "--only-binary", ":all:")
	}
	if !c.hides() {
		if c.IndexURL != "" {
			argv = append(argv, "--index-url", c.IndexURL)
		}
		for _, f := range c.FindLinks {
			argv = append(argv, "--find-links", f)
		}
	}
	return append(append(argv, "--"), c.Add...)
}

func (p *pipTool) variables(c Change) []string {
	var out []string
	if c.IndexURL != "" {
		out = append(out, "PIP_INDEX_URL="+c.IndexURL)
	}
	if len(c.FindLinks) > 0 {
		all := make([]string, len(c.FindLinks))
		for i, f := range c.FindLinks {
			all[i] = whole(f, " \t\n") // the variable is divided at spaces
		}
		out = append(out, "PIP_FIND_LINKS="+strings.Join(all, " "))
	}
	return out
}

func (p *pipTool) removal(dir string, names []string) []string {
	return append([]string{interpreter(dir), "-I", "-m", "pip", "uninstall", "--disable-pip-version-check", "--yes", "--"}, names...)
}

// needsSource: pip says of a package that has no wheel what it says of one that isn't there.
func (p *pipTool) needsSource(said string) bool {
	return strings.Contains(said, "No matching distribution found")
}

// settings are the variables by which people tell their installer where packages come from. What would change where it installs to, or
// turn off its checks, isn't among them.
func settings() []string {
	return []string{
		"UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_OFFLINE", "UV_INDEX_STRATEGY",
		"UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_CONCURRENT_DOWNLOADS", "UV_CACHE_DIR",
		"UV_CONFIG_FILE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_NO_BUILD", "UV_NO_BINARY",
		"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "PIP_PROXY",
		"PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_CACHE_DIR", "PIP_NO_CACHE_DIR", "PIP_CONFIG_FILE", "PIP_KEYRING_PROVIDER",
		"PIP_PRE", "PIP_NO_BINARY", "PIP_ONLY_BINARY",
		"SSH_AUTH_SOCK", // packages of private git repositories
	}
}

// exec runs one command of an installer and answers all that it said, which is told line by line meanwhile. It runs in a process group of its
// own, so that a terminal's Ctrl-C reaches this process alone; the end of ctx ends the group.
func (w *work) exec(ctx context.Context, dir string, most time.Duration, argv []string) (string, error) {
	var places []string
	if w.change.hides() {
		places = w.tool.variables(w.change)
	}
	return w.execWith(ctx, dir, most, settings(), argv, places...)
}

// execWith is exec with these variables of people alone, and more that are set.
func (w *work) execWith(ctx context.Context, dir string, most time.Duration, variables, argv []string, more ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it takes longer than %s", most))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cleanEnv(w.old.env, variables...), "UV_PYTHON_DOWNLOADS=never", "UV_NO_PROGRESS=1", "PIP_NO_COLOR=1", "PIP_PROGRESS_BAR=off")
	cmd.Env = append(cmd.Env, more...)
	cmd.Dir = dir // no project's settings apply
	subprocess.Own(cmd)
	subprocess.Tie(cmd)
	cmd.WaitDelay = 5 * time.Second
	said := &lines{tell: w.talk.Detail}
	runtime.LockOSThread() // the command ends with the thread that began it
	defer runtime.UnlockOSThread()
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	said.end()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return said.text(), err
}

// lines keeps what a command says and tells every whole line.
type lines struct {
	mu   sync.Mutex
	tell func(string)
	all  bytes.Buffer
	part []byte
}

const maxSaid = 1 << 20 // of a command's words: what is beyond is told but not kept

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := maxSaid - l.all.Len(); room > 0 {
		l.all.Write(p[:min(room, len(p))])
	}
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 {
			break
		}
		l.line(l.part[:i])
		l.part = l.part[i+1:]
	}
	return len(p), nil
}

var _ io.Writer = (*lines)(nil)

func (l *lines) line(b []byte) {
	if text := diag.Clean(strings.TrimRight(string(b), " \r")); text != "" && l.tell != nil {
		l.tell(text)
	}
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(l.part)
	l.part = nil
}

func (l *lines) text() string { return l.all.String() }

// failure is an error with the end of what the installer said: 8 lines. Hints of the installer are left out, since they speak of options that
// nobody here can give.
func failure(what, said string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var tail []string
	for line := range strings.Lines(said) {
		line = diag.Clean(strings.TrimRight(line, " \r\n"))
		if line != "" && !strings.HasPrefix(strings.TrimSpace(line), "hint:") {
			tail = append(tail, "  "+line)
		}
	}
	tail = tail[max(0, len(tail)-8):]
	if _, exited := errors.AsType[*exec.ExitError](err); !exited || len(tail) == 0 {
		tail = append(tail, "  "+diag.Clean(err.Error()))
	}
	if what == "" {
		what = "the installer failed"
	}
	return fmt.Errorf("%s:\n%s", what, strings.Join(tail, "\n"))
}

// shell spells an argv as a shell takes it.
func shell(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = diag.ShellWord(a)
	}
	return diag.Clean(strings.Join(out, " "))
}
