package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/archive"
)

// The worker is this program in a user namespace where the caller is root and has its range of ids. It begins without any id, which costs
// it its capabilities, waits for the ids, and executes itself once more, which gives them back.
const (
	workerArgv0 = "agent-env-image-worker"
	waitingArg  = "wait"
	workingArg  = "work"
	mappedFD    = 3 // a byte tells that the ids are there
	jobFD       = 4 // JSON of the job
	replyFD     = 5 // JSON of the reply
)

type reply struct {
	Error  string         `json:"error,omitempty"`
	Space  bool           `json:"space,omitempty"` // the disk is full
	Report archive.Report `json:"report"`
}

// removeLimit bounds the removal of a tree by the worker.
const removeLimit = 10 * time.Minute

// removeAll removes a tree whose files belong to ids of the range.
func (o *owners) removeAll(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit) //nolint:forbidigo // trees are removed on the way out of failures, too
	defer cancel()
	return o.do(ctx, &job{Op: opRemove, Dir: path}, nil, nil)
}

// work has a worker do the job.
func (o *owners) work(ctx context.Context, j *job, in io.Reader, report *archive.Report) (err error) {
	var pipes [3][2]*os.File
	defer func() {
		for _, p := range pipes {
			for _, f := range p {
				if f != nil {
					f.Close()
				}
			}
		}
	}()
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return err
		}
	}
	mapped, task, answer := pipes[0], pipes[1], pipes[2]
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, o.worker)
	cmd.Args, cmd.Env, cmd.Dir = []string{workerArgv0, waitingArg}, []string{"GOMAXPROCS=2"}, "/"
	cmd.Stdin, cmd.Stderr = in, &stderr
	cmd.ExtraFiles = []*os.File{mapped[0], task[0], answer[1]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the worker for images: %w", err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	r, err := o.talk(ctx, cmd.Process.Pid, j, mapped[1], task[1], answer[0])
	if err != nil {
		_ = cmd.Process.Kill()
	}
	waited := cmd.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("the worker for images: %w: %s", err, strings.TrimSpace(stderr.String()))
	case r.Space:
		return fmt.Errorf("%s: %w", r.Error, unix.ENOSPC)
	case r.Error != "":
		return errors.New(r.Error)
	case waited != nil:
		return fmt.Errorf("the worker for images: %w", waited)
	}
	if report != nil {
		*report = r.Report
	}
	return nil
}

// talk gives the worker its ids and its job, and reads its answer.
func (o *owners) talk(ctx context.Context, pid int, j *job, mapped, task, answer *os.File) (reply, error) {
	if err := o.ids.Map(ctx, pid); err != nil {
		return reply{}, err
	}
	if _, err := mapped.Write([]byte{1}); err != nil {
		return reply{}, err
	}
	if err := json.NewEncoder(task).Encode(j); err != nil {
		return reply{}, err
	}
	task.Close()
	stop := context.AfterFunc(ctx, func() { answer.SetReadDeadline(time.Now()) })
	defer stop()
	var r reply
	if err := json.NewDecoder(answer).Decode(&r); err != nil {
		return reply{}, err
	}
	return r, nil
}

// Dispatch plays the worker and never returns when the process was started for that; otherwise it returns at once. It comes before anything
// else in the main function of a program that is the Worker of a Store.
func Dispatch(ctx context.Context) {
	if len(os.Args) != 2 || os.Args[0] != workerArgv0 {
		return
	}
	switch os.Args[1] {
	case waitingArg:
		if n, err := os.NewFile(mappedFD, "mapped").Read(make([]byte, 1)); n != 1 {
			fmt.Fprintln(os.Stderr, "no ids came:", err)
			os.Exit(1)
		}
		for _, fd := range []int{jobFD, replyFD} {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				os.Exit(1)
			}
		}
		fmt.Fprintln(os.Stderr, unix.Exec("/proc/self/exe", []string{workerArgv0, workingArg}, os.Environ()))
		os.Exit(1)
	case workingArg:
		os.Exit(serve(ctx))
	}
}

// serve does one job.
func serve(ctx context.Context) int {
	signal.Ignore(syscall.SIGPIPE)
	var j job
	if err := json.NewDecoder(os.NewFile(jobFD, "job")).Decode(&j); err != nil {
		fmt.Fprintln(os.Stderr, "read the job:", err)
		return 1
	}
	unix.Umask(0o022)
	var r reply
	err := j.run(ctx, os.Stdin, &r.Report)
	if err == nil && j.Op == opUnpack { // the caller's digests are of all that it can read
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	if err != nil {
		r.Error, r.Space = err.Error(), errors.Is(err, unix.ENOSPC)
	}
	if err := json.NewEncoder(os.NewFile(replyFD, "reply")).Encode(&r); err != nil {
		return 1
	}
	return 0
}
