package workspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/fleet"
	"agentenv.internal/agentenv/internal/term"
)

type runOptions struct {
	app.WorkspaceRun
	listener bool
	json     *bool
}

func newRun(p *verb.Program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [NAME]",
		Short: "Serve a workspace's agent by A2A until Ctrl-C",
		Long: `Serves the agent of a workspace, by name or the nearest upward from here. SOUL.md is what it is told of itself; the MCP servers of the configuration and of the plugins that
are on are its tools, the plugins' skills its skills. Commands that it runs of its own run in a sandbox; MCP servers that are programs run here, as you.

The address that is printed holds a secret: whoever knows it may ask the agent. Tasks name it as a2a_agent_id of deploy_agent, people ask it with agent-env run --agent URL.`,
		Args:              atMostOne,
		ValidArgsFunction: complete(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), p, args, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Model, "model", "", "the `MODEL` that it asks: a name that the endpoint knows, or scripted:ARTIFACT")
	f.IntVar(&o.Port, "port", 0, "the `PORT` on 127.0.0.1; any when left out")
	f.StringVar(&o.Type, "sandbox", "", "the `PROVIDER`s to try for its sandbox, comma-separated")
	f.BoolVar(&o.listener, "inherited-listener", false, "serve it at the listener that this process was started with")
	_ = f.MarkHidden("inherited-listener") // the console's; there is such a flag
	o.json = verb.JSONFlag(cmd, "print one JSON object when it is served")
	return cmd
}

func run(ctx context.Context, p *verb.Program, args []string, o runOptions) (err error) {
	if o.Port < 0 || o.Port > 65535 {
		return verb.Usagef("--port is from 0 to 65535")
	}
	if o.listener {
		if o.Listener, err = inherited(); err != nil {
			return err
		}
		defer func() { _ = o.Listener.Close() }() // RunWorkspace may have
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	w, err := named(ctx, a, args)
	if err != nil {
		return err
	}
	in := a.In(w.Root)
	defer func() { err = errors.Join(err, in.Close(ctx)) }()
	found := in.ConfigProblems()
	if err := found.Err(); err != nil {
		return err
	}
	for _, warning := range found.Of(diag.Warning) {
		p.Streams.Problem("Warning: %s", warning)
	}
	p.Sweep(ctx, in)
	var printed error
	o.Up = func(up app.WorkspaceUp) { printed = served(p, w.Name, up, *o.json) }
	err = in.RunWorkspace(ctx, w, o.WorkspaceRun)
	return errors.Join(err, printed)
}

// inherited is the listener that the console starts agents with.
func inherited() (net.Listener, error) {
	f := os.NewFile(fleet.ListenerFD, "listener")
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("serve the agent where the console said: %w", err)
	}
	return l, nil
}

func served(p *verb.Program, name string, up app.WorkspaceUp, asJSON bool) error {
	for _, text := range up.Warnings {
		p.Streams.Problem("Warning: %s", term.Clean(text))
	}
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			Name string `json:"name"`
			app.WorkspaceUp
		}{verb.V1(), name, up})
	}
	p.Streams.Printf("A2A URL: %s\n", up.URL)
	for _, line := range []struct {
		what string
		list []string
	}{{"Tools", up.Tools}, {"Skills", up.Skills}, {"Delegates", up.Peers}} {
		if len(line.list) > 0 {
			p.Streams.Printf("%s: %s\n", line.what, term.Clean(strings.Join(line.list, ", ")))
		}
	}
	p.Streams.Note("The agent of %s is served until Ctrl-C.", name)
	return nil
}
