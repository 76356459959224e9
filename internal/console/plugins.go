package console

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
)

func (s *Server) pluginRoutes() []route {
	return []route{
		{pattern: "GET /api/plugins/installed", limit: quick, do: s.installed},
		{pattern: "GET /api/plugins/updates", limit: asks, changes: true, do: s.updates},
		{pattern: "POST /api/plugins/peek", limit: fetch, changes: true, do: s.peek},
		{pattern: "POST /api/plugins/install", limit: fetch, changes: true, do: s.install},
		{pattern: "POST /api/plugins/ack", limit: quick, do: s.ack},
		{pattern: "POST /api/plugins/sync", limit: fetch, changes: true, do: s.sync},
		{pattern: "POST /api/plugins/install-deps", limit: fetch, changes: true, do: s.installDeps},
		{pattern: "POST /api/plugins/{id}/enabled", limit: quick, do: s.enabled},
		{pattern: "POST /api/plugins/{id}/update", limit: fetch, changes: true, do: s.update},
		{pattern: "DELETE /api/plugins/{id}", limit: quick, changes: true, do: s.remove},
	}
}

// consent is the plugins as this console changes them: asking for consent, unless it only fetches.
func (s *Server) consent(c *call) *gitplugins.Plugins {
	if s.o.FetchOnly {
		return c.plugins
	}
	return c.plugins.Gated()
}

// activation is what a request says to what is installed; nil where nothing is turned on.
func (s *Server) activation(b *body) *gitplugins.Activation {
	a := b.activation()
	if s.o.FetchOnly {
		return nil
	}
	return &a
}

// activation is what is said to what a plugin bundle asks.
func (b *body) activation() gitplugins.Activation {
	a := gitplugins.Activation{Typed: b.values("inputs"), Secrets: b.pairs("secrets")}
	maps.Copy(a.Typed, b.values("config_inputs"))
	return a
}

// installedPlugin is an installed plugin as it is listed.
type installedPlugin struct {
	gitplugins.RowView
	Tracked    bool                   `json:"tracked"`
	Present    bool                   `json:"present"`
	Incomplete bool                   `json:"incomplete"`
	Needs      []string               `json:"needs_config"` // keys of settings that it requires
	Error      *string                `json:"error"`        // why it isn't used although it is on, or what is wrong with its files
	Bundle     *bundleRef             `json:"bundle"`
	Manifest   *gitplugins.PluginView `json:"manifest"`
	DepsGone   bool                   `json:"deps_missing"`
	Views      []listedView           `json:"views"`
}

type bundleRef struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Source string `json:"url,omitempty"`
}

func (s *Server) installed(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	cards, bundles, warnings, err := c.plugins.Overview(ctx)
	if err != nil {
		return nil, err
	}
	root, err := c.plugins.Root()
	if err != nil {
		return nil, err
	}
	out := struct {
		Workspace string            `json:"workspace"`
		FetchOnly bool              `json:"fetch_only"`
		Version   string            `json:"version"`
		Plugins   []installedPlugin `json:"plugins"`
		Bundles   []bundleView      `json:"bundles"`
		Warnings  []string          `json:"warnings"`
	}{root, s.o.FetchOnly, s.o.Version, []installedPlugin{}, []bundleView{}, some(warnings)}
	for _, x := range cards {
		p := installedPlugin{
			RowView: gitplugins.ViewRow(x.Standing, x.Enabled), Tracked: true, Present: x.State != git.Missing, Incomplete: len(x.Lacks) > 0, Needs: some(x.Lacks), DepsGone: x.DepsGone,
		}
		switch {
		case x.Trouble != "":
			p.Error = &x.Trouble
		case x.Err != nil:
			p.Error = new(x.Err.Error())
		case x.State == git.Missing:
			p.Error = new(git.ErrMissing.Error())
		}
		if x.Of != nil {
			p.Bundle = &bundleRef{x.Of.ID, x.Of.Name, git.Shown(x.Of.SourceURL)}
		}
		if src, err := git.ParseSource(x.Row.SourceURL); x.Manifest != nil && err == nil {
			v := gitplugins.ViewPlugin(git.Fetched{Source: src, Commit: x.Row.ResolvedSHA, Tree: x.Row.TreeSHA256, By: x.Row.Fetch}, x.Row.RequestedRef, x.Manifest)
			p.Manifest = &v
		}
		out.Plugins = append(out.Plugins, p)
	}
	for _, b := range bundles {
		out.Bundles = append(out.Bundles, viewBundle(b))
	}
	return out, s.listViews(ctx, c.plugins, cards, out.Plugins)
}

func some(s []string) []string { return append([]string{}, s...) }

func (s *Server) updates(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	all, err := c.plugins.Outdated(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		Plugins []gitplugins.UpdateView `json:"plugins"`
		Bundles []gitplugins.UpdateView `json:"bundles"`
	}{[]gitplugins.UpdateView{}, []gitplugins.UpdateView{}}
	for _, u := range all {
		v := gitplugins.ViewUpdate(u)
		if u.Bundle {
			out.Bundles = append(out.Bundles, v)
		} else {
			out.Plugins = append(out.Plugins, v)
		}
	}
	return out, nil
}

// after is what came of a change: the workspace is read again, as whatever uses it will read it.
type after struct {
	Reloaded bool              `json:"reloaded"`
	Error    *string           `json:"reload_error"`
	Restart  bool              `json:"restart_recommended"` // an agent of the workspace that runs takes notice when it starts again
	Load     map[string]string `json:"load_errors"`         // why plugins that are on can't be used, by id
}

// anew reads the workspace under the configuration as a change has left it.
func (s *Server) anew(ctx context.Context, read func(*gitplugins.Plugins) error) error {
	p, done, err := s.o.Open(ctx)
	if err != nil {
		return err
	}
	err = read(p)
	if end := done(ctx); err == nil {
		err = end
	}
	return err
}

// reload reads the workspace after a change; changed tells whether something that is on is another than before.
func (s *Server) reload(ctx context.Context, changed bool) (out after) {
	out = after{Restart: changed, Load: map[string]string{}}
	if !changed {
		return out
	}
	ctx = context.WithoutCancel(ctx) // it has happened; who asked learns of it if they can
	err := s.anew(ctx, func(p *gitplugins.Plugins) (err error) {
		out.Load, err = p.Troubles(ctx)
		return err
	})
	if err != nil {
		out.Error, out.Load = new(err.Error()), map[string]string{}
	}
	out.Reloaded = err == nil
	return out
}

// installReply is what an install or an update answers.
type installReply struct {
	Installed gitplugins.InstalledView `json:"installed"`
	Enabled   []string                 `json:"enabled"` // that were turned on now
	after
	EnableError *string  `json:"enable_error"` // why nothing was turned on and no setting was written, although the files are installed
	Servers     []string `json:"mcp_seeded"`
	Off         []string `json:"mcp_off"` // those of them that lack a required value
	Written     []string `json:"config_written"`
	Warnings    []string `json:"warnings"`
}

func (s *Server) installedReply(ctx context.Context, done *gitplugins.Installed) installReply {
	out := installReply{
		Installed: gitplugins.ViewInstalled(done, false), Enabled: []string{}, Servers: []string{}, Off: []string{}, Written: []string{}, Warnings: some(done.Warnings),
	}
	if a := done.Activated; a != nil {
		out.Enabled, out.Servers, out.Off, out.Written = some(a.Enabled), some(a.Servers), some(a.Off), some(a.Written)
		out.Warnings = append(out.Warnings, a.Warnings...)
		if a.Err != nil {
			out.EnableError = new(a.Err.Error())
		}
	}
	out.after = s.reload(ctx, done.Activated != nil)
	return out
}

func (s *Server) install(ctx context.Context, c *call) (any, error) {
	b := c.body
	o := gitplugins.Request{URL: b.text("url"), Ref: b.text("ref"), Force: b.flag("force"), By: "console"}
	o.Activate = s.activation(b)
	b.required("url")
	if err := b.done(); err != nil {
		return nil, err
	}
	done, err := s.consent(c).Install(ctx, o)
	if err != nil {
		return nil, s.looked.explain(err, o.URL, o.Ref)
	}
	defer func() { _ = done.Close() }() // files are let go of
	return s.installedReply(ctx, done), nil
}

// needsAck is the answer to what nobody consented to.
func needsAck(e *gitplugins.NeedsAck) any {
	out := struct {
		NeedsAck bool             `json:"needs_ack"`
		Source   string           `json:"source"`
		Sources  []string         `json:"sources"` // that nobody vouches for
		Digest   *string          `json:"plan_digest"`
		Plan     *gitplugins.Plan `json:"plan"` // null where nobody has looked yet: peek tells
	}{true, e.Sources[0], e.Sources, nil, e.Plan}
	if e.Plan != nil {
		out.Digest, out.Source = &e.Plan.Digest, e.Plan.Sources[0].Source
	}
	return out
}

// question is something that a plugin bundle asks.
type question struct {
	Key      string   `json:"key"`
	Label    string   `json:"label"`
	Help     string   `json:"help"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	Secret   bool     `json:"secret"`
	Kind     string   `json:"kind"` // where the answer goes: config, server or secret
	Default  string   `json:"default"`
	Choices  []string `json:"choices"`
}

func questions(all []workspace.Question) []question {
	out := []question{}
	for _, q := range all {
		out = append(out, question{q.Key, q.Label, q.Help, q.Type, q.Required, q.Secret, q.Of, q.Default, some(q.Choices)})
	}
	return out
}

func unanswered(e *gitplugins.Unanswered) any {
	return struct {
		Detail    string     `json:"detail"`
		Code      string     `json:"code"`
		Problems  []string   `json:"problems"`
		Questions []question `json:"questions"`
	}{e.Error(), "answers", e.Problems, questions(e.Questions)}
}

func (s *Server) ack(ctx context.Context, c *call) (any, error) {
	b := c.body
	a := gitplugins.Ack{URL: b.text("url"), Digest: b.text("plan_digest"), All: b.word("trust_all")}
	if from := b.text("source"); a.URL == "" {
		a.URL = from
	}
	if err := b.done(); err != nil {
		return nil, err
	}
	if a.URL == "" {
		return nil, badRequest("url is missing")
	}
	if a.Digest != "" && !isDigest(a.Digest) {
		return nil, badRequest("plan_digest has to be the 64 hex digits that peek or install answered")
	}
	done, err := c.plugins.Consent(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := s.counts(ctx, a); err != nil {
		return nil, err
	}
	return struct {
		OK       bool   `json:"ok"`
		Acked    string `json:"acked"`
		Digest   string `json:"plan_digest"`
		TrustAll bool   `json:"trust_all"`
	}{true, done.Source, a.Digest, done.All}, nil
}

// counts refuses a consent that was stored in a configuration that doesn't count.
func (s *Server) counts(ctx context.Context, a gitplugins.Ack) error {
	ok := false
	err := s.anew(ctx, func(p *gitplugins.Plugins) (err error) {
		ok, err = p.HasConsent(ctx, a)
		return err
	})
	if err == nil && !ok {
		err = &Failure{http.StatusConflict, "configuration", "the consent was written, and the configuration that it stands in doesn't count: agent-env config sources tells why", nil}
	}
	return err
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func (s *Server) sync(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	rows, on, err := c.plugins.Sync(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		Plugins []gitplugins.StateView `json:"plugins"`
		after
	}{gitplugins.ViewStates(rows), s.reload(ctx, on)}
	return out, nil
}

func (s *Server) installDeps(ctx context.Context, c *call) (any, error) {
	id, dry := c.body.text("id"), c.body.flag("dry_run")
	c.body.required("id")
	if err := c.body.done(); err != nil {
		return nil, err
	}
	if s.o.Deps == nil {
		return nil, &Failure{http.StatusNotImplemented, "deps", "this console installs no packages; agent-env plugin install-deps does", nil}
	}
	if err := c.plugins.Gated().Consented(ctx, id); err != nil {
		return nil, err
	}
	got, err := s.o.Deps(ctx, id, dry)
	if err != nil {
		return nil, err
	}
	out := struct {
		OK        bool     `json:"ok"`
		Installed []string `json:"installed"`
		Requires  []string `json:"requires_pip"`
		Left      []string `json:"not_installed"` // optional ones, and those for protoAgent's own process
		Plan      []string `json:"plan"`
		Changed   bool     `json:"changed"`
		DryRun    bool     `json:"dry_run"`
	}{true, some(got.Packages), some(got.Packages), some(got.Left), some(got.Plan), got.Changed, dry}
	if dry {
		out.Installed = []string{}
	}
	return out, nil
}

func (s *Server) enabled(ctx context.Context, c *call) (any, error) {
	id, on := c.PathValue("id"), c.body.flag("enabled")
	c.body.required("enabled")
	if err := c.body.done(); err != nil {
		return nil, err
	}
	if err := git.CheckID(id); err != nil {
		return nil, err
	}
	changed, err := c.plugins.Gated().Switch(ctx, id, on)
	if err != nil {
		return nil, err
	}
	return struct {
		OK      bool `json:"ok"`
		Enabled bool `json:"enabled"`
		Changed bool `json:"changed"`
		after
	}{true, on, changed, s.reload(ctx, changed)}, nil
}

func (s *Server) update(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	id := c.PathValue("id")
	if err := git.CheckID(id); err != nil {
		return nil, err
	}
	was, err := c.plugins.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	done, err := s.consent(c).Update(ctx, id, true, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = done.Close() }() // files are let go of
	v := gitplugins.ViewInstalled(done, false)
	if len(v.Plugins) == 0 {
		return nil, fmt.Errorf("%s comes with agent-env now: there is nothing to update", id)
	}
	p := v.Plugins[0]
	return struct {
		OK       bool     `json:"ok"`
		ID       string   `json:"id"`
		Version  string   `json:"version"`
		Commit   string   `json:"resolved_sha"`
		Outcome  string   `json:"outcome"`
		Warnings []string `json:"warnings"`
		after
	}{true, id, p.Version, p.Commit, string(p.Outcome), v.Warnings, s.reload(ctx, was != nil && was.Enabled && p.Outcome != git.Unchanged)}, nil
}

// purge reads ?purge=.
func (c *call) purge() (bool, error) {
	switch v := strings.ToLower(c.URL.Query().Get("purge")); v {
	case "1", "true", "yes", "on":
		return true, nil
	case "", "0", "false", "no", "off":
		return false, nil
	default:
		return false, badRequest("purge has to be true or false")
	}
}

// removal reads what is to be removed, and whether its settings go too.
func (c *call) removal() (id string, purge bool, err error) {
	purge, err = c.purge()
	if err == nil {
		err = c.body.done()
	}
	if id = c.PathValue("id"); err == nil {
		err = git.CheckID(id)
	}
	return id, purge, err
}

func (s *Server) remove(ctx context.Context, c *call) (any, error) {
	id, purge, err := c.removal()
	if err != nil {
		return nil, err
	}
	was, err := c.plugins.Show(ctx, id)
	if err != nil {
		return nil, err
	}
	out, err := c.plugins.Uninstall(ctx, id, purge)
	if err != nil {
		return nil, err
	}
	return struct {
		OK       bool     `json:"ok"`
		ID       string   `json:"id"`
		Removed  []string `json:"removed"`
		DepsLeft []string `json:"deps_left"`
		Purged   bool     `json:"purged"`
		Warnings []string `json:"warnings"`
		after
	}{true, out.ID, some(out.Removed), some(out.DepsLeft), purge, some(out.Warnings), s.reload(ctx, was != nil && was.Enabled)}, nil
}
