package verb

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/owner"
)

// Deployments is the folder of what a noun has deployed, whatever that is.
type Deployments interface {
	Heads() ([]owner.Head, error)
	Sweep(ctx context.Context) ([]string, error)
}

// Deployed is the program and the deployments of a noun, after what dead sandboxes and owners left has been swept.
func Deployed[D Deployments](ctx context.Context, p *Program, folder func(*app.App) (D, error)) (*app.App, D, error) {
	var none D
	a, err := p.Ready()
	if err != nil {
		return nil, none, err
	}
	p.Sweep(ctx, a)
	f, err := folder(a)
	if err != nil {
		return nil, none, err
	}
	swept, err := f.Sweep(ctx)
	if err != nil {
		p.Streams.Detail("sweep deployments: %v", err)
	}
	for _, id := range swept {
		p.Streams.Note("Swept what was left of the deployment %s, whose owner is gone", id)
	}
	return a, f, nil
}

// CompleteDeployed offers a noun's deployments to the shell, for the first argument.
func CompleteDeployed[D Deployments](p *Program, folder func(*app.App) (D, error)) cobra.CompletionFunc {
	return p.CompleteFirst(func(_ context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		f, err := folder(a)
		if err != nil {
			return nil, err
		}
		all, err := f.Heads()
		var out []cobra.Completion
		for _, h := range all {
			out = append(out, cobra.CompletionWithDesc(h.Instance, h.State))
		}
		return out, err
	}, cobra.ShellCompDirectiveNoFileComp)
}

// NewOwn is what deploy starts in the background.
func NewOwn(p *Program, own func(a *app.App, ctx context.Context, order io.Reader, c *owner.Caller) error) *cobra.Command {
	return &cobra.Command{
		Use: "own", Hidden: true, Short: "Hold a deployment, told on standard input",
		Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := p.Ready()
			if err != nil {
				return err
			}
			c, err := owner.Parent()
			if err != nil {
				return err
			}
			return own(a, cmd.Context(), os.Stdin, c)
		},
	}
}

// stoppedAll is what --json prints.
type stoppedAll struct {
	Format
	Instances []string `json:"stopped"`
}

// StopDeployed stops deployments one after the other and tells of each; stop answers the instance that a name means.
func (p *Program) StopDeployed(names []string, asJSON bool, stop func(name string) (instance string, err error)) error {
	out := stoppedAll{V1(), []string{}}
	for _, name := range names {
		instance, err := stop(name)
		if err != nil {
			return err
		}
		out.Instances = append(out.Instances, instance)
		if !asJSON {
			p.Streams.Printf("Stopped %s\n", instance)
		}
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	return nil
}

// Bounds of --ttl.
const (
	minTTL = time.Minute
	maxTTL = 14 * 24 * time.Hour
)

// LeaseFlags are how long a deployment stays up.
func LeaseFlags(cmd *cobra.Command, d *Duration) {
	cmd.Flags().Var(d, "ttl", "how long it stays up: 90s, 15m, 3h")
	cmd.Flags().Var(d, "ttl-seconds", "the same")
}

// CheckLease refuses what LeaseFlags can't be.
func CheckLease(d Duration) error {
	if ttl := time.Duration(d); ttl < minTTL || ttl > maxTTL {
		return Usagef("--ttl is from %s to %s", minTTL, maxTTL)
	}
	return nil
}
