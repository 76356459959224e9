package bundle

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/export"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/term"
)

type initOptions struct {
	task, eval, template string
	version              int
	scopes               []string
	json                 *bool
}

func newInit(p *verb.Program) *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init DIR (--from-task ID | --from-eval ID | --template NAME)",
		Short: "Make a bundle from a stored task or eval, or from a template",
		Long: `Writes a stored task, or an eval with its tasks, as a bundle folder, with every environment, agent and artifact that they use in a folder of its own: what agent-env run
DIR runs without the store. DIR is new or an empty folder; it becomes the whole bundle, or, when anything is wrong, stays as it was.

Fields that belong to who ran a task (its agent, models, sandbox provider, where outputs go) are left out, so that a run takes its own. --include-scope user keeps them,
and leaves what a folder can't hold in the store, for a folder that is run against the same store. What looks like a secret is left out always. The report says what is
in the folder, what it needs, and what was left out.

--template copies a bundle that comes with this program, to be changed.`,
		Example: `  agent-env bundle init my-hello --template hello
  agent-env bundle init ./from-store --from-task @local/~/b/count
  agent-env bundle init ./from-store --from-eval @local/~/b/counting --version 2 --json`,
		Args: verb.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return initBundle(cmd.Context(), p, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.task, "from-task", "", "write this stored task, by `ID`")
	f.StringVar(&o.eval, "from-eval", "", "write this stored eval and the tasks that it names, by `ID`")
	f.StringVar(&o.template, "template", "", "copy this bundle of the program, by `NAME`")
	f.IntVar(&o.version, "version", 0, "the version `N` of the task or eval; absent: the latest")
	f.StringArrayVar(&o.scopes, "include-scope", nil, "keep the fields of this `SCOPE`: user")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("template", completeTemplates(p)) // fails only for a flag that isn't there
	_ = cmd.RegisterFlagCompletionFunc("include-scope", cobra.FixedCompletions([]cobra.Completion{"user"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func completeTemplates(p *verb.Program) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		templates, err := a.Templates()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, t := range templates {
			out = append(out, t.Name)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *initOptions) check(cmd *cobra.Command) error {
	given := 0
	for _, name := range []string{"from-task", "from-eval", "template"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	switch {
	case given != 1:
		return verb.Usagef("give one of --from-task ID, --from-eval ID and --template NAME")
	case cmd.Flags().Changed("version") && o.version < 1:
		return verb.Usagef("--version is at least 1, not %d", o.version)
	case cmd.Flags().Changed("template") && (cmd.Flags().Changed("version") || len(o.scopes) > 0):
		return verb.Usagef("--version and --include-scope go with --from-task or --from-eval, not with --template")
	}
	for _, s := range o.scopes {
		if s != "user" {
			return verb.Usagef("--include-scope takes user, not %q", s)
		}
	}
	return nil
}

func initBundle(ctx context.Context, p *verb.Program, dir string, o initOptions) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	r, err := o.init(ctx, a, dir)
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(initialized(r))
	}
	initText(p.Streams, dir, r)
	if here, err := os.Getwd(); err != nil || here == r.Bundle { // the folder that the shell stands in was replaced
		p.Streams.Note("\nThe folder was put in place of the empty one here: type cd . to see it. Then run it with agent-env run .")
		return nil
	}
	p.Streams.Note("\nRun it with agent-env run %s", term.Clean(shellWord(dir)))
	return nil
}

func (o *initOptions) init(ctx context.Context, a *app.App, dir string) (export.Report, error) {
	switch {
	case o.template != "":
		return a.InitTemplate(ctx, dir, o.template)
	case o.task != "":
		return a.Init(ctx, dir, export.From{Kind: ref.Task, ID: o.task, Version: o.version, User: len(o.scopes) > 0})
	default:
		return a.Init(ctx, dir, export.From{Kind: ref.Eval, ID: o.eval, Version: o.version, User: len(o.scopes) > 0})
	}
}

// shellWord is a path as a shell reads it, and as one that is always taken for a path.
func shellWord(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./~") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func initText(s *term.Streams, dir string, r export.Report) {
	s.Printf("Wrote %s as the bundle %s:\n", term.Clean(r.From.String()), term.Clean(dir))
	for _, f := range r.Files {
		s.Printf("  %s\n", term.Clean(f))
	}
	for _, part := range r.Sections() {
		s.Printf("%s:\n", part.Title)
		for _, l := range part.Lines {
			s.Printf("  %s\n", term.Clean(l))
		}
	}
}

// initReport is what --json prints.
type initReport struct {
	verb.Format
	Bundle   string        `json:"bundle"`
	IDRoot   string        `json:"id_root"`
	From     initFrom      `json:"from"`
	Files    []string      `json:"files"`
	Tasks    []initWritten `json:"tasks"` // and the eval
	Written  []initWritten `json:"written"`
	Images   []initImage   `json:"images"`
	Store    []initRef     `json:"store"`
	Needs    []initNeed    `json:"needs"`
	Floating []initRef     `json:"floating"`
	LeftOut  []initLeft    `json:"left_out"`
}

type initFrom struct {
	Kind    string `json:"kind"` // task, eval, template
	ID      string `json:"id"`
	Version int    `json:"version,omitempty"`
}

type initWritten struct {
	Folder  string `json:"folder"`
	Kind    string `json:"kind"`
	Type    string `json:"type"`
	ID      string `json:"id,omitempty"`
	Version int    `json:"version,omitempty"`
}

type initImage struct {
	Folder     string `json:"folder"`
	Key        string `json:"key,omitempty"`
	ID         string `json:"id"`
	Version    int    `json:"version"`
	Dockerfile string `json:"dockerfile,omitempty"`
	Ref        string `json:"ref,omitempty"`
	Files      int    `json:"files"`
	Bytes      int64  `json:"bytes"`
}

type initRef struct {
	Where   string `json:"where"`
	Kind    string `json:"kind"`
	ID      string `json:"id,omitempty"` // absent for the configured default
	Version int    `json:"version,omitempty"`
	Why     string `json:"why"`
}

type initNeed struct {
	By    string   `json:"by"`
	Name  string   `json:"name"`
	What  string   `json:"what"`
	Where []string `json:"where"`
}

type initLeft struct {
	Where string `json:"where"`
	Why   string `json:"why"`
}

func initialized(r export.Report) initReport {
	out := initReport{
		Format: verb.V1(), Bundle: r.Bundle, IDRoot: r.IDRoot, From: initFrom(r.From), Files: r.Files,
		Tasks: []initWritten{}, Written: []initWritten{}, Images: []initImage{}, Store: []initRef{}, Needs: []initNeed{}, Floating: []initRef{}, LeftOut: []initLeft{},
	}
	for _, w := range r.Tasks {
		out.Tasks = append(out.Tasks, initWritten{w.Folder, string(w.Kind), w.Type, w.ID, w.Version})
	}
	for _, w := range r.Written {
		out.Written = append(out.Written, initWritten{w.Folder, string(w.Kind), w.Type, w.ID, w.Version})
	}
	for _, i := range r.Images {
		out.Images = append(out.Images, initImage(i))
	}
	for _, s := range r.Store {
		out.Store = append(out.Store, initRef{s.Where, string(s.Kind), s.ID, s.Version, s.Why})
	}
	for _, n := range r.Needs {
		out.Needs = append(out.Needs, initNeed(n))
	}
	for _, f := range r.Floating {
		out.Floating = append(out.Floating, initRef{Where: f.Where, Kind: string(f.Kind), ID: f.ID, Why: f.Why})
	}
	for _, l := range r.LeftOut {
		out.LeftOut = append(out.LeftOut, initLeft(l))
	}
	return out
}
