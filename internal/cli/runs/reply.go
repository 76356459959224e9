package runs

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/step"
)

func newReply(p *verb.Program) *cobra.Command {
	var o decideOptions
	cmd := &cobra.Command{
		Use:   "reply RUN [STEP] TEXT",
		Short: "Say what a person says who plays an agent of a run",
		Long: `Replies to a prompt_agent step of a run for an agent that is a person: one that a deploy_human_agent step registered without an address. STEP may be left out where
one step waits. TEXT may be - for what comes on stdin. The first reply counts, wherever it is given; the run's own terminal asks, too.

agent-env runs show RUN --trajectory shows what the person is asked. Of a person who plays the user, /end ends the conversation.`,
		Example: "  agent-env runs reply hello-03hyh3l6 'Yes, send it.'\n  agent-env runs reply 03hyh3l6 ask - < reply.txt",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return verb.Args("RUN", "STEP", "TEXT")(cmd, args)
		},
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := ""
			if len(args) == 3 {
				at = args[1]
			}
			return reply(cmd.Context(), p, args[0], at, args[len(args)-1], o)
		},
	}
	cmd.Flags().StringVar(&o.by, "by", "", "who replies; the `NAME` of the user when left out")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// maxReply bounds a reply, in bytes: it goes on the run's record as it is.
const maxReply = 1 << 20

func reply(ctx context.Context, p *verb.Program, text, at, said string, o decideOptions) error {
	if said == "-" {
		b, err := io.ReadAll(io.LimitReader(p.Streams.In, maxReply+1))
		if err != nil {
			return fmt.Errorf("read the reply: %w", err)
		}
		said = strings.TrimRight(string(b), "\r\n")
	}
	switch {
	case strings.TrimSpace(said) == "":
		return verb.Usagef("the reply is empty")
	case len(said) > maxReply:
		return verb.Usagef("the reply is longer than %d KiB", maxReply>>10)
	}
	o.comment = said
	return decide(ctx, p, text, at, step.Reply, o)
}
