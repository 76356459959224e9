package local

import (
	"context"

	"agentenv.internal/agentenv/internal/sandbox"
)

var _ sandbox.Checker = (*Provider)(nil)

// Check is what Create would refuse without trying.
func (p *Provider) Check(_ context.Context, s sandbox.Spec) error { return check(&s) }
