package console

import (
	"context"

	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
)

func (s *Server) bundleRoutes() []route {
	return []route{
		{pattern: "GET /api/plugins/bundles", limit: quick, do: s.bundles},
		{pattern: "POST /api/plugins/bundles/{id}/update", limit: fetch, changes: true, do: s.updateBundle},
		{pattern: "DELETE /api/plugins/bundles/{id}", limit: quick, changes: true, do: s.removeBundle},
	}
}

// bundleView is an installed plugin bundle.
type bundleView struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Source         string   `json:"source_url"`
	Ref            string   `json:"requested_ref"`
	Commit         string   `json:"resolved_sha"`
	Tree           string   `json:"tree_sha256"`
	Plugins        []string `json:"plugins"`
	Superseded     []string `json:"superseded"`
	MissingBuiltin []string `json:"missing_builtin"`
	Enabled        []string `json:"enabled"` // what it turns on
	Verified       string   `json:"verified_against"`
	By             string   `json:"by"`
	At             string   `json:"installed_at"`
}

func viewBundle(b git.BundleRow) bundleView {
	return bundleView{
		b.ID, b.Name, git.Shown(b.SourceURL), b.RequestedRef, b.ResolvedSHA, b.TreeSHA256, some(b.Plugins), some(b.Superseded), some(b.MissingBuiltin), some(b.Enabled), b.VerifiedAgainst, b.By, b.InstalledAt,
	}
}

func (s *Server) bundles(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	all, err := c.plugins.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		Bundles []bundleView `json:"bundles"`
	}{[]bundleView{}}
	for _, b := range all {
		out.Bundles = append(out.Bundles, viewBundle(b))
	}
	return out, nil
}

func (s *Server) updateBundle(ctx context.Context, c *call) (any, error) {
	b := c.body
	u := gitplugins.BundleUpdate{ID: c.PathValue("id"), Ref: b.text("ref"), Force: b.flag("force"), Newest: true}
	u.Activate = s.activation(b)
	if err := b.done(); err != nil {
		return nil, err
	}
	if err := git.CheckID(u.ID); err != nil {
		return nil, err
	}
	done, err := s.consent(c).UpdateBundle(ctx, u)
	if err != nil {
		return nil, err
	}
	defer func() { _ = done.Close() }() // files are let go of
	return struct {
		installReply
		Retired     []string `json:"removed_members"`
		Kept        []string `json:"kept"`
		Missing     []string `json:"skipped_missing"`
		RetireError *string  `json:"retire_error"` // always null: members go with the update, or nothing changes
	}{s.installedReply(ctx, &done.Installed), some(done.Retired.Members), some(done.Retired.Kept), some(done.Retired.Missing), nil}, nil
}

func (s *Server) removeBundle(ctx context.Context, c *call) (any, error) {
	id, purge, err := c.removal()
	if err != nil {
		return nil, err
	}
	out, err := c.plugins.UninstallBundle(ctx, id, purge)
	if err != nil {
		return nil, err
	}
	return struct {
		OK       bool              `json:"ok"`
		ID       string            `json:"id"`
		Members  []string          `json:"removed_members"`
		Missing  []string          `json:"skipped_missing"`
		Failed   map[string]string `json:"failed"` // always empty: members go together, or nothing changes
		Kept     []string          `json:"kept"`
		Servers  []string          `json:"mcp_removed"`
		DepsLeft []string          `json:"deps_left"`
		Purged   bool              `json:"purged"`
		Warnings []string          `json:"warnings"`
		after
	}{true, out.ID, some(out.Members), some(out.Missing), map[string]string{}, some(out.Kept), some(out.Servers), some(out.DepsLeft), purge, some(out.Warnings), s.reload(ctx, true)}, nil
}
