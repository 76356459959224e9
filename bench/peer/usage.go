package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what one command cost.
type usage struct {
	wall  time.Duration
	cpu   time.Duration // user and system, of every process it left behind too
	rssMB float64       // of its largest process
}

// becomeReaper makes orphans of the measured commands this process's children, so that their time is counted.
func becomeReaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// command runs argv, which must end with the code exit, and waits for it and for everything that outlived it, which must end within ten seconds.
func command(ctx context.Context, exit int, dir string, env []string, argv ...string) (usage, error) {
	before, err := childrenCPU()
	if err != nil {
		return usage{}, err
	}
	var outB bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = &outB, &outB
	cmd.WaitDelay = time.Second
	start := time.Now()
	err = cmd.Run()
	wall := time.Since(start)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exit {
		return usage{}, fmt.Errorf("%v: %w, want exit status %d\n%s", argv, err, exit, tail(outB.Bytes()))
	}
	if err := reapAll(ctx, 10*time.Second); err != nil {
		return usage{}, fmt.Errorf("%v: %w", argv, err)
	}
	after, err := childrenCPU()
	if err != nil {
		return usage{}, err
	}
	ru := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage{wall, after - before, float64(ru.Maxrss) / 1024}, nil
}

func childrenCPU() (time.Duration, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ru); err != nil {
		return 0, err
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), nil
}

// reapAll waits until this process has no child left.
func reapAll(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case pid == 0:
			if time.Now().After(end) || ctx.Err() != nil {
				return errors.New("it left processes behind")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func tail(b []byte) []byte {
	if len(b) > 2000 {
		return b[len(b)-2000:]
	}
	return b
}

// environment is a clean one with a home of its own.
func environment(home string) []string {
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + home + "/.local/state", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
	for _, k := range []string{"PATH", "TMPDIR"} {
		if v := os.Getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	return env
}
