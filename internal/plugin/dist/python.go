package dist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/subprocess"
)

// ErrNoPython: there is no python3 that plugins could run in.
var ErrNoPython = errors.New("there is no python3 (3.9 or later) on PATH; install one")

// Interpreter is a Python, as it describes itself.
type Interpreter struct {
	Path    string                  `json:"path"` // the base interpreter, not that of a virtual environment around it
	Markers requirement.Environment `json:"markers"`
}

// probe prints what an Interpreter says. It runs isolated (-I), without the user's site folder.
const probe = `import json, os, platform, sys
v = sys.implementation.version
iv = "{0.major}.{0.minor}.{0.micro}".format(v)
if v.releaselevel != "final":
    iv += v.releaselevel[0] + str(v.serial)
print(json.dumps({"path": getattr(sys, "_base_executable", None) or sys.executable, "markers": {
    "implementation_name": sys.implementation.name, "implementation_version": iv, "os_name": os.name,
    "platform_machine": platform.machine(), "platform_release": platform.release(), "platform_system": platform.system(),
    "platform_version": platform.version(), "python_full_version": platform.python_version(),
    "platform_python_implementation": platform.python_implementation(),
    "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform}}))
`

// look finds a program on the PATH that env has; "" when there is none. The current folder never counts.
func look(env func(string) (string, bool), name string) string {
	path, _ := env("PATH")
	return subprocess.Look(path, name)
}

// Python3 is the interpreter that a plugin environment would be made of: the python3 of PATH. ErrNoPython when there is none.
func Python3(ctx context.Context, env func(string) (string, bool)) (Interpreter, error) {
	path := look(env, "python3")
	if path == "" {
		return Interpreter{}, ErrNoPython
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-I", "-c", probe)
	cmd.Env = cleanEnv(env)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			return Interpreter{}, fmt.Errorf("ask %s what it is: %w", path, context.Cause(ctx))
		}
		return Interpreter{}, fmt.Errorf("%s doesn't work: %w", path, ErrNoPython)
	}
	var i Interpreter
	if err := json.Unmarshal(out, &i); err != nil || !filepath.IsAbs(i.Path) {
		return Interpreter{}, fmt.Errorf("%s doesn't say what it is: %w", path, ErrNoPython)
	}
	if v, err := requirement.ParseVersion(i.Markers.PythonFullVersion); err == nil {
		if least, _ := requirement.ParseVersion("3.9"); v.Compare(least) < 0 {
			return Interpreter{}, fmt.Errorf("%s is Python %s: %w", path, i.Markers.PythonFullVersion, ErrNoPython)
		}
	}
	return i, nil
}

// cleanEnv is the environment of every process that is started here: no variable of the program's own, and none that changes what Python imports.
func cleanEnv(env func(string) (string, bool), also ...string) []string {
	out := []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1", "NO_COLOR=1"}
	for _, name := range append([]string{
		"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC",
		"PYENV_ROOT", "PYENV_VERSION", // shims need them to find their interpreter
	}, also...) {
		if v, _ := env(name); v != "" && !strings.ContainsRune(v, 0) {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// Markers are the marker variables of the interpreter that plugins run in, or, before there is an environment, of the one that it would be
// made of. With neither the answer is the newest CPython known, beside ErrNoPython. An interpreter is asked at most once.
func (e *Environment) Markers(ctx context.Context) (requirement.Environment, error) {
	r, err := e.Record()
	if err == nil && r.Markers.PythonVersion != "" {
		return r.Markers, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.markers == nil {
		i, err := Python3(ctx, e.env)
		if err != nil && !errors.Is(err, ErrNoPython) {
			return requirement.Newest(), err // cancelled: another call may ask again
		}
		if err != nil {
			i.Markers = requirement.Newest()
		}
		e.markers, e.markersErr = &i.Markers, err
	}
	return *e.markers, e.markersErr
}

func (e *Environment) env(name string) (string, bool) {
	if e.o.Env == nil {
		return "", false
	}
	return e.o.Env(name)
}
