package agent

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/ref"
)

type deployOptions struct {
	order agentowner.Order
	lease verb.Duration
	disk  float64
	vars  []string
	json  *bool
}

const defaultTTL = 2 * time.Hour

func newDeploy(p *verb.Program) *cobra.Command {
	o := deployOptions{lease: verb.Duration(defaultTTL)}
	cmd := &cobra.Command{
		Use:   "deploy AGENT",
		Short: "Start an agent that stays up until it is stopped",
		Long: `Starts an agent and prints where it is asked. It stays up until agent-env agent stop, or until its time is up; a process in the background holds it, and its sandbox goes
with that. agent-env agent prompt asks it by its instance; other programs, by A2A at the address that is printed: whoever knows that may ask the agent, so it holds a
secret, which is kept in that process alone. agent-env agent show prints it again.`,
		Example:           "  agent-env agent deploy loop --model NAME\n  agent-env agent deploy @local/desk/helper --ttl 30m --json",
		Args:              verb.Args("AGENT"),
		ValidArgsFunction: completeAgents(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return deploy(cmd.Context(), p, args[0], o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.order.Version, "version", 0, "the `VERSION` of a stored agent; the latest when left out")
	f.StringVar(&o.order.Model, "model", "", "the `MODEL` of its prompts: a name that the endpoint knows, or scripted:ARTIFACT")
	f.StringVar(&o.order.System, "system", "", "a system prompt, as `TEXT`")
	f.StringArrayVar(&o.vars, "env-var", nil, "an environment variable of its program, as `KEY=VALUE`; repeatable")
	verb.LeaseFlags(cmd, &o.lease)
	f.StringVar(&o.order.Type, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.Float64Var(&o.order.CPU, "cpu", 0, "at most this many `CORES`")
	f.Int64Var(&o.order.MemoryMB, "memory-mb", 0, "at most this much memory, in `MB`")
	f.Float64Var(&o.disk, "disk-size-gb", 0, "at most this much disk, in `GB`")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// deployed is what --json prints.
type deployed struct {
	verb.Format
	agentowner.Started
}

func deploy(ctx context.Context, p *verb.Program, text string, o deployOptions) error {
	if err := verb.CheckLease(o.lease); err != nil {
		return err
	}
	if o.order.CPU < 0 || o.order.MemoryMB < 0 || o.disk < 0 {
		return verb.Usagef("limits can't be negative")
	}
	var err error
	if o.order.Vars, err = verb.Pairs("--env-var", o.vars); err != nil {
		return err
	}
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	o.order.Lease, o.order.DiskMB = time.Duration(o.lease), int64(o.disk*1024)
	order, err := a.AgentOrder(ctx, text, o.order)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	working, end := verb.Working(ctx, p)
	s, err := f.Start(ctx, exe, []string{"agent", "own"}, order, working)
	end()
	if err != nil {
		return err
	}
	return printStarted(p, s, *o.json)
}

func printStarted(p *verb.Program, s agentowner.Started, asJSON bool) error {
	if asJSON {
		return p.Streams.JSON(deployed{verb.V1(), s})
	}
	r := s.Record
	p.Streams.Printf("Instance: %s\nA2A URL: %s\n", r.Instance, s.URL)
	if r.Model != "" {
		p.Streams.Printf("Model: %s\n", r.Model)
	}
	if r.Sandbox != "" {
		p.Streams.Printf("Sandbox: %s (%s)\n", r.Sandbox, r.Provider)
	}
	if len(s.Skills) > 0 {
		p.Streams.Printf("Skills: %s\n", strings.Join(s.Skills, ", "))
	}
	p.Streams.Printf("Expires: %s\n", verb.Time(p.Streams, r.Expires))
	p.Streams.Note("Ask it with: agent-env agent prompt %s TEXT\nStop it with: agent-env agent stop %s", r.Instance, r.Instance)
	return nil
}

// instance finds the living deployment that text names by its instance, whole or without the folders of its id: an agent's id alone means the agent.
func instance(f *agentowner.Folder, text string) (agentowner.Record, bool, error) {
	all, err := f.List()
	if err != nil {
		return agentowner.Record{}, false, err
	}
	for _, r := range all {
		if r.State != owner.Dead && (r.Instance == text || ref.Last(r.Instance) == text) {
			return r, true, nil
		}
	}
	return agentowner.Record{}, false, nil
}
