package gitplugins

import (
	"context"

	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
)

// CreateWorkspace has a workspace made, with the consent that an install of its bundle here needs, and with these answers to what the bundle asks. An
// error may be a *NeedsAck, an *Unanswered, a *git.Refused or a *workspace.Late; nothing is made then.
func (p *Plugins) CreateWorkspace(ctx context.Context, create func(context.Context, workspace.Order) (*workspace.Created, error), o workspace.Order, a Activation) (*workspace.Created, error) {
	if err := workspace.CheckName(o.Name); err != nil {
		return nil, err
	}
	if o.Bundle == "" {
		return create(ctx, o)
	}
	src, err := git.ParseSource(o.Bundle)
	if err != nil {
		return nil, err
	}
	if err := git.CheckRef(o.Ref); err != nil {
		return nil, err
	}
	policy, err := p.o.Policy(ctx)
	if err != nil {
		return nil, err
	}
	if err := policy.Allows(src); err != nil { // no consent makes up for that
		return nil, err
	}
	if err := p.mayAsk(ctx, policy, src); err != nil {
		return nil, err
	}
	o.Permit = func(ctx context.Context, bundle *git.Item) error { return p.mayAskMembers(ctx, policy, bundle) }
	o.Answer = func(ctx context.Context, k *pack.Pack, d pack.Disclosure) (workspace.Answers, error) {
		if err := p.consented(ctx, policy, newPlan(git.Bundle, []git.Disclosure{}, &d, k.Sources())); err != nil {
			return workspace.Answers{}, err
		}
		return p.answersTo(ctx, k.Manifest, a)
	}
	return create(ctx, o)
}
