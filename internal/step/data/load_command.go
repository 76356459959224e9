package data

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/toolcmd"
)

// InstalledPath is where load_artifact leaves what it installed: by the agent's name, then by the artifact's id.
const InstalledPath = "metadata/installed_clis"

// installed is what is there of a command.
type installed struct {
	Path    string `json:"install_path"` // of its entrypoint
	Command string `json:"command_name"`
	Version int    `json:"artifact_version"`
	Env     string `json:"env_id"`
	// Tools: each subcommand is a tool of the environment, as agent-env makes them.
	Tools bool `json:"is_tool_command"`
}

// commandTarget is what is wrong with a step that loads a command: where it is installed, and which environment it talks to, must be said.
func commandTarget(d doc.Node, s source) diag.List {
	var l diag.List
	if d.Get("env_id").IsNull() || d.Get("agent_name").IsNull() {
		l.Add(diag.Problem{
			Pos: s.at.Pos(), Where: s.field, Code: "data.command",
			Summary: diag.Repr(s.id) + " is a command: it is installed into an agent's sandbox and talks to an environment", Fix: "set agent_name and env_id",
		})
	}
	return l
}

// install puts commands into the sandbox of the agent that the call names.
func (e *LoadArtifact) install(ctx context.Context, c *step.Call, v *deploy.Env, all []envstore.Command) error {
	if len(all) == 0 {
		return nil
	}
	name := c.Doc.Get("agent_name").Text()
	a, err := e.agents.Agent(c.Run, name)
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	for _, x := range all {
		if x.Env != "" && x.Env != v.ID {
			return step.Errorf("ValueError", "%s was made from environment %s and can't talk to %s", diag.Repr(x.Artifact.ID), diag.Repr(x.Env), diag.Repr(v.ID))
		}
		cli := deploy.CLI{Name: x.Name, Entrypoint: x.Entrypoint}
		for _, f := range x.Files {
			cli.Files = append(cli.Files, e.file(ctx, f))
		}
		at, err := a.Install(ctx, v, cli)
		if err != nil {
			return installError(err)
		}
		c.Log.Info("command installed", "artifact", x.Artifact.ID, "version", x.Artifact.Version, "command", x.Name, "agent", name, "at", at)
		tools := len(x.Files) == 1 && x.Env != "" && x.Entrypoint == toolcmd.Command{Name: x.Name}.Entrypoint()
		rec := installed{Path: at, Command: x.Name, Version: x.Artifact.Version, Env: v.ID, Tools: tools}
		if err := c.Out.Set(step.Child(step.Child(InstalledPath, name), x.Artifact.ID), rec); err != nil {
			return err
		}
	}
	return nil
}

func installError(err error) error {
	switch {
	case errors.As(err, new(*guest.SourceError)):
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	case errors.Is(err, deploy.ErrCommand):
		return &step.Error{Type: "InstallError", Err: err}
	}
	return fmt.Errorf("install a command: %w", err)
}
