package env

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/envowner"
)

type deployOptions struct {
	order envowner.Order
	lease verb.Duration
	mode  string
	disk  float64
	json  *bool
}

const defaultTTL = 3 * time.Hour

func newDeploy(p *verb.Program) *cobra.Command {
	o := deployOptions{lease: verb.Duration(defaultTTL)}
	cmd := &cobra.Command{
		Use:   "deploy ENV",
		Short: "Start a stored environment that stays up until it is stopped",
		Long: `Starts a stored environment's servers in sandboxes behind one gateway and prints where it is reached. It stays up until agent-env env stop, or until its time is up; a
process in the background holds it.

Whoever knows the URL controls the environment: it holds a secret, which is kept in that process alone. agent-env env show prints it again. Give agents the URL of a role of
their own (--agent).`,
		Example:           "  agent-env env deploy @local/agentenv-framework/mail-mcp/mail\n  agent-env env deploy mail --ttl 30m --agent solver --json",
		Args:              verb.Args("ENV"),
		ValidArgsFunction: completeStored(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return deploy(cmd.Context(), p, args[0], o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.order.Version, "version", 0, "the `VERSION` of the environment; the latest when left out")
	verb.LeaseFlags(cmd, &o.lease)
	f.StringVar(&o.mode, "gateway-mode", "performance", "performance, or consistent: one tool call at a time")
	f.StringVar(&o.order.Type, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.Float64Var(&o.order.CPU, "cpu", 0, "at most this many `CORES` for each server")
	f.Int64Var(&o.order.MemoryMB, "memory-mb", 0, "at most this much memory for each server, in `MB`")
	f.Float64Var(&o.disk, "disk-size-gb", 0, "at most this much disk for each server, in `GB`")
	f.StringArrayVar(&o.order.Roles, "agent", nil, "print a URL for an agent in this `ROLE`, which controls nothing; repeatable")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// deployed is what --json prints.
type deployed struct {
	verb.Format
	envowner.Started
}

func deploy(ctx context.Context, p *verb.Program, id string, o deployOptions) error {
	if err := verb.CheckLease(o.lease); err != nil {
		return err
	}
	switch {
	case o.mode != "performance" && o.mode != "consistent":
		return verb.Usagef("--gateway-mode takes performance or consistent, not %q", o.mode)
	case o.order.CPU < 0 || o.order.MemoryMB < 0 || o.disk < 0:
		return verb.Usagef("limits can't be negative")
	}
	for _, role := range o.order.Roles {
		if err := access.CheckRole(role); err != nil {
			return verb.Usagef("--agent: %w", err)
		}
	}
	a, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	stored, err := a.StoredEnv(ctx, id, o.order.Version)
	if err != nil {
		return err
	}
	o.order.Env, o.order.Version = stored.ID, stored.Version
	o.order.Lease, o.order.Consistent, o.order.DiskMB = time.Duration(o.lease), o.mode == "consistent", int64(o.disk*1024)
	if err := a.CheckEnv(ctx, stored, o.order.Type); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	working, end := verb.Working(ctx, p)
	s, err := f.Start(ctx, exe, []string{"env", "own"}, o.order, working)
	end()
	if err != nil {
		return err
	}
	return printStarted(p, s, *o.json)
}

func printStarted(p *verb.Program, s envowner.Started, asJSON bool) error {
	if asJSON {
		return p.Streams.JSON(deployed{verb.V1(), s})
	}
	p.Streams.Printf("Instance: %s\nMCP URL: %s/mcp\nGateway: %s\n", s.Record.Instance, s.URL, s.URL)
	for _, role := range slices.Sorted(maps.Keys(s.AgentURL)) {
		p.Streams.Printf("MCP URL of %s: %s/mcp\n", role, s.AgentURL[role])
	}
	p.Streams.Printf("Expires: %s\n", verb.Time(p.Streams, s.Record.Expires))
	p.Streams.Note("Stop it with: agent-env env stop %s", s.Record.Instance)
	return nil
}
