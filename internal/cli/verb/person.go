package verb

import (
	"context"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/term"
)

// askPerson asks, one at a time, a person who plays an agent of a run. Where there is no terminal it tells how to reply, and answers term.ErrNoTerminal.
func (p *Program) askPerson(ctx context.Context, q deploy.Question) (string, error) {
	head := term.Clean(q.Step) + ": " + term.Clean(q.Agent)
	if !p.Streams.CanAsk() {
		p.Streams.Note("%s is asked to reply: agent-env runs reply %s %s TEXT", head, term.Clean(q.Run), term.Clean(q.Step))
		return "", term.ErrNoTerminal
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return "", term.ErrAborted
	}
	var b strings.Builder
	b.WriteString(head + " is asked:\n")
	for line := range strings.Lines(q.Text) {
		b.WriteString("  " + strings.TrimRight(line, "\r\n") + "\n")
	}
	if q.Hint != "" {
		b.WriteString("(" + q.Hint + ")\n")
	}
	return p.Streams.Ask(ctx, b.String(), q.Agent+"> ")
}
