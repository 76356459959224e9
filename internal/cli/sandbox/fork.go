package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
)

// maxForks bounds a slip of the finger.
const maxForks = 10_000

type forkOptions struct {
	n       int
	network networkFlags
	spec    sandbox.Spec
	lease   verb.Duration
	json    *bool
}

func newFork(p *verb.Program) *cobra.Command {
	o := forkOptions{n: 1, lease: verb.Duration(sandbox.DefaultLease)}
	cmd := &cobra.Command{
		Use:   "fork SANDBOX",
		Short: "Start sandboxes that begin with what another one holds now",
		Long: `Starts sandboxes that begin with all files that a living one holds, and prints their ids. Its processes are not forked; it stands still for the moment that
it takes to look, then goes on. What each may reach is said anew. None of them ever sees what another one writes from then on.`,
		Example: "  agent-env sandbox fork try\n  agent-env sandbox fork try -n 20 --name branch --lease 15m",
		Args:    verb.Args("SANDBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.n < 1 || o.n > maxForks {
				return verb.Usagef("-n is a number from 1 to %d", maxForks)
			}
			if o.lease <= 0 {
				return verb.Usagef("--lease must be longer than nothing")
			}
			if err := checkSpec(o.spec, time.Duration(o.lease)); err != nil {
				return err
			}
			if err := o.network.into(&o.spec); err != nil {
				return err
			}
			return forkBox(cmd.Context(), p, args[0], o)
		},
		ValidArgsFunction: completeIDs(p, false),
	}
	f := cmd.Flags()
	f.IntVarP(&o.n, "number", "n", 1, "start `N` of them")
	f.StringVar(&o.spec.Name, "name", "", "a `NAME` for people; several get a number each")
	f.Var(&o.lease, "lease", "how long each lives: 90s, 15m, 2h")
	f.Float64Var(&o.spec.CPU, "cpu", 0, "at most this many `CORES` each")
	f.Int64Var(&o.spec.MemoryMB, "memory", 0, "at most this much memory each, in `MB`")
	f.Int64Var(&o.spec.DiskMB, "disk", 0, "at most this much disk each beyond what is there, in `MB`")
	f.Int64Var(&o.spec.Pids, "pids", 0, "at most this many `PROCESSES` each")
	f.StringArrayVarP(&o.spec.Env, "env", "e", nil, "set a variable, `NAME=VALUE`, or hand yours on, NAME; repeatable")
	o.network.add(f)
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// forked is what --json prints.
type forked struct {
	verb.Format
	Boxes []sandbox.Info `json:"sandboxes"`
}

func forkBox(ctx context.Context, p *verb.Program, text string, o forkOptions) error {
	env, err := variables(o.spec.Env, p.Env)
	if err != nil {
		return err
	}
	o.spec.Env, o.spec.Lease = env, time.Duration(o.lease)
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	boxes, err := a.ForkBox(ctx, text, o.n, o.spec)
	if *o.json {
		return errors.Join(err, p.Streams.JSON(forked{verb.V1(), append([]sandbox.Info{}, boxes...)}))
	}
	for _, b := range boxes {
		p.Streams.Printf("%s\n", b.ID)
	}
	return err
}
