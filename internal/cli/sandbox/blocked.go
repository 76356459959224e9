package sandbox

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/term"
)

func newBlocked(p *verb.Program) *cobra.Command {
	var json *bool
	cmd := &cobra.Command{
		Use:   "blocked SANDBOX",
		Short: "Show what a sandbox's network policy kept it from",
		Long: `Shows which destinations a sandbox tried to reach and was kept from, each when it was first tried, and again at the 10th, 100th … time.
The list is bounded and lives as long as the sandbox.`,
		Example:           "  agent-env sandbox blocked try",
		Args:              verb.Args("SANDBOX"),
		ValidArgsFunction: completeIDs(p, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return blocked(cmd.Context(), p, args[0], *json) },
	}
	json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// blockedList is what --json prints.
type blockedList struct {
	verb.Format
	ID      string          `json:"sandbox_id"`
	Blocked []guest.Blocked `json:"blocked"`
}

func blocked(ctx context.Context, p *verb.Program, text string, json bool) error {
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	id, list, err := a.Blocked(ctx, text)
	if err != nil {
		return err
	}
	if json {
		return p.Streams.JSON(blockedList{verb.V1(), id, append([]guest.Blocked{}, list...)})
	}
	if len(list) == 0 {
		p.Streams.Note("Nothing was blocked.")
		return nil
	}
	t := term.NewTable("TIME", "BY", "DESTINATION", "TIMES", "WHY")
	for _, b := range list {
		t.Row(b.Time.Local().Format(time.TimeOnly), b.Proto, destination(b), strconv.Itoa(b.Count), b.Why)
	}
	return t.Print(p.Streams)
}

// destination is what was to be reached, the name with the address it led to.
func destination(b guest.Blocked) string {
	host := b.Host
	if host == "" {
		host = b.Addr
	}
	if b.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(b.Port)))
	}
	if b.Host != "" && b.Addr != "" {
		host += " (" + b.Addr + ")"
	}
	return host
}
