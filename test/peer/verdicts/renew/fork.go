package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/test/peer/verdicts"
)

//go:embed fork.py
var forkPy string

// forker is a process that has loaded the peer and forks for each run: a run then costs a tenth of a start.
type forker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newForker(ctx context.Context, bin string) (*forker, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "python3"), "-c", forkPy)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &forker{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// close ends the process. It is not used after that.
func (f *forker) close() error {
	_ = f.in.Close()
	return f.cmd.Wait()
}

// start is a verdicts.Start. One run at a time.
func (f *forker) start(_ context.Context, home, dir string, args ...string) (int, string, error) {
	file := filepath.Join(home, ".stderr")
	defer os.Remove(file)
	job, err := json.Marshal(map[string]any{"stderr": file, "env": verdicts.Env(home), "dir": dir, "args": args})
	if err != nil {
		return 0, "", err
	}
	if _, err := f.in.Write(append(job, '\n')); err != nil {
		return 0, "", err
	}
	line, err := f.out.ReadString('\n')
	if err != nil {
		return 0, "", fmt.Errorf("the peer's process ended: %w", err)
	}
	exit, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0, "", fmt.Errorf("the peer's process says %q", line)
	}
	text, err := os.ReadFile(file)
	return exit, string(text), err
}
