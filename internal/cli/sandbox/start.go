package sandbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
)

type startOptions struct {
	sandbox, isolation, from string
	spec                     sandbox.Spec
	network                  networkFlags
	lease                    verb.Duration
	json                     *bool
}

func newStart(p *verb.Program) *cobra.Command {
	o := startOptions{lease: verb.Duration(sandbox.DefaultLease)}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a sandbox that lives until its lease ends or it is removed",
		Long: `Starts a sandbox and prints its id. It lives on after this command, until its lease ends; nothing renews the lease by itself.
A process inside sees this machine's programs, read-only in effect, and nothing of your home, your environment or your network, unless --network
or an --allow flag lets it out.
With --image it sees the image's files in their place; the image's user, environment and working folder are those of its commands.`,
		Example: "  agent-env sandbox start --name try --lease 15m\n  agent-env sandbox exec $(agent-env sandbox start) -- uname -a",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return start(cmd.Context(), p, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.spec.Name, "name", "", "a `NAME` for people")
	f.StringVar(&o.spec.Image, "image", "", "start from an image: `REF` as in agent-env image pull")
	f.StringVar(&o.sandbox, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.StringVar(&o.isolation, "isolation", "", "refuse when less than this `LEVEL` holds: "+strings.Join(verb.Levels(), ", "))
	f.StringVar(&o.from, "from", "", "begin with what a `SNAPSHOT` holds: an id, the beginning of one, or a name")
	f.Var(&o.lease, "lease", "how long it lives: 90s, 15m, 2h")
	f.Float64Var(&o.spec.CPU, "cpu", 0, "at most this many `CORES`")
	f.Int64Var(&o.spec.MemoryMB, "memory", 0, "at most this much memory, in `MB`")
	f.Int64Var(&o.spec.DiskMB, "disk", 0, "at most this much disk, in `MB`")
	f.Int64Var(&o.spec.Pids, "pids", 0, "at most this many `PROCESSES`")
	f.StringArrayVarP(&o.spec.Env, "env", "e", nil, "set a variable, `NAME=VALUE`, or hand yours on, NAME; repeatable")
	o.network.add(f)
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// started is what --json prints.
type started struct {
	verb.Format
	Box sandbox.Info `json:"sandbox"`
}

func start(ctx context.Context, p *verb.Program, o startOptions) error {
	if o.isolation != "" && !slices.Contains(verb.Levels(), o.isolation) {
		return verb.Usagef("--isolation takes %s, not %q", strings.Join(verb.Levels(), ", "), o.isolation)
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
	env, err := variables(o.spec.Env, p.Env)
	if err != nil {
		return err
	}
	o.spec.Env, o.spec.Isolation, o.spec.Lease = env, o.isolation, time.Duration(o.lease)
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	if o.spec.Image != "" {
		progress, done := verb.Download(ctx, p, o.spec.Image)
		defer done()
		o.spec.Progress = progress
	}
	if o.from != "" {
		snap, _, err := a.FindSnapshot(ctx, o.from)
		if err != nil {
			return err
		}
		if o.spec.From = snap.ID; o.sandbox == "" {
			o.sandbox = snap.Provider
		}
	}
	info, err := a.StartBox(ctx, o.sandbox, o.spec)
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(started{verb.V1(), info})
	}
	p.Streams.Printf("%s\n", info.ID)
	for _, port := range info.Published {
		p.Streams.Note("Its port %d is http://127.0.0.1:%d here.", port.Box, port.Host)
	}
	p.Streams.Note("It lives for %s. Remove it with: agent-env sandbox rm %s", o.lease.String(), info.ID)
	return nil
}

// checkSpec refuses what no sandbox can have.
func checkSpec(s sandbox.Spec, lease time.Duration) error {
	s.Lease = lease
	if err := s.CheckLimits(); err != nil {
		return verb.Usagef("%w", err)
	}
	return checkName(s.Name)
}

func checkName(name string) error {
	if err := sandbox.CheckName(name); err != nil {
		return verb.Usagef("%w", err)
	}
	return nil
}

// variables turns NAME=VALUE and NAME into NAME=VALUE.
func variables(list []string, env func(string) (string, bool)) ([]string, error) {
	var out []string
	for _, v := range list {
		name, _, set := strings.Cut(v, "=")
		if name == "" || strings.ContainsRune(v, 0) {
			return nil, verb.Usagef("--env takes NAME=VALUE or NAME, not %q", v)
		}
		if !set {
			value, ok := env(name)
			if !ok {
				return nil, verb.Usagef("--env %s: your environment has no %s", name, name)
			}
			v = name + "=" + value
		}
		out = append(out, v)
	}
	return out, nil
}
