package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

type execOptions struct {
	dir     string
	env     []string
	timeout verb.Duration
	kill    bool
	user    string
	tty     bool
	most    int64 // bytes of each stream in what --json prints
	json    *bool
}

func newExec(p *verb.Program) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARGUMENT]…",
		Short: "Run a command in a sandbox",
		Long: `Runs a command in a sandbox, with this command's input and output, and ends with its exit code: 124 after --timeout, 128 and the
signal's number after a signal. SANDBOX is an id, the beginning of one, or a name.

With --json, a stream of more than --max-output bytes is cut to its head and tail, and the whole is stored as an artifact, which the object names.`,
		Example: "  agent-env sandbox exec try -- ls -l /app\n  echo hello | agent-env sandbox exec try -- cat",
		Args: func(cmd *cobra.Command, args []string) error {
			switch at := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || at == 0:
				return verb.Usagef("%s needs a SANDBOX; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			case at < 0 || at > 1:
				return verb.Usagef("put -- between the sandbox and the command: agent-env sandbox exec %s -- %s", args[0], strings.Join(append(args[1:], "COMMAND")[:max(len(args)-1, 1)], " "))
			case len(args) == 1:
				return verb.Usagef("%s needs a COMMAND after --", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeIDs(p, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return execute(cmd.Context(), p, args[0], args[1:], o) },
	}
	cmd.Flags().StringVarP(&o.dir, "dir", "w", "", "the `FOLDER` to run it in; the sandbox's home when empty")
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "run it as this `USER` of the sandbox: a name, an id, or either with :GROUP")
	cmd.Flags().BoolVarP(&o.tty, "tty", "t", false, "give it a terminal, connected with yours")
	cmd.Flags().Int64Var(&o.most, "max-output", 16<<20, "with --json, keep this many `BYTES` of each stream")
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil, "set a variable, `NAME=VALUE`, or hand yours on, NAME; repeatable")
	cmd.Flags().Var(&o.timeout, "timeout", "end it and everything it started after this long")
	cmd.Flags().BoolVar(&o.kill, "kill", false, "end what it left running when it ends")
	o.json = verb.JSONFlag(cmd, "print one JSON object about how it ended, in place of its output")
	return cmd
}

// ended is what --json prints.
type ended struct {
	verb.Format
	Sandbox string     `json:"sandbox_id"`
	Exit    guest.Exit `json:"exit"`
	Status  int        `json:"status"`
	Stdout  string     `json:"stdout"`
	Stderr  string     `json:"stderr"`
	// Truncated tells that the middle of an output is missing; then what was cut is described.
	Truncated bool `json:"truncated,omitempty"`
	OutCut    *cut `json:"stdout_cut,omitempty"`
	ErrCut    *cut `json:"stderr_cut,omitempty"`
}

// cut describes a stream that was too long: its first Head bytes and its end are in the object, the whole is an artifact.
type cut struct {
	Bytes    int64                 `json:"bytes"` // of the whole
	Head     int                   `json:"head"`  // bytes before the gap
	Artifact *artifactstore.Stored `json:"artifact,omitempty"`
	Lost     string                `json:"lost,omitempty"` // why the whole was not stored
}

func execute(ctx context.Context, p *verb.Program, text string, argv []string, o execOptions) error {
	if o.tty && *o.json {
		return verb.Usagef("-t and --json exclude each other")
	}
	if o.most <= 0 {
		return verb.Usagef("--max-output is at least 1")
	}
	env, err := variables(o.env, p.Env)
	if err != nil {
		return err
	}
	a, info, box, err := connect(ctx, p, text)
	if err != nil {
		return err
	}
	defer box.Close()
	c := guest.Command{Argv: argv, Env: env, Dir: o.dir, User: o.user, Timeout: time.Duration(o.timeout), KillTree: o.kill}
	if *o.json {
		return captured(ctx, p, a, box, info.ID, c, o.most)
	}
	run := streamed
	if o.tty {
		run = interactive
	}
	exit, err := run(ctx, p.Streams, box, c)
	if err != nil {
		return err
	}
	if exit.TimedOut {
		p.Streams.Note("The command was ended after %s.", o.timeout.String())
	}
	if exit.OOM {
		p.Streams.Note("A process of the sandbox was ended for lack of memory.")
	}
	if exit.DiskFull {
		p.Streams.Note("The sandbox's disk is full.")
	}
	if exit.PidsFull {
		p.Streams.Note("The sandbox has as many processes as it may have; more were refused.")
	}
	if status := exit.Status(); status != 0 {
		return verb.Exit(status)
	}
	return nil
}

func captured(ctx context.Context, p *verb.Program, a *app.App, box guest.Box, id string, c guest.Command, most int64) error {
	var whole spills
	defer whole.close()
	r, err := guest.Output(ctx, box, c, guest.Limits{Stdout: most, Stderr: most, Spill: whole.open})
	if err != nil {
		return err
	}
	out := ended{
		Format: verb.V1(), Sandbox: id, Exit: r.Exit, Status: r.Exit.Status(), Stdout: r.Stdout.String(), Stderr: r.Stderr.String(),
		Truncated: r.Stdout.Truncated || r.Stderr.Truncated,
	}
	out.OutCut = whole.cut(ctx, a, "sandbox-output/"+id+"/stdout", r.Stdout, whole.files[0])
	out.ErrCut = whole.cut(ctx, a, "sandbox-output/"+id+"/stderr", r.Stderr, whole.files[1])
	if err := p.Streams.JSON(out); err != nil {
		return err
	}
	if out.Status != 0 {
		return verb.Exit(out.Status)
	}
	return nil
}

// spills are files for the streams that are too long to be kept in memory.
type spills struct {
	files [2]*os.File
	in    [2]*atomicfile.Scratch
}

func (s *spills) open(stderr bool) (io.Writer, error) {
	i := 0
	if stderr {
		i = 1
	}
	in, err := atomicfile.NewScratch("agent-env-output")
	if err != nil {
		return nil, err
	}
	s.in[i] = in
	f, err := os.Create(filepath.Join(in.Dir, "stream"))
	if err != nil {
		return nil, err
	}
	s.files[i] = f
	return &bounded{f, maxSpill}, nil
}

// maxSpill is how much of a stream is stored: a command must not fill this machine's disk.
const maxSpill = 1 << 30

// bounded takes so many bytes and no more.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, fmt.Errorf("it is longer than %s, which is the most that is stored", term.Size(maxSpill))
	}
	b.left -= int64(len(p))
	return b.w.Write(p)
}

func (s *spills) close() {
	for _, f := range s.files {
		if f != nil {
			f.Close()
		}
	}
	for _, in := range s.in {
		if in != nil {
			_ = in.Remove()
		}
	}
}

// cut stores a stream that was too long and describes it; nil for one that wasn't.
func (s *spills) cut(ctx context.Context, a *app.App, id string, c guest.Captured, f *os.File) *cut {
	if !c.Truncated {
		return nil
	}
	out := &cut{Bytes: c.Total, Head: len(c.Head)}
	if c.SpillErr != nil || f == nil {
		out.Lost = fmt.Sprint(c.SpillErr)
		return out
	}
	stored, err := storeFile(ctx, a, id, f.Name(), "output of a command in a sandbox")
	if err != nil {
		out.Lost = err.Error()
		return out
	}
	out.Artifact = &stored
	return out
}
