package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// Found is a command of a box.
type Found struct {
	Path    string
	Version Version
	Fit     string
}

const findTimeout = time.Minute

// Find looks for a profile's command on the path of a box. nil: there is none, or the profile brings its own along.
func Find(ctx context.Context, box guest.Box, p *Profile) (*Found, error) {
	if p.Command == "" {
		return nil, nil
	}
	path, err := which(ctx, box, p.Command)
	if err != nil || path == "" {
		return nil, err
	}
	out, err := ask(ctx, box, path, "--version")
	if err != nil {
		return nil, err
	}
	v, ok := ParseVersion(out)
	if !ok {
		return nil, nil // something else of the same name
	}
	return &Found{path, v, p.Fit(v)}, nil
}

// FindRuntime looks for what a profile's command is run with, in folders of the box that the caller names and on its path. A *MissingError tells what is
// missing.
func FindRuntime(ctx context.Context, box guest.Box, r Runtime, places ...string) (string, error) {
	if r.Name == "" {
		return "", nil
	}
	var seen []string
	for _, name := range r.names(places) {
		path, err := which(ctx, box, name)
		if err != nil {
			return "", err
		}
		if path == "" {
			continue
		}
		out, err := ask(ctx, box, path, "--version")
		if err != nil {
			return "", err
		}
		v, ok := ParseVersion(out)
		if ok && v.Compare(r.Min) >= 0 {
			return path, nil
		}
		if ok {
			seen = append(seen, fmt.Sprintf("%s is %s", path, v))
		}
	}
	why := "there is none"
	if seen != nil {
		why = strings.Join(seen, ", ")
	}
	return "", &MissingError{fmt.Sprintf("%s %d.%d or newer", r.Name, r.Min[0], r.Min[1]), why}
}

// MissingError tells of a program that has to be there.
type MissingError struct{ What, Why string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("it needs %s in the sandbox, and %s: install it in /usr or /usr/local, or name its folder in sandbox.local.tools", e.What, e.Why)
}

// names are what a runtime may be called, in places first.
func (r Runtime) names(places []string) []string {
	names := []string{r.Name}
	if r.Name == "python3" {
		for minor := r.Min[1]; minor < r.Min[1]+4; minor++ {
			names = append(names, fmt.Sprintf("python3.%d", minor))
		}
	}
	var out []string
	for _, p := range places {
		for _, n := range names {
			out = append(out, p+"/"+n)
		}
	}
	return append(out, names...)
}

// which is the path of a program in a box; "" for none.
func which(ctx context.Context, box guest.Box, name string) (string, error) {
	out, err := ask(ctx, box, "sh", "-c", `command -v -- "$1" || true`, "which", name)
	out, _, _ = strings.Cut(out, "\n")
	if err != nil || !strings.HasPrefix(out, "/") {
		return "", err
	}
	return out, nil
}

// ask is what a short command prints; "" when it fails.
func ask(ctx context.Context, box guest.Box, argv ...string) (string, error) {
	res, err := guest.Output(ctx, box, guest.Command{Argv: argv, Timeout: findTimeout, KillTree: true}, guest.Limits{Stdout: 4 << 10, Stderr: 1})
	if err != nil {
		return "", err
	}
	if !res.Exit.OK() {
		return "", nil
	}
	return strings.TrimSpace(string(res.Stdout.Head)), nil
}
