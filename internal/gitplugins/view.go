package gitplugins

import (
	"slices"

	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
)

// InstalledView is what install --json prints.
type InstalledView struct {
	DryRun   bool         `json:"dry_run"`
	Bundle   *BundleView  `json:"bundle"` // null for a plugin alone
	Plugins  []PluginView `json:"plugins"`
	Warnings []string     `json:"warnings"`
}

// BundleView is a plugin bundle as install prints it.
type BundleView struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Description    string   `json:"description"`
	Source         string   `json:"source_url"`
	Commit         string   `json:"resolved_sha"`
	Installed      []string `json:"installed"`
	Builtin        []string `json:"skipped_builtin"`
	MissingBuiltin []string `json:"missing_builtin"`
	Superseded     []string `json:"skipped_superseded"`
	Enabled        []string `json:"enabled"` // suggested: nothing is enabled
	Config         any      `json:"config"`  // suggested: nothing is written
}

// ViewBundle is a fetched plugin bundle as JSON says it; nil of none.
func ViewBundle(k *pack.Pack) *BundleView {
	if k == nil {
		return nil
	}
	row, m := k.Row("", "", nil), k.Manifest
	out := &BundleView{
		row.ID, row.Name, m.Description, row.SourceURL, row.ResolvedSHA, all(row.Plugins), []string{}, all(row.MissingBuiltin), all(row.Superseded), all(m.On()), m.ConfigNode.Any(),
	}
	for _, x := range m.Members {
		if x.Builtin && !slices.Contains(row.MissingBuiltin, x.ID) {
			out.Builtin = append(out.Builtin, x.ID)
		}
	}
	return out
}

// PluginView is one plugin as install and show print it.
type PluginView struct {
	ID           string      `json:"id"`
	Outcome      git.Outcome `json:"outcome,omitempty"`
	Name         string      `json:"name"`
	Version      string      `json:"version"`
	Description  string      `json:"description"`
	Source       string      `json:"source_url"`
	Ref          string      `json:"requested_ref"`
	Commit       string      `json:"resolved_sha"`
	Tree         string      `json:"tree_sha256"`
	Fetch        string      `json:"fetch"`
	Manifest     string      `json:"manifest"`
	Repository   string      `json:"repository"`
	Homepage     string      `json:"homepage"`
	Capabilities any         `json:"capabilities"`
	RequiresEnv  []string    `json:"requires_env"`
	Packages     []string    `json:"requires_pip"`
	Optional     []string    `json:"optional_pip"`
	MinVersion   string      `json:"min_version"`
	Contributes  Contributes `json:"contributes"`
	Warnings     []string    `json:"warnings"`
	UpToDate     bool        `json:"up_to_date"`
}

// Contributes is what a plugin brings.
type Contributes struct {
	Command   []string   `json:"command"`
	Types     []TypeView `json:"types"` // that the program serves
	MCP       int        `json:"mcp_servers"`
	Skills    []string   `json:"skills"`
	Workflows []string   `json:"workflows"`
	Bundles   []string   `json:"bundles"`
	Views     []string   `json:"views"`
	Secrets   []string   `json:"secrets"`
	Settings  []string   `json:"settings"`
	// Python is what only protoAgent loads, into its own process: it is listed and does nothing here.
	Python []string `json:"python_not_loaded"`
}

// TypeView is a type as packages' contributions are named.
type TypeView struct {
	Group string `json:"group"`
	Name  string `json:"name"`
}

// ViewPlugin is a plugin as JSON says it.
func ViewPlugin(fetched git.Fetched, ref string, m *git.Manifest) PluginView {
	out := PluginView{
		ID: m.ID, Name: m.Name, Version: m.Version, Description: m.Description, Source: fetched.Source.String(), Ref: ref, Commit: fetched.Commit, Tree: fetched.Tree,
		Fetch: fetched.By, Manifest: m.File, Repository: m.Repository, Homepage: m.Homepage, Capabilities: m.Capabilities.Any(), RequiresEnv: all(m.RequiresEnv),
		Packages: []string{}, Optional: []string{}, MinVersion: m.MinVersion, Warnings: []string{},
		Contributes: Contributes{
			Command: all(m.Command), Types: []TypeView{}, MCP: m.MCP.Len(), Skills: all(m.Skills), Workflows: all(m.Workflows), Bundles: all(m.Bundles), Views: []string{}, Secrets: all(m.Secrets),
			Settings: []string{}, Python: all(m.Python),
		},
	}
	for _, r := range m.Requires {
		if r.Optional {
			out.Optional = append(out.Optional, r.Spec)
		} else {
			out.Packages = append(out.Packages, r.Spec)
		}
	}
	for _, t := range m.Types {
		out.Contributes.Types = append(out.Contributes.Types, TypeView{t.Group, t.Name})
	}
	for _, v := range m.Views {
		out.Contributes.Views = append(out.Contributes.Views, v.ID)
	}
	for _, s := range m.Settings {
		out.Contributes.Settings = append(out.Contributes.Settings, s.Key)
	}
	return out
}

func all(s []string) []string { return append([]string{}, s...) }

// RowView is a row of the lock as sync, verify and list print it.
type RowView struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // plugin or bundle
	State   git.State `json:"state"`
	Error   *string   `json:"error"`
	Enabled bool      `json:"enabled"`
	Source  string    `json:"source_url"`
	Ref     string    `json:"requested_ref"`
	Commit  string    `json:"resolved_sha"`
	Tree    string    `json:"tree_sha256"`
	By      string    `json:"by"`
	At      string    `json:"installed_at"`
}

// ViewRow is a row of the lock, and what is here of it, as JSON says it.
func ViewRow(s git.Standing, enabled bool) RowView {
	out := RowView{s.ID, "plugin", s.State, nil, enabled, git.Shown(s.Row.SourceURL), s.Row.RequestedRef, s.Row.ResolvedSHA, s.Row.TreeSHA256, s.Row.By, s.Row.InstalledAt}
	if s.Bundle {
		out.Kind = "bundle"
	}
	if s.Err != nil {
		out.Error = new(s.Err.Error())
	}
	return out
}

// UpdateView is a row as outdated prints it.
type UpdateView struct {
	ID         string  `json:"id"`
	Kind       string  `json:"kind"` // plugin or bundle
	Source     string  `json:"source_url"`
	Ref        string  `json:"requested_ref"`
	Current    string  `json:"current_sha"`
	Latest     string  `json:"latest_sha"`
	LatestRef  string  `json:"latest_ref"`
	Behind     bool    `json:"behind"`
	Pinned     bool    `json:"pinned"`
	Superseded bool    `json:"superseded"`
	Error      *string `json:"error"`
}

// ViewUpdate is what a source has now, as JSON says it.
func ViewUpdate(u git.Update) UpdateView {
	v := UpdateView{u.ID, "plugin", git.Shown(u.Row.SourceURL), u.Row.RequestedRef, u.Row.ResolvedSHA, u.Latest, u.LatestRef, u.Behind, u.Pinned, u.Superseded, nil}
	if u.Bundle {
		v.Kind = "bundle"
	}
	if u.Err != nil {
		v.Error = new(u.Err.Error())
	}
	return v
}

// ViewInstalled is an install, or what it would do, as JSON says it.
func ViewInstalled(done *Installed, dry bool) InstalledView {
	out := InstalledView{DryRun: dry, Bundle: ViewBundle(done.Pack), Plugins: []PluginView{}, Warnings: all(done.Warnings)}
	for _, i := range done.Plan.Items {
		if i.Manifest == nil {
			continue
		}
		pl := ViewPlugin(i.Fetched, i.Want.Ref, i.Manifest)
		pl.Outcome, pl.UpToDate = i.Outcome, i.Outcome == git.Unchanged
		pl.Warnings = all(i.Warnings)
		out.Plugins = append(out.Plugins, pl)
	}
	return out
}

// PeekView is what peek --json prints.
type PeekView struct {
	Kind        string       `json:"kind"` // plugin or bundle
	Source      string       `json:"source_url"`
	Commit      string       `json:"resolved_sha"`
	Plugin      *PluginView  `json:"plugin"` // null of a bundle
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Verified    string       `json:"verified_against"`
	Enabled     []string     `json:"enabled"`
	Members     []MemberView `json:"members"`
	Config      any          `json:"config"`
	MCP         any          `json:"mcp"`
	Secrets     any          `json:"secrets"`
	Inputs      any          `json:"config_inputs"`
	Archetype   any          `json:"archetype"`
	Problems    []string     `json:"problems"`
}

// MemberView is a member of a plugin bundle that was looked at.
type MemberView struct {
	ID      string      `json:"id"`
	URL     string      `json:"url"`
	Ref     string      `json:"ref"`
	Builtin bool        `json:"builtin"`
	Plugin  *PluginView `json:"plugin"` // null of one that comes with the program or can't be looked at
	Error   *string     `json:"error"`
}

// ViewPeek is a look at a repository as JSON says it.
func ViewPeek(k *Peek) PeekView {
	f := k.Item.Fetched
	out := PeekView{Kind: k.Item.Kind.String(), Source: f.Source.String(), Commit: f.Commit, Enabled: []string{}, Members: []MemberView{}, Problems: []string{}}
	if m := k.Item.Manifest; m != nil {
		pl := ViewPlugin(f, f.Ref, m)
		out.Plugin, out.ID, out.Name, out.Description = &pl, m.ID, m.Name, m.Description
	}
	out.Problems = append(out.Problems, k.Item.Warnings...)
	m := k.Pack
	if m == nil {
		return out
	}
	out.ID, out.Name, out.Description, out.Verified, out.Enabled = m.ID, m.Name, m.Description, m.VerifiedAgainst, all(m.On())
	out.Config, out.MCP, out.Secrets, out.Inputs, out.Archetype = m.ConfigNode.Any(), m.ServersNode.Any(), m.SecretsNode.Any(), m.InputsNode.Any(), m.ArchetypeNode.Any()
	for _, p := range k.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	for _, x := range k.Members {
		row := MemberView{ID: x.ID, URL: x.URL, Ref: x.Ref, Builtin: x.Builtin}
		switch {
		case x.Err != nil:
			row.Error = new(x.Err.Error())
		case x.Item != nil && x.Item.Manifest != nil:
			pl := ViewPlugin(x.Item.Fetched, x.Item.Fetched.Ref, x.Item.Manifest)
			pl.Warnings = all(x.Item.Warnings)
			row.Plugin = &pl
		case x.Item != nil: // what comes with the program takes its place
			row.Builtin = true
		}
		out.Members = append(out.Members, row)
	}
	return out
}

// StateView is a row of the lock without what only a list shows.
type StateView struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"` // plugin or bundle
	State  git.State `json:"status"`
	Error  *string   `json:"error"`
	Commit string    `json:"resolved_sha"`
	Tree   string    `json:"tree_sha256"`
}

// ViewStates are rows of the lock and what is here of them, as JSON says it.
func ViewStates(rows []git.Standing) []StateView {
	out := []StateView{}
	for _, r := range rows {
		v := ViewRow(r, false)
		out = append(out, StateView{v.ID, v.Kind, v.State, v.Error, v.Commit, v.Tree})
	}
	return out
}
