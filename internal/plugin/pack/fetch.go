package pack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Pack is a plugin bundle that was fetched with all its members. Their files are held until Close.
type Pack struct {
	Manifest *Manifest
	Bundle   *git.Item
	Members  git.Items // those that were fetched, and those that a built-in one takes the place of
	Missing  []string  // members that are said to come with the program, and don't
	Warnings []string
}

// Wants are the repositories that a pack from parent names. Built-in members are none of them.
func Wants(m *Manifest, parent git.Source) []git.Want {
	var out []git.Want
	for _, x := range m.Members {
		if !x.Builtin {
			out = append(out, git.Want{URL: x.URL, Ref: x.Ref, By: "bundle:" + m.ID, Parent: parent, Declared: x.ID})
		}
	}
	return out
}

// Fetch reads the manifest of a fetched bundle, and brings its members here. Nothing of a workspace changes. The caller closes the pack, whose
// bundle stays its own business. builtins are the ids that come with the program.
func Fetch(ctx context.Context, s *git.Store, bundle *git.Item, builtins []string) (*Pack, error) {
	return fetch(ctx, s, bundle, builtins, func(w git.Want) (git.Want, error) { return w, nil })
}

// FetchLatest is Fetch, where a member that is pinned to a release's tag comes at the newest release that is compatible with it. Where its source
// can't be asked the pin counts.
func FetchLatest(ctx context.Context, s *git.Store, bundle *git.Item, builtins []string) (*Pack, error) {
	return fetch(ctx, s, bundle, builtins, func(w git.Want) (git.Want, error) {
		src, err := git.ParseSource(w.URL)
		if err != nil {
			return w, err
		}
		if err := s.Policy().AllowsMember(w.Parent, src); err != nil {
			return w, err
		}
		if tag, err := s.Newest(ctx, src, w.Ref, true); err == nil && tag != w.Ref {
			w.Ref, w.DeclaredRef = tag, w.Ref
		}
		return w, ctx.Err()
	})
}

func fetch(ctx context.Context, s *git.Store, bundle *git.Item, builtins []string, want func(git.Want) (git.Want, error)) (*Pack, error) {
	if bundle.Kind != git.Bundle {
		return nil, fmt.Errorf("%s is no plugin bundle", bundle.Fetched.Source)
	}
	m, l, err := Read(os.DirFS(bundle.Fetched.Dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bundle.Fetched.Source, err)
	}
	for i := range l {
		l[i].Pos.File = bundle.Fetched.Source.Name() + "/" + l[i].Pos.File
	}
	if l.HasErrors() {
		return nil, fmt.Errorf("%s: its bundle manifest can't be used:\n%w", bundle.Fetched.Source, l.Err())
	}
	p := &Pack{Manifest: m, Bundle: bundle}
	for _, w := range l.Of(diag.Warning) {
		p.Warnings = append(p.Warnings, w.String())
	}
	for _, x := range m.Members {
		if x.Builtin && !slices.Contains(builtins, x.ID) {
			p.Missing = append(p.Missing, x.ID)
			p.Warnings = append(p.Warnings, fmt.Sprintf("the member %s is said to come with the program, and doesn't come with this one; it is skipped", x.ID))
		}
	}
	wants := Wants(m, bundle.Fetched.Source)
	for i, w := range wants {
		if wants[i], err = want(w); err != nil {
			return nil, fmt.Errorf("the bundle %s: %w", m.ID, err)
		}
	}
	if p.Members, err = s.Fetch(ctx, wants); err != nil {
		return nil, fmt.Errorf("the bundle %s: %w", m.ID, err)
	}
	for _, i := range p.Members {
		for _, w := range i.Warnings {
			p.Warnings = append(p.Warnings, i.ID()+": "+w)
		}
	}
	return p, nil
}

// Close lets go of the members' files.
func (p *Pack) Close() error {
	if p == nil {
		return nil
	}
	return p.Members.Close()
}

// Known are the ids that the pack may turn on: its members, and those that come with the program.
func (p *Pack) Known(builtins []string) []string {
	out := slices.Clone(builtins)
	for _, i := range p.Members {
		out = append(out, i.ID())
	}
	return out
}

// Row is the bundle's row of the lock; seeded is what it gave the workspace.
func (p *Pack) Row(by, now string, seeded []git.Seeded) git.BundleRow {
	m, f := p.Manifest, p.Bundle.Fetched
	r := git.BundleRow{
		ID: m.ID, Name: m.Name, SourceURL: f.Source.String(), RequestedRef: p.Bundle.Want.Ref, ResolvedSHA: f.Commit, TreeSHA256: f.Tree, Fetch: f.By,
		Enabled: m.On(), MissingBuiltin: p.Missing, VerifiedAgainst: m.VerifiedAgainst, Seeded: seeded, InstalledAt: now, By: by,
		Config: raw(m.ConfigNode), MCP: raw(m.ServersNode), Secrets: raw(m.SecretsNode), ConfigInputs: raw(m.InputsNode), Archetype: raw(m.ArchetypeNode),
	}
	for _, i := range p.Members {
		if i.Superseded != "" {
			r.Superseded = append(r.Superseded, i.Want.Declared)
			continue
		}
		r.Plugins = append(r.Plugins, i.ID())
	}
	for _, x := range m.Members {
		r.Members = append(r.Members, git.Member{Declared: x.ID, ID: x.ID, URL: x.URL, Ref: x.Ref, Builtin: x.Builtin})
	}
	return r
}

func raw(n doc.Node) []byte {
	if n.IsNull() {
		return nil
	}
	return doc.JSON(n)
}

// ErrRefused is in every error about consent that was not given.
var ErrRefused = errors.New("consent was not given")

// Disclosure is what consent to a pack covers: where everything comes from, and what it brings.
type Disclosure struct {
	ID      string           `json:"id"`
	Source  string           `json:"source"`
	Commit  string           `json:"commit"`
	Tree    string           `json:"tree_sha256"`
	Members []git.Disclosure `json:"members"`
	Config  []string         `json:"config"`  // keys that are set where nobody set them
	MCP     any              `json:"mcp"`     // servers, as written: their commands, URLs and variables
	Inputs  []string         `json:"inputs"`  // keys that are asked for
	Secrets []string         `json:"secrets"` // keys
	Enabled []string         `json:"enabled"`
}

// Disclose says what consent to the pack covers.
func (p *Pack) Disclose(plan *git.Plan) Disclosure {
	m, f := p.Manifest, p.Bundle.Fetched
	d := Disclosure{
		ID: m.ID, Source: f.Source.String(), Commit: f.Commit, Tree: f.Tree, Members: plan.Disclosures(), Config: leaves(m.Config, ""), MCP: m.ServersNode.Any(),
		Inputs: []string{}, Secrets: []string{}, Enabled: append([]string{}, m.On()...),
	}
	for _, in := range m.Inputs {
		d.Inputs = append(d.Inputs, in.Key)
	}
	for _, s := range m.Secrets {
		d.Secrets = append(d.Secrets, s.Key)
	}
	return d
}

// leaves are the dotted keys of all values below n.
func leaves(n doc.Node, at string) []string {
	out := []string{}
	for name, v := range n.Members() {
		if v.Kind() == doc.Object && v.Len() > 0 {
			out = append(out, leaves(v, at+name+".")...)
		} else {
			out = append(out, at+name)
		}
	}
	return out
}

// Sources are all sources of a pack, its own first, each once: whether they need consent is the policy's to say.
func (p *Pack) Sources() []git.Source {
	out := []git.Source{p.Bundle.Fetched.Source}
	for _, i := range p.Members {
		if i.Superseded == "" && !slices.ContainsFunc(out, i.Fetched.Source.Same) {
			out = append(out, i.Fetched.Source)
		}
	}
	return out
}
