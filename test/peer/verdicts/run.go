package verdicts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// runLimit is how long a program may take over one input.
const runLimit = 2 * time.Minute

// Lay writes the input below an empty home folder and returns the bundle's folder.
func (in Input) Lay(home string) (string, error) {
	name := in.Dir
	if name == "" {
		name = "b"
	}
	dir := home + "/" + name
	if err := in.Files.Write(dir, home); err != nil {
		return "", fmt.Errorf("laying out %s: %w", in.Name, err)
	}
	if in.Before != nil {
		if err := in.Before.Write(filepath.Join(home, "before"), home); err != nil {
			return "", fmt.Errorf("laying out what comes before %s: %w", in.Name, err)
		}
	}
	return dir, nil
}

// Named is what the command line calls the bundle.
func (in Input) Named() string {
	if in.Bundle == "" {
		return "."
	}
	return in.Bundle
}

// Start runs a program in a folder to its end.
type Start func(ctx context.Context, home, dir string, args ...string) (exit int, stderr string, err error)

// Run lays the input out in an empty home folder and has a program judge it by a dry run. What comes before is written with the command first, which
// gets its folder as the last argument; more arguments follow those of the dry run.
func (in Input) Run(ctx context.Context, start Start, home string, first []string, more ...string) (exit int, stderr string, err error) {
	dir, err := in.Lay(home)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	if in.Before != nil {
		exit, stderr, err = start(ctx, home, home, append(first[:len(first):len(first)], "./before")...)
		if err != nil {
			return 0, "", err
		}
		if exit != 0 {
			return 0, "", fmt.Errorf("writing what comes before %s: exit %d\n%s", in.Name, exit, stderr)
		}
	}
	args := append([]string{"run", in.Named(), "--dry-run"}, in.Args...)
	exit, stderr, err = start(ctx, home, dir, append(args, more...)...)
	if err != nil {
		return 0, "", fmt.Errorf("judging %s: %w", in.Name, err)
	}
	return exit, stderr, nil
}

// Env is the environment of a program that shall know nothing of this user's home and state.
func Env(home string) map[string]string {
	return map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": home, "XDG_STATE_HOME": filepath.Join(home, ".state"), "LANG": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "1000",
	}
}

// Program starts the program at a path.
func Program(path string) Start {
	return func(ctx context.Context, home, dir string, args ...string) (int, string, error) {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Dir = dir
		for name, value := range Env(home) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return 0, "", ctx.Err()
		case errors.As(err, &exit):
			return exit.ExitCode(), stderr.String(), nil
		case err != nil:
			return 0, "", err
		}
		return 0, stderr.String(), nil
	}
}
