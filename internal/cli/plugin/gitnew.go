package plugin

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/term"
)

// begun is where something that is begun is written, and how that is told.
type begun struct {
	dir    string
	git    bool
	asJSON *bool
}

func (o *begun) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "dir", "", "the new `FOLDER` where it isn't ./ID")
	cmd.Flags().BoolVar(&o.git, "git", false, "make it a git repository with one commit")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
}

func newNew(p *verb.Program) *cobra.Command {
	var o begun
	var summary string
	var parts pack.Parts
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a git plugin in a new folder",
		Long: "Writes a folder with " + git.PluginFile + `, a README and the parts that are asked for; without any, a skill to begin with. The id is the name in lower-case letters, digits
and dashes. The folder is a git plugin once it is a git repository with a commit, which --git makes it.`,
		Example: "  agent-env plugin new board --summary 'Keeps a board'\n  agent-env plugin new desk --skill --comms --tests --git",
		Args:    verb.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, id, err := pack.NewPlugin(args[0], summary, parts)
			if err != nil {
				return err
			}
			return scaffold(cmd.Context(), p, id, files, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&summary, "summary", "", "one line of what it does")
	f.BoolVar(&parts.Skill, "skill", false, "begin with a skill")
	f.BoolVar(&parts.View, "view", false, "begin with a page")
	f.BoolVar(&parts.Workflow, "workflow", false, "begin with a workflow")
	f.BoolVar(&parts.Comms, "comms", false, "begin with an MCP server through which its agent writes to people")
	f.BoolVar(&parts.Tests, "tests", false, "begin with a script that checks the plugin")
	o.flags(cmd)
	return cmd
}

func newNewBundle(p *verb.Program) *cobra.Command {
	var o begun
	var summary string
	var members, builtins []string
	cmd := &cobra.Command{
		Use:     "new-bundle NAME",
		Short:   "Begin a plugin bundle in a new folder",
		Long:    "Writes a folder with " + git.BundleFile + ". The id is the name in lower-case letters, digits and dashes. Without members it has a line to replace.",
		Example: "  agent-env plugin new-bundle desk --member board=https://github.com/acme/board-plugin@v1.2.0 --builtin delegates",
		Args:    verb.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list []pack.Member
			for _, id := range builtins {
				list = append(list, pack.Member{ID: id, Builtin: true})
			}
			for _, text := range members {
				m, err := pack.ReadMember(text)
				if err != nil {
					return err
				}
				list = append(list, m)
			}
			files, id, err := pack.NewBundle(args[0], summary, list)
			if err != nil {
				return err
			}
			return scaffold(cmd.Context(), p, id, files, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&summary, "summary", "", "one line of what it is for")
	f.StringArrayVar(&members, "member", nil, "a plugin, as `ID=URL` or ID=URL@REF; repeatable")
	f.StringArrayVar(&builtins, "builtin", nil, "the `ID` of a plugin that comes with agent-env; repeatable")
	o.flags(cmd)
	return cmd
}

func scaffold(ctx context.Context, p *verb.Program, id string, files map[string]string, o begun) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	dir := o.dir
	if dir == "" {
		dir = id
	}
	if err := a.Git().Scaffold(dir, files); err != nil {
		return err
	}
	committed := false
	if o.git {
		if committed, err = a.Git().Repository(ctx, dir, "Begin "+id); err != nil {
			return err
		}
		if !committed {
			p.Streams.Problem("Warning: git doesn't know who you are, so that nothing is committed yet: set user.name and user.email, then git commit in %s", term.Clean(dir))
		}
	}
	if *o.asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			ID        string   `json:"id"`
			Dir       string   `json:"dir"`
			Files     []string `json:"files"`
			Committed bool     `json:"committed"`
		}{verb.V1(), id, dir, slices.Sorted(maps.Keys(files)), committed})
	}
	p.Streams.Printf("Wrote %s\n", term.Clean(dir))
	return nil
}
