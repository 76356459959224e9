package pyhost

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/subprocess"
)

// Codes of entries that don't load, as the plugin contract has them.
const (
	LoadFailed    = "load-failed"
	InvalidPlugin = "invalid-plugin"
)

// LoadTimeout is how long one entry may take to load where a Loader doesn't say.
const LoadTimeout = 60 * time.Second

// Limits of what a load says.
const (
	maxLine = 1 << 20
	maxTail = 4 << 10
)

// Entry is an entry point that a Python object serves.
type Entry struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Loaded is what came of loading an Entry.
type Loaded struct {
	Entry
	Status string          `json:"status"` // "active", "failed"
	Code   string          `json:"code,omitempty"`
	Reason string          `json:"reason,omitempty"` // begins "failed to load: "
	Where  string          `json:"where,omitempty"`  // the plugin's own file and line, "acme/steps.py:12"; "" when there is none
	Type   json.RawMessage `json:"type,omitempty"`   // what the plugin protocol says of a type
}

// OK tells whether the entry can be used.
func (l Loaded) OK() bool { return l.Status == "active" }

// Loader loads entries in processes of an interpreter, to see whether they load.
type Loader struct {
	Python  string        // of a generation that holds our own distributions
	Env     []string      // the whole environment of its processes; nil is a clean one
	Timeout time.Duration // for one entry; 0 is LoadTimeout
	// Callbacks has those of options called too, as on a command line that has none of the options.
	Callbacks bool
}

// Load loads entries one after the other and answers what came of each, in their order. One that ends the process, or takes too long, takes
// no other with it: the rest is loaded in another process. An error means that the interpreter itself can't be used.
func (l Loader) Load(ctx context.Context, entries []Entry) ([]Loaded, error) {
	out := make([]Loaded, 0, len(entries))
	for len(out) < len(entries) {
		rest := entries[len(out):]
		done, begun, fate, err := l.some(ctx, rest)
		if err != nil {
			return nil, err
		}
		for i := range done {
			done[i].Entry = rest[i]
		}
		out = append(out, done...)
		if len(done) == len(rest) {
			break
		}
		if !begun {
			return nil, fmt.Errorf("%s can't load plugins: it %s", l.Python, fate)
		}
		out = append(out, Loaded{Entry: rest[len(done)], Status: "failed", Code: LoadFailed, Reason: "failed to load: the import " + fate})
	}
	return out, nil
}

// some loads entries until one ends the process. begun tells whether that one was begun at all, and fate what happened.
func (l Loader) some(ctx context.Context, entries []Entry) (done []Loaded, begun bool, fate string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := json.Marshal(map[string]any{"entries": entries, "callbacks": l.Callbacks})
	if err != nil {
		return nil, false, "", err
	}
	argv := append(Argv(l.Python), "--check")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = l.Env
	if cmd.Env == nil {
		cmd.Env = clean()
	}
	cmd.Stdin = bytes.NewReader(request)
	tail := &tailWriter{subprocess.Tail{Max: maxTail}}
	cmd.Stderr = tail
	subprocess.Own(cmd)
	subprocess.Tie(cmd)
	cmd.WaitDelay = 2 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, "", err
	}
	runtime.LockOSThread() // the command ends with the thread that began it
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, false, "", fmt.Errorf("load plugins: %w", err)
	}
	timeout := l.Timeout
	if timeout <= 0 {
		timeout = LoadTimeout
	}
	late := fmt.Errorf("did not end in %s", timeout)
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	defer timer.Stop()
	done, begun, err = follow(stdout, len(entries), func() { timer.Reset(timeout) })
	waited := subprocess.Wait(cmd) // what a plugin started dies with it
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, late):
		return done, begun, late.Error() + tail.said(), nil
	case cause != nil:
		return nil, false, "", cause
	case err != nil:
		return nil, false, "", fmt.Errorf("load plugins: %w", err)
	}
	return done, begun, ended(waited) + tail.said(), nil
}

// follow reads what a load of n entries says, and tells of each sign of life.
func follow(r io.Reader, n int, alive func()) (done []Loaded, begun bool, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4<<10), maxLine)
	for len(done) < n && s.Scan() {
		var line struct {
			Begin  *int    `json:"begin"`
			Loaded *Loaded `json:"loaded"`
		}
		if json.Unmarshal(s.Bytes(), &line) != nil {
			return done, begun, errors.New("the Python host says what can't be read")
		}
		alive()
		switch {
		case line.Begin != nil:
			begun = true
		case line.Loaded != nil:
			done, begun = append(done, *line.Loaded), false
		}
	}
	return done, begun, s.Err()
}

// ended words how a process ended.
func ended(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "ended the process with exit code 0"
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return fmt.Sprintf("ended the process with exit code %d", exit.ExitCode())
	case errors.As(err, &exit):
		return fmt.Sprintf("ended the process (%s)", exit)
	default:
		return "ended: " + err.Error()
	}
}

// clean is the environment of loads: what a plugin may know of who runs it.
func clean() []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return append(out, Env()...)
}

// tailWriter keeps the end of what is written.
type tailWriter struct{ subprocess.Tail }

// said is the last line that was written, for the end of a sentence.
func (t *tailWriter) said() string {
	lines := strings.Split(strings.TrimSpace(t.Text()), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return ", saying: " + last
	}
	return ""
}
