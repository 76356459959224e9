package sandbox

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
)

type execOptions struct {
	dir     string
	env     []string
	timeout verb.Duration
	kill    bool
	json    *bool
}

func newExec(p *verb.Program) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARGUMENT]…",
		Short: "Run a command in a sandbox",
		Long: `Runs a command in a sandbox, with this command's input and output, and ends with its exit code: 124 after --timeout, 128 and the
signal's number after a signal. SANDBOX is an id, the beginning of one, or a name.`,
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
	cmd.Flags().StringVar(&o.dir, "dir", "", "the `FOLDER` to run it in; the sandbox's home when empty")
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
	// Truncated tells that the middle of an output is missing.
	Truncated bool `json:"truncated,omitempty"`
}

func execute(ctx context.Context, p *verb.Program, text string, argv []string, o execOptions) error {
	env, err := variables(o.env, p.Env)
	if err != nil {
		return err
	}
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	info, provider, err := a.FindBox(ctx, text)
	if err != nil {
		return err
	}
	box, err := provider.Connect(ctx, info.ID)
	if err != nil {
		return err
	}
	defer box.Close()
	c := guest.Command{Argv: argv, Env: env, Dir: o.dir, Timeout: time.Duration(o.timeout), KillTree: o.kill}
	if *o.json {
		return captured(ctx, p, box, info.ID, c)
	}
	exit, err := streamed(ctx, p.Streams, box, c)
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

func captured(ctx context.Context, p *verb.Program, box guest.Box, id string, c guest.Command) error {
	r, err := guest.Output(ctx, box, c, guest.Limits{Stdout: 16 << 20, Stderr: 16 << 20})
	if err != nil {
		return err
	}
	out := ended{verb.V1(), id, r.Exit, r.Exit.Status(), r.Stdout.String(), r.Stderr.String(), r.Stdout.Truncated || r.Stderr.Truncated}
	if err := p.Streams.JSON(out); err != nil {
		return err
	}
	if out.Status != 0 {
		return verb.Exit(out.Status)
	}
	return nil
}
