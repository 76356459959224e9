package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/toolcmd"
)

// newToolCommand is what the first line of a tool command's file names, so it is hidden; all that follows the file is the command's own.
func newToolCommand(p *verb.Program) *cobra.Command {
	return &cobra.Command{
		Use:                toolcmd.Verb + " FILE [ARGUMENT…]",
		Short:              "Run a command that was made of an environment's tools",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return verb.Usagef("%s needs FILE, which agent-env env mcp-server create-cli makes", cmd.CommandPath())
			}
			err := toolCommand(cmd.Context(), p, args[0], args[1:])
			if errors.Is(err, toolcmd.ErrUsage) {
				return verb.Usagef("%w", err)
			}
			return err
		},
	}
}

func toolCommand(ctx context.Context, p *verb.Program, file string, args []string) error {
	c, url, err := toolcmd.Open(file, p.Env)
	if err != nil {
		return err
	}
	call, err := toolcmd.Split(args)
	if err != nil {
		return err
	}
	if call.Tool == "" {
		p.Streams.Printf("%s", c.Help())
		if !call.Help {
			return verb.Exit(verb.Usage)
		}
		return nil
	}
	tool, known := c.Find(call.Tool)
	if !known && url == "" {
		return c.Unknown(call.Tool)
	}
	s := &talk{ctx: ctx, url: url}
	defer s.close()
	if !known {
		if tool, err = s.find(c, call.Tool); err != nil {
			return err
		}
	}
	if call, err = call.Read(c.Name, tool, p.Streams.In); err != nil {
		return err
	}
	if call.Help {
		p.Streams.Printf("%s", c.ToolHelp(tool))
		return nil
	}
	raw, err := s.call(call)
	if err != nil {
		return err
	}
	return printToolResult(p.Streams, raw, call.JSON)
}

// talk is the session with the environment, begun when it is needed.
type talk struct {
	ctx    context.Context //nolint:containedctx // of the command
	url    string
	client *toolcmd.Client
}

func (t *talk) close() {
	if t.client != nil {
		t.client.Close()
	}
}

func (t *talk) open() error {
	if t.client != nil {
		return nil
	}
	if t.url == "" {
		return errors.New("nothing says where the environment is: set " + toolcmd.URLVariable + " to the URL of a deployed one, which agent-env env deploy prints")
	}
	var err error
	t.client, err = toolcmd.Dial(t.ctx, t.url)
	return err
}

// find looks for a tool that the command's file lacks: its role may have been given more since.
func (t *talk) find(c toolcmd.Command, name string) (toolcmd.Tool, error) {
	if err := t.open(); err != nil {
		return toolcmd.Tool{}, err
	}
	entries, err := t.client.Tools(t.ctx)
	if err != nil {
		return toolcmd.Tool{}, err
	}
	now, err := toolcmd.New(c.Name, c.Environment, entries)
	if err != nil {
		return toolcmd.Tool{}, err
	}
	tool, ok := now.Find(name)
	if !ok {
		return tool, now.Unknown(name)
	}
	return tool, nil
}

func (t *talk) call(c toolcmd.Call) (json.RawMessage, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	return t.client.Call(t.ctx, c.Tool, c.Arguments)
}

// printToolResult prints texts as they are; to a terminal, which would obey what a server hid in them, escaped.
func printToolResult(s *term.Streams, raw json.RawMessage, whole bool) error {
	r, err := toolcmd.ReadResult(raw)
	switch {
	case whole:
		s.Printf("%s\n", raw)
	case err != nil:
		return err
	}
	for _, part := range r.Content {
		switch {
		case whole:
		case part.Type != "text":
			s.Printf("(%s)\n", term.Clean(strings.TrimSpace(part.Type+" "+part.MimeType+" "+part.URI)))
		case s.OutTTY:
			for line := range strings.SplitSeq(strings.ReplaceAll(part.Text, "\t", "    "), "\n") {
				s.Printf("%s\n", term.Clean(line))
			}
		default:
			s.Printf("%s\n", part.Text)
		}
	}
	if r.IsError {
		return verb.Exit(verb.Refused)
	}
	return nil
}
