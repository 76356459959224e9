//go:build !linux

package docker

import (
	"context"
	"fmt"
	"io"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Provider refuses: descriptors don't travel into the machine that an engine of this system runs its containers in.
type Provider struct{}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
	_ sandbox.Builder  = (*Provider)(nil)
)

const errLinux = refusal("sandboxes of an engine need Linux")

// New makes a provider that has no boxes.
func New(o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Provider{}, nil
}

// Create refuses.
func (*Provider) Create(_ context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(&s); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Info{}, errLinux
}

// Connect finds nothing.
func (*Provider) Connect(_ context.Context, id string) (guest.Box, error) {
	return nil, fmt.Errorf("%s: %w", id, sandbox.ErrNotFound)
}

// List is empty.
func (*Provider) List(context.Context) ([]sandbox.Info, error) { return nil, nil }

// Destroy has nothing to do.
func (*Provider) Destroy(context.Context, string) error { return nil }

// Sweep has nothing to do.
func (*Provider) Sweep(context.Context) ([]string, error) { return nil, nil }

// Close has nothing to do.
func (*Provider) Close() error { return nil }

// Check refuses.
func (*Provider) Check(context.Context, sandbox.Spec) error { return errLinux }

// Build refuses.
func (*Provider) Build(context.Context, sandbox.Build) (sandbox.Built, error) {
	return sandbox.Built{}, errLinux
}

// Load refuses.
func (*Provider) Load(context.Context, io.Reader) ([]string, error) { return nil, errLinux }

// Examine tells that there are no such boxes here.
func (*Provider) Examine(context.Context) Report {
	return Report{Findings: []Finding{{Name: "engine", Detail: errLinux.Error()}}}
}
