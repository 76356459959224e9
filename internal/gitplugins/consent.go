package gitplugins

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Plan is what consent is given to: everything that an install brings.
type Plan struct {
	Digest  string           `json:"digest"` // of kind, plugins and bundle; 64 hex digits
	Kind    string           `json:"kind"`   // plugin or bundle
	Sources []Origin         `json:"sources"`
	Plugins []git.Disclosure `json:"plugins"` // of a plugin alone
	Bundle  *pack.Disclosure `json:"bundle"`  // null of a plugin alone
	origins []git.Source
}

// Origin is a repository that a plan names.
type Origin struct {
	Source string `json:"source_url"`
	Known  bool   `json:"known"` // somebody vouches for it: it is official, was consented to, or none needs consent
}

// newPlan digests what is disclosed.
func newPlan(kind git.Kind, plugins []git.Disclosure, bundle *pack.Disclosure, from []git.Source) *Plan {
	p := &Plan{Kind: kind.String(), Plugins: plugins, Bundle: bundle, origins: from}
	sum, err := git.Digest(struct {
		Kind    string           `json:"kind"`
		Plugins []git.Disclosure `json:"plugins"`
		Bundle  *pack.Disclosure `json:"bundle"`
	}{p.Kind, p.Plugins, p.Bundle})
	if err != nil {
		panic(err) // they are texts, and trees of a document
	}
	p.Digest = sum
	return p
}

// pluginPlan is the plan of plugins alone.
func pluginPlan(g *git.Plan) *Plan {
	var from []git.Source
	for _, i := range g.Items {
		if i.Superseded == "" {
			from = append(from, i.Fetched.Source)
		}
	}
	return newPlan(git.Plugin, g.Disclosures(), nil, from)
}

// packPlan is the plan of a plugin bundle.
func packPlan(k *pack.Pack, g *git.Plan) *Plan {
	d := k.Disclose(g)
	return newPlan(git.Bundle, []git.Disclosure{}, &d, k.Sources())
}

// judged is the plan that says which sources are known.
func (p *Plan) judged(policy git.Policy) *Plan {
	out := *p
	out.Sources = []Origin{}
	for _, src := range p.origins {
		out.Sources = append(out.Sources, Origin{src.String(), policy.Trusted(src)})
	}
	return &out
}

// Judge says of a plan that was made earlier which sources are known now.
func (p *Plugins) Judge(ctx context.Context, plan *Plan) (*Plan, error) {
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return plan.judged(policy), nil
}

// NeedsAck is the error of what nobody consented to yet. Nothing was changed.
type NeedsAck struct {
	Sources []string // those that nobody vouches for, what was asked for first
	Plan    *Plan    // what would be installed; nil where nothing was fetched to tell it
}

func (e *NeedsAck) Error() string {
	return "nobody vouches for " + strings.Join(e.Sources, ", ") + ": it needs consent"
}

// ackedPlans are the digests of the plans from a source that were consented to.
func ackedPlans(settings doc.Node, src git.Source) []string {
	var out []string
	for _, line := range texts(settings.Get("sources").Get("acked_plans")) {
		digest, from, ok := strings.Cut(line, " ")
		if s, err := git.ParseSource(from); ok && err == nil && s.Same(src) {
			out = append(out, digest)
		}
	}
	return out
}

// mayAsk is nil where a source may be asked what it has: it is known, or a plan from it was consented to before.
func (p *Plugins) mayAsk(ctx context.Context, policy git.Policy, src git.Source) error {
	if !p.gated || policy.Trusted(src) {
		return nil
	}
	n, err := p.o.Settings(ctx)
	if err != nil {
		return err
	}
	if len(ackedPlans(n, src)) > 0 {
		return nil
	}
	return &NeedsAck{Sources: []string{src.String()}}
}

// mayAskMembers is mayAsk for what a fetched plugin bundle names: none of its members' sources has been asked yet.
func (p *Plugins) mayAskMembers(ctx context.Context, policy git.Policy, bundle *git.Item) error {
	if !p.gated {
		return nil
	}
	n, err := p.o.Settings(ctx)
	if err != nil {
		return err
	}
	src := bundle.Fetched.Source
	if len(ackedPlans(n, src)) > 0 {
		return nil
	}
	m, _, err := pack.Read(os.DirFS(bundle.Fetched.Dir))
	if err != nil || m == nil {
		return err // pack.Fetch tells
	}
	var unknown []string
	if !policy.Trusted(src) {
		unknown = append(unknown, src.String())
	}
	for _, w := range pack.Wants(m, src) {
		from, err := git.ParseSource(w.URL)
		if err != nil || p.supersedes(from) {
			continue
		}
		if !policy.Trusted(from) && !slices.Contains(unknown, from.String()) {
			unknown = append(unknown, from.String())
		}
	}
	if len(unknown) > 0 {
		return &NeedsAck{Sources: unknown}
	}
	return nil
}

func (p *Plugins) supersedes(src git.Source) bool {
	return slices.ContainsFunc(p.o.Builtins, func(b git.Builtin) bool { return slices.ContainsFunc(b.Supersedes, src.Same) })
}

// consented is nil for a plan whose sources are all known, and for one that was consented to; else it is a *NeedsAck.
func (p *Plugins) consented(ctx context.Context, policy git.Policy, plan *Plan) error {
	if !p.gated {
		return nil
	}
	var unknown []string
	plan = plan.judged(policy)
	for _, o := range plan.Sources {
		if !o.Known {
			unknown = append(unknown, o.Source)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	n, err := p.o.Settings(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(ackedPlans(n, plan.origins[0]), plan.Digest) {
		return nil
	}
	return &NeedsAck{unknown, plan}
}

// Ack is a consent.
type Ack struct {
	URL    string // of the source
	Digest string // of the one plan that is consented to; "" vouches for the source, whatever it will hold
	All    bool   // no source needs consent any more
}

// Acked says what was stored.
type Acked struct {
	Source string // canonical; "" where URL was none
	All    bool
}

// Consent stores a consent in the workspace's configuration. Two at once are both stored.
func (p *Plugins) Consent(ctx context.Context, a Ack) (Acked, error) {
	var src git.Source
	var err error
	if a.URL != "" || !a.All {
		if src, err = git.ParseSource(a.URL); err != nil {
			return Acked{}, err
		}
	}
	s, err := p.Store(ctx)
	if err != nil {
		return Acked{}, err
	}
	out := Acked{All: a.All}
	if a.URL != "" {
		out.Source = src.String() // holds no glob: they are escaped
		if err := s.Policy().Allows(src); err != nil {
			return Acked{}, err
		}
	}
	err = s.Change(ctx, func(tx *folder.Tx, _ *git.Lock) error {
		return workspace.EditSettings(tx, func(e *workspace.Settings) error {
			if a.All {
				if err := e.TrustUnverified(); err != nil {
					return err
				}
			}
			if a.URL == "" {
				return nil
			}
			if a.Digest != "" {
				return e.AddAcked("acked_plans", a.Digest+" "+out.Source)
			}
			return e.AddAcked("acked", out.Source)
		})
	})
	return out, err
}

// HasConsent tells whether a consent that was stored counts: an untrusted configuration says nothing.
func (p *Plugins) HasConsent(ctx context.Context, a Ack) (bool, error) {
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return false, err
	}
	if a.All {
		return policy.TrustUnverified, nil
	}
	src, err := git.ParseSource(a.URL)
	if err != nil || a.Digest == "" {
		return err == nil && policy.Trusted(src), err
	}
	n, err := p.o.Settings(ctx)
	return err == nil && slices.Contains(ackedPlans(n, src), a.Digest), err
}

// Lacks tells whether a plan lacks consent.
func (p *Plugins) Lacks(ctx context.Context, plan *Plan) (bool, error) {
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return false, err
	}
	err = p.Gated().consented(ctx, policy, plan)
	if _, ok := errors.AsType[*NeedsAck](err); ok {
		return true, nil
	}
	return false, err
}

// Allows is nil for a source that plugins may come from, else a *git.Refused.
func (p *Plugins) Allows(ctx context.Context, src git.Source) error {
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return err
	}
	return policy.Allows(src)
}

// DelegateNames are the agents that work may be handed to.
func (p *Plugins) DelegateNames(ctx context.Context) ([]string, error) {
	all, err := p.o.Delegates(ctx)
	return sorted(all), err
}
