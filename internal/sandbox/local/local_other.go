//go:build !linux

package local

import (
	"context"
	"fmt"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Provider refuses: local boxes are made of Linux namespaces.
type Provider struct{}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
)

var errLinux = fmt.Errorf("local sandboxes need Linux; use another sandbox provider, such as docker: %w", sandbox.ErrUnsupported)

// New makes a provider that has no boxes.
func New(o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Provider{}, nil
}

// Create refuses.
func (*Provider) Create(context.Context, sandbox.Spec) (sandbox.Info, error) {
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

// Examine tells that there are no local boxes here.
func (*Provider) Examine(context.Context) Report {
	return Report{Findings: []Finding{{
		Name: "system", Needed: true, Detail: "local sandboxes need Linux", Fix: "use another sandbox provider, such as docker",
	}}}
}

// GuestProgram refuses.
func GuestProgram() ([]byte, error) { return nil, errLinux }

// Carried is no guest program.
func Carried() func() ([]byte, error) { return nil }
