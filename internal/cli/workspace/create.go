package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/workspace"
)

type createOptions struct {
	dir, from, soul string
	bundle, ref     string
	inputs          []string
	secrets         string
	yes             bool
	timeout         verb.Duration
	json            *bool
}

// bundleTime is how long a bundle may take to be fetched and set up.
const bundleTime = 5 * time.Minute

func newCreate(p *verb.Program) *cobra.Command {
	o := createOptions{timeout: verb.Duration(bundleTime)}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a workspace, from a plugin bundle or an empty one",
		Long: `Makes the folder NAME with .agentenv in it: config.toml, SOUL.md (what its agent is told of itself), plugins.lock and, where there are secrets, secrets.toml. With
--bundle the plugins that the bundle names are installed and turned on, and its settings are written where nobody set them. The workspace is made whole or not at all.

What a bundle brings is shown before anything is fetched into the workspace; unless all its sources are trusted (official or acked in [git_plugins.sources]) you are asked,
or say --yes. What it asks for is answered with --input KEY=VALUE, or at the terminal; secrets come from a file, so that no list of processes shows them.`,
		Example: "  agent-env workspace create desk\n  agent-env workspace create desk --bundle https://github.com/owner/desk-bundle --ref v1.2.0 --input board.repo=/src/app",
		Args:    verb.Args("NAME"),
		RunE:    func(cmd *cobra.Command, args []string) error { return create(cmd.Context(), p, args[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "the workspace's `FOLDER` where it isn't ./NAME; one that is there keeps what it has")
	f.StringVar(&o.from, "from", "", "take configuration, soul and plugins over from the workspace in `DIR`; its secrets stay there")
	f.StringVar(&o.soul, "soul", "", "a `FILE` with the text of SOUL.md")
	f.StringVar(&o.bundle, "bundle", "", "the `URL` of a plugin bundle's repository")
	f.StringVar(&o.ref, "ref", "", "a branch, tag or commit of the bundle; its default branch when left out")
	f.StringArrayVar(&o.inputs, "input", nil, "an answer to what the bundle asks, as `KEY=VALUE`; repeatable")
	f.StringVar(&o.secrets, "secrets", "", "a `FILE` of the bundle's secrets by key, in TOML, YAML or JSON; - is standard input")
	f.BoolVar(&o.yes, "yes", false, "consent to what the bundle brings")
	f.Var(&o.timeout, "timeout", "how long the bundle may take")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// made is what --json prints.
type made struct {
	verb.Format
	workspace.Workspace
	Root     string   `json:"root"`
	Plugins  []string `json:"plugins"`
	Enabled  []string `json:"enabled"`
	Settings []string `json:"config_written"`
	Servers  []string `json:"mcp_seeded"`
	Off      []string `json:"mcp_off"`
	Warnings []string `json:"warnings"`
}

func create(ctx context.Context, p *verb.Program, name string, o createOptions) error {
	if err := workspace.CheckName(name); err != nil {
		return verb.Usagef("%w", err)
	}
	if o.bundle == "" && (len(o.inputs) > 0 || o.secrets != "" || o.ref != "") {
		return verb.Usagef("--ref, --input and --secrets are of a bundle; name it with --bundle")
	}
	typed, err := verb.Pairs("--input", o.inputs)
	if err != nil {
		return err
	}
	a, err := p.Ready()
	if err != nil {
		return err
	}
	order := workspace.Order{Name: name, Bundle: o.bundle, Ref: o.ref}
	if o.dir == "" {
		o.dir = name
	}
	if order.Root, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if o.from != "" {
		if order.From, err = filepath.Abs(o.from); err != nil {
			return err
		}
	}
	if o.soul != "" {
		b, err := os.ReadFile(o.soul)
		if err != nil {
			return err
		}
		order.Soul = string(b)
	}
	given, err := secrets(p, o.secrets)
	if err != nil {
		return err
	}
	asker := &asker{p: p, app: a, typed: typed, secrets: given, yes: o.yes}
	order.Answer = asker.answer
	if o.bundle != "" {
		// What a person takes to answer isn't the bundle's time: the clock stands while they are asked.
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		late := fmt.Errorf("the bundle was not installed within %s; nothing was made (--timeout gives it longer)", time.Duration(o.timeout))
		asker.clock = time.AfterFunc(time.Duration(o.timeout), func() { cancel(late) })
		defer asker.clock.Stop()
		asker.limit = time.Duration(o.timeout)
	}
	w, err := a.CreateWorkspace(ctx, order)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	return told(p, w, *o.json)
}

func told(p *verb.Program, w *workspace.Created, asJSON bool) error {
	out := made{Format: verb.V1(), Workspace: w.Workspace, Root: w.Root, Plugins: some(w.Plugins), Enabled: []string{}, Settings: []string{}, Servers: []string{}, Off: []string{}, Warnings: some(w.Warnings)}
	if s := w.Seeded; s != nil {
		out.Enabled, out.Settings, out.Servers, out.Off = some(s.Enabled), some(s.Written), some(s.Servers), some(s.Off)
	}
	for _, text := range w.Warnings {
		p.Streams.Problem("Warning: %s", term.Clean(text))
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	p.Streams.Printf("Created the workspace %s in %s\n", w.Name, w.Root)
	for _, line := range []struct {
		what string
		ids  []string
	}{{"Plugins", out.Plugins}, {"Turned on", out.Enabled}, {"Settings written", out.Settings}, {"MCP servers", out.Servers}, {"Off until what they require is set", out.Off}} {
		if len(line.ids) > 0 {
			p.Streams.Printf("%s: %s\n", line.what, term.Clean(strings.Join(line.ids, ", ")))
		}
	}
	p.Streams.Note("Run its agent with: agent-env workspace run %s", w.Name)
	return nil
}

func some(s []string) []string { return append([]string{}, s...) }

const maxSecrets = 1 << 20

// secrets reads --secrets. No message repeats what is in the file.
func secrets(p *verb.Program, path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	in, name := p.Streams.In, "secrets.yaml"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, path
	}
	b, err := io.ReadAll(io.LimitReader(in, maxSecrets+1))
	if err != nil {
		return nil, fmt.Errorf("read the secrets: %w", err)
	}
	if len(b) > maxSecrets {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxSecrets)
	}
	t, l := doc.Parse(name, b)
	if l.HasErrors() {
		return nil, fmt.Errorf("%s can't be read from line %d on; it holds keys with one value each", path, l[0].Pos.Line)
	}
	out := map[string]string{}
	for key, v := range t.Root().Members() {
		if v.Kind() == doc.Object || v.Kind() == doc.Array {
			return nil, fmt.Errorf("%s: %s is no single value", path, term.Clean(key))
		}
		out[key] = v.Text()
	}
	return out, nil
}

// asker answers for the operator: from the flags, and at the terminal.
type asker struct {
	p       *verb.Program
	app     *app.App
	typed   map[string]string
	secrets map[string]string
	yes     bool
	clock   *time.Timer
	limit   time.Duration
}

// answer shows what the bundle brings, asks for consent and for what it needs to know.
func (k *asker) answer(ctx context.Context, b *pack.Pack, d pack.Disclosure) (workspace.Answers, error) {
	k.clock.Stop()
	defer k.clock.Reset(k.limit)
	if err := k.consent(ctx, b, d); err != nil {
		return workspace.Answers{}, err
	}
	delegates, err := k.app.Delegates(ctx)
	if err != nil {
		return workspace.Answers{}, err
	}
	var names []string
	for name := range delegates {
		names = append(names, name)
	}
	if err := k.ask(ctx, b.Manifest, names); err != nil {
		return workspace.Answers{}, err
	}
	a, l := workspace.ReadAnswers(b.Manifest, k.typed)
	l.Add(workspace.Gate(b.Manifest, a, names)...)
	for key := range k.secrets {
		if !slices.ContainsFunc(b.Manifest.Secrets, func(s pack.Secret) bool { return s.Key == key }) {
			l.Errorf(diag.Pos{}, "workspace.secret", "--secrets: %s is no secret of the bundle", term.Clean(key))
		}
	}
	a.Secrets, a.Delegates = k.secrets, delegates
	return a, l.Err()
}

// disclose shows what an MCP server runs or asks, with everything that is handed to it.
func disclose(note func(string, ...any), indent string, v pack.Server) {
	where := v.Template.Get("url").Text()
	if v.Transport == pack.Stdio {
		where = "runs " + v.Template.Get("command").Text()
		for _, x := range v.Template.Get("args").Items() {
			where += " " + x.Text()
		}
	}
	note("%sthe MCP server %s: %s", indent, v.Name, where)
	for _, of := range []struct{ key, what string }{{"env", "with the variable"}, {"headers", "with the header"}} {
		for name, value := range v.Template.Get(of.key).Members() {
			note("%s  %s %s=%s", indent, of.what, name, value.Text())
		}
	}
	for _, in := range v.Inputs {
		if in.Env != "" {
			note("%s  reads the variable %s where env_grants of [git_plugins] names it", indent, in.Env)
		}
	}
}

// consent shows where everything comes from. Nobody is asked where all sources are trusted.
func (k *asker) consent(ctx context.Context, b *pack.Pack, d pack.Disclosure) error {
	policy, err := k.app.GitPolicy(ctx)
	if err != nil {
		return err
	}
	s := k.p.Streams
	note := func(format string, args ...any) { s.Note("%s", term.Clean(fmt.Sprintf(format, args...))) }
	note("The bundle %s, %s at %.12s, brings:", d.ID, d.Source, d.Commit)
	for _, m := range d.Members {
		note("  %s from %s at %.12s, files %.12s", m.ID, m.Source, m.Commit, m.Tree)
		if len(m.Command) > 0 {
			note("    runs %s", strings.Join(m.Command, " "))
		}
		if len(m.Env) > 0 {
			note("    needs the variables %s", strings.Join(m.Env, ", "))
		}
		if len(m.Packages) > 0 {
			note("    needs the packages %s, which are not installed", strings.Join(m.Packages, ", "))
		}
		for _, v := range b.ServersOf(m.ID) {
			disclose(note, "    ", v)
		}
	}
	for _, v := range b.Manifest.Servers {
		disclose(note, "  ", v)
	}
	if len(d.Config) > 0 {
		note("  settings where nobody set them: %s", strings.Join(d.Config, ", "))
	}
	note("  turned on: %s", strings.Join(d.Enabled, ", "))
	var strangers []string
	for _, src := range b.Sources() {
		if !policy.Trusted(src) {
			strangers = append(strangers, src.String())
		}
	}
	if len(strangers) == 0 || k.yes {
		return nil
	}
	return k.confirm(ctx, strangers)
}

func (k *asker) confirm(ctx context.Context, strangers []string) error {
	ok, err := k.p.Streams.Confirm(ctx, "Nobody vouches for "+strings.Join(strangers, ", ")+". Install it and turn it on?", "--yes")
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w; nothing was made", pack.ErrRefused)
	}
	return nil
}

// ask asks at the terminal for what is required and has no answer; off a terminal the gate tells.
func (k *asker) ask(ctx context.Context, m *pack.Manifest, delegates []string) error {
	if !k.p.Streams.CanAsk() {
		return nil
	}
	for _, q := range workspace.Questions(m, delegates) {
		if _, answered := k.typed[q.Key]; answered || !q.Required || q.Secret || q.Default != "" {
			continue
		}
		text := q.Label
		if q.Help != "" {
			text += " (" + q.Help + ")"
		}
		if len(q.Choices) > 0 {
			text += ": one of " + strings.Join(q.Choices, ", ")
		}
		v, err := k.p.Streams.Ask(ctx, text, q.Key+": ")
		if err != nil {
			return err
		}
		k.typed[q.Key] = v
	}
	return nil
}
