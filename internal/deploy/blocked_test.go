package deploy

import (
	"context"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
)

// watched is a provider whose boxes tried something.
type watched struct{ *fake.Provider }

func (w watched) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	info, err := w.Provider.Create(ctx, s)
	info.Network = sandbox.NetAllow
	return info, err
}

func (w watched) Blocked(ctx context.Context, id string) ([]guest.Blocked, error) {
	infos, err := w.List(ctx)
	if len(infos) == 0 {
		return nil, sandbox.ErrNotFound // it goes with the box
	}
	return []guest.Blocked{{Proto: "tcp", Addr: "169.254.169.254", Port: 80, Count: 1}}, err
}

// last keeps the last removed box.
type last struct{ info sandbox.Info }

func (*last) EnvKept(string, Piece)           {}
func (*last) EnvTaken(string, TakeOver) error { return nil }

func (*last) BoxCreated(string, string, sandbox.Info)           {}
func (l *last) BoxRemoved(_, _ string, b sandbox.Info, _ error) { l.info = b }

// TestBlockedIsToldAtTheEnd: what a box was kept from outlives it in what the run is told.
func TestBlockedIsToldAtTheEnd(t *testing.T) {
	d := providers(t, "local", map[string]sandbox.Provider{"local": watched{fake.New(fake.Options{})}})
	o := &last{}
	d.Open(run, Policy{Observer: o})
	if _, err := d.Create(t.Context(), request("s", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Remove(t.Context(), run, "a"); err != nil {
		t.Fatal(err)
	}
	if len(o.info.Blocked) != 1 || o.info.Blocked[0].Addr != "169.254.169.254" {
		t.Errorf("told: %+v", o.info.Blocked)
	}
}
