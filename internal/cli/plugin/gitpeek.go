package plugin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/term"
)

func newPeek(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var ref string
	cmd := &cobra.Command{
		Use:   "peek URL",
		Short: "Show what a repository would install, and install nothing",
		Long: `Fetches a git plugin, or a plugin bundle with its members, and shows what they are. Nothing of a workspace changes, and none is needed. A member that can't be
looked at stops no other; the exit code is 1 only where the repository itself can't be.`,
		Example: "  agent-env plugin peek https://github.com/acme/desk-bundle --ref v1.2.0",
		Args:    verb.Args("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return peek(cmd.Context(), p, args[0], ref, *asJSON)
		},
	}
	cmd.Flags().StringVar(&ref, "ref", "", "look at this branch, tag or `COMMIT`, and not at the default branch")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func peek(ctx context.Context, p *verb.Program, url, ref string, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	k, err := a.Git().Look(ctx, url, ref)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }() // the files are let go of; the process ends
	out := gitplugins.ViewPeek(k)
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			gitplugins.PeekView
		}{verb.V1(), out})
	}
	s := p.Streams
	if k.Item.Superseded != "" {
		s.Printf("%s comes with agent-env as %s\n", term.Clean(out.Source), k.Item.Superseded)
		return nil
	}
	if out.Plugin != nil {
		s.Printf("Plugin %s %s (%s) from %s\n", out.ID, term.Clean(out.Plugin.Version), short(out.Commit), term.Clean(out.Source))
	} else {
		s.Printf("Bundle %s (%s) from %s\n", term.Clean(out.ID), short(out.Commit), term.Clean(out.Source))
	}
	line := liner(s)
	line("about", out.Description)
	if out.Plugin != nil {
		gitParts(line, out.Plugin.Contributes)
	}
	for _, m := range out.Members {
		s.Printf("  %s\n", term.Clean(memberWords(m)))
	}
	if k.Pack != nil {
		line("verified against", out.Verified)
		line("it suggests to enable", out.Enabled...)
		tellAsks(line, k.Pack)
	}
	for _, w := range out.Problems {
		s.Problem("Warning: %s", term.Clean(w))
	}
	return nil
}

// tellAsks prints what a bundle would set and ask for.
func tellAsks(line func(string, ...string), m *pack.Manifest) {
	var servers, inputs, secrets []string
	for _, x := range m.Servers {
		servers = append(servers, x.Name+" ("+x.Transport+")")
	}
	for _, x := range m.Inputs {
		inputs = append(inputs, x.Key)
	}
	for _, x := range m.Secrets {
		secrets = append(secrets, x.Key)
	}
	line("MCP servers", servers...)
	line("it asks for", inputs...)
	line("secrets that it wants", secrets...)
}

func memberWords(m gitplugins.MemberView) string {
	ref := ""
	if m.Ref != "" {
		ref = " at " + m.Ref
	}
	switch {
	case m.Error != nil:
		return m.ID + ref + ": " + *m.Error
	case m.Plugin != nil:
		return m.ID + ref + ": " + m.Plugin.Version + " (" + short(m.Plugin.Commit) + ") " + m.Plugin.Description
	default:
		return m.ID + ": comes with agent-env"
	}
}

func newVerifyBundle(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var load bool
	cmd := &cobra.Command{
		Use:   "verify-bundle DIR",
		Short: "Check a plugin bundle in a folder as an install would",
		Long: `Reads the bundle manifest in DIR strictly and fetches every member at the ref that it pins: its id, what it needs of agent-env, and that its program is there. No code
of a plugin runs, unless --load is said, and no workspace is needed or changed. The exit code is 1 where something is wrong.

With --load the program of each member is started, as you and without its packages, asked which types it serves, and ended.`,
		Example: "  agent-env plugin verify-bundle .\n  agent-env plugin verify-bundle . --load",
		Args:    verb.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyBundle(cmd.Context(), p, args[0], load, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&load, "load", false, "start the members' programs and ask what they serve")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func verifyBundle(ctx context.Context, p *verb.Program, dir string, load, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	k, wrong, err := a.Git().VerifyBundle(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }() // the files are let go of; the process ends
	type member struct {
		ID       string   `json:"id"`
		OK       bool     `json:"ok"`
		Problems []string `json:"problems"`
	}
	rows, failed := []member{}, len(wrong[""]) > 0
	for _, m := range k.Members {
		if load && m.Item != nil && len(wrong[m.ID]) == 0 {
			wrong[m.ID] = append(wrong[m.ID], a.LoadGit(ctx, m.Item)...)
		}
		rows = append(rows, member{m.ID, len(wrong[m.ID]) == 0, all(wrong[m.ID])})
		failed = failed || len(wrong[m.ID]) > 0
	}
	if asJSON {
		err = p.Streams.JSON(struct {
			verb.Format
			ID       string   `json:"id"`
			OK       bool     `json:"ok"`
			Problems []string `json:"problems"`
			Members  []member `json:"members"`
		}{verb.V1(), k.Pack.ID, !failed, all(wrong[""]), rows})
	} else {
		for _, w := range wrong[""] {
			p.Streams.Println(term.Clean(w))
		}
		for _, m := range rows {
			word := "ok"
			if !m.OK {
				word = strings.Join(m.Problems, "; ")
			}
			p.Streams.Printf("%s: %s\n", m.ID, term.Clean(word))
		}
	}
	if err == nil && failed {
		err = verb.Exit(verb.Refused)
	}
	return err
}

func newBumpPins(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var dry bool
	cmd := &cobra.Command{
		Use:   "bump-pins DIR",
		Short: "Move the releases that a plugin bundle pins to the newest ones",
		Long: `Rewrites the tags of releases (v1.2.3) that the plugin bundle in DIR pins to those of the newest releases. All else of the file stays as it is: comments, order, pins
to commits and branches. The exit code is 1 where a source didn't answer.`,
		Example: "  agent-env plugin bump-pins .",
		Args:    verb.Args("DIR"),
		RunE:    func(cmd *cobra.Command, args []string) error { return bump(cmd.Context(), p, args[0], dry, *asJSON) },
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func bump(ctx context.Context, p *verb.Program, dir string, dry, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	pins, err := a.Git().BumpPins(ctx, dir, dry)
	if err != nil {
		return err
	}
	type row struct {
		ID    string  `json:"id"`
		Old   string  `json:"old"`
		New   string  `json:"new"`
		Error *string `json:"error"`
	}
	rows, failed, moved := []row{}, false, false
	for _, x := range pins {
		r := row{x.ID, x.Old, x.New, nil}
		if x.Err != nil {
			r.New, r.Error, failed = x.Old, text(x.Err.Error()), true
		}
		moved = moved || r.New != r.Old
		rows = append(rows, r)
	}
	if asJSON {
		err = p.Streams.JSON(struct {
			verb.Format
			DryRun bool  `json:"dry_run"`
			Pins   []row `json:"pins"`
		}{verb.V1(), dry, rows})
	} else {
		for _, r := range rows {
			switch {
			case r.Error != nil:
				p.Streams.Printf("failed: %s %s\n", r.ID, term.Clean(*r.Error))
			case r.New != r.Old:
				p.Streams.Printf("bump: %s %s -> %s\n", r.ID, r.Old, r.New)
			}
		}
		if !moved && !failed {
			p.Streams.Println("all tag pins current")
		}
	}
	if err == nil && failed {
		err = verb.Exit(verb.Refused)
	}
	return err
}
