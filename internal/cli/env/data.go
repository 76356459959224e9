package env

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newLoad(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "load ENV ARTIFACT[:VERSION]",
		Short: "Give a deployed environment stored data",
		Long: `Empties the servers that the data is for and gives them the data of an environment artifact or of a universe, each environment its own. A server that can't take its data is
emptied once more, so that it never keeps half. Environments of a universe that the deployment has no server for are left out.`,
		Example: "  agent-env env load mail @local/desk/inbox",
		Args:    verb.Args("ENV", "ARTIFACT"), ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return load(cmd.Context(), p, args[0], args[1], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// loaded is what --json prints.
type loaded struct {
	verb.Format
	Instance string   `json:"instance_id"`
	Names    []string `json:"loaded_environments"`
	Skipped  []string `json:"skipped_environments"`
}

func load(ctx context.Context, p *verb.Program, text, artifact string, asJSON bool) error {
	id, version, err := verb.Reference(artifact)
	if err != nil {
		return err
	}
	c, r, err := client(ctx, p, text)
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := c.Load(ctx, id, version)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(loaded{verb.V1(), r.Instance, l.Names, append([]string{}, l.Skipped...)})
	}
	p.Streams.Printf("Loaded %s\n", term.Clean(strings.Join(l.Names, ", ")))
	if len(l.Skipped) > 0 {
		p.Streams.Note("Left out, since there is no server of that name: %s", strings.Join(l.Skipped, ", "))
	}
	return nil
}

func newReset(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use: "reset ENV [NAME…]", Short: "Empty a deployed environment: every server, or those of these environment names",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return verb.Usagef("%s needs ENV; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return reset(cmd.Context(), p, args[0], args[1:], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// emptied is what --json prints.
type emptied struct {
	verb.Format
	Instance string `json:"instance_id"`
}

func reset(ctx context.Context, p *verb.Program, text string, names []string, asJSON bool) error {
	c, r, err := client(ctx, p, text)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Reset(ctx, names...); err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(emptied{verb.V1(), r.Instance})
	}
	p.Streams.Printf("Emptied %s\n", r.Instance)
	return nil
}

func newSnapshot(p *verb.Program) *cobra.Command {
	var id string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "snapshot ENV",
		Short: "Store the data of a deployed environment as an environment universe",
		Long: `Asks every server for its data and stores the answers as the next version of a universe, which can be loaded again, by a task too. Nothing is stored when one
server can't answer.`,
		Example: "  agent-env env snapshot mail --id @local/desk/after",
		Args:    verb.Args("ENV"), ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error { return snapshot(cmd.Context(), p, args[0], id, *asJSON) },
	}
	cmd.Flags().StringVar(&id, "id", "", "the `ID` of the universe; the deployment's with -snapshot when left out")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// kept is what --json prints.
type kept struct {
	verb.Format
	ID      string `json:"id"`
	Version int    `json:"version"`
}

func snapshot(ctx context.Context, p *verb.Program, text, id string, asJSON bool) error {
	c, r, err := client(ctx, p, text)
	if err != nil {
		return err
	}
	defer c.Close()
	if id == "" {
		id = r.Instance + "-snapshot"
	}
	pin, err := c.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(kept{verb.V1(), pin.ID, pin.Version})
	}
	p.Streams.Printf("%s: v%d (new)\n", pin.ID, pin.Version)
	return nil
}

func newCall(p *verb.Program) *cobra.Command {
	var role string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "call ENV TOOL [ARGUMENTS]",
		Short: "Call a tool of a deployed environment",
		Long: `Calls a tool and prints the text of its result, or with --json the whole result. ARGUMENTS is a JSON object, or @FILE with one. The exit code is 1 when the tool
says that it failed.`,
		Example: `  agent-env env call mail search_emails '{"query": "invoice"}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return verb.Args("ENV", "TOOL")(cmd, args)
		},
		ValidArgsFunction: completeDeployed(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return call(cmd.Context(), p, args, role, *asJSON) },
	}
	cmd.Flags().StringVar(&role, "role", "", "call as an agent in this `ROLE`, in place of the owner")
	asJSON = verb.JSONFlag(cmd, "print the result as one JSON object")
	return cmd
}

// called is what --json prints.
type called struct {
	verb.Format
	Result json.RawMessage `json:"result"`
}

func call(ctx context.Context, p *verb.Program, args []string, role string, asJSON bool) error {
	arguments := json.RawMessage("{}")
	if len(args) == 3 {
		arguments = json.RawMessage(args[2])
		if file, ok := strings.CutPrefix(args[2], "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			arguments = b
		}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(arguments, &object) != nil || object == nil {
		return verb.Usagef("ARGUMENTS is a JSON object, such as '{\"query\": \"invoice\"}'")
	}
	c, _, err := client(ctx, p, args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.Call(ctx, args[1], arguments, role)
	if err != nil {
		return err
	}
	if asJSON {
		err = p.Streams.JSON(called{verb.V1(), raw})
	}
	var result toolResult
	if json.Unmarshal(raw, &result) != nil || result.Content == nil {
		return errors.Join(err, errors.New("the server's answer is no result of a tool: it has no list of content; --json shows it"))
	}
	if !asJSON {
		printContent(p.Streams, result)
	}
	if err == nil && result.IsError {
		return verb.Exit(verb.Refused)
	}
	return err
}

// toolResult is what is read of a tool's result.
type toolResult struct {
	Content []struct{ Type, Text string }
	IsError bool
}

// printContent writes texts as they are; to a terminal, which would obey what a server hid in them, escaped.
func printContent(s *term.Streams, result toolResult) {
	for _, part := range result.Content {
		switch text := part.Text; {
		case part.Type != "text":
			s.Printf("(%s)\n", term.Clean(part.Type))
		case s.OutTTY:
			for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
				s.Printf("%s\n", term.Clean(line))
			}
		default:
			s.Printf("%s\n", text)
		}
	}
}

func newStop(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use: "stop ENV…", Short: "Take deployed environments down", Args: verb.Args("ENV…"),
		ValidArgsFunction: completeDeployed(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return stop(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func stop(ctx context.Context, p *verb.Program, names []string, asJSON bool) error {
	_, f, err := open(ctx, p)
	if err != nil {
		return err
	}
	return p.StopDeployed(names, asJSON, func(text string) (string, error) {
		r, err := f.Find(text)
		if err != nil {
			return "", err
		}
		c := f.Client(r)
		defer c.Close()
		return r.Instance, c.Stop(ctx)
	})
}
