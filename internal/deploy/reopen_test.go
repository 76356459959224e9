package deploy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
)

// mute is a provider that can't be asked.
type mute struct{ sandbox.Provider }

func (mute) List(context.Context) ([]sandbox.Info, error) { return nil, errors.New("no answer") }

func TestReopen(t *testing.T) {
	old, p := one(t, fake.Options{})
	old.Open(run, Policy{Keep: true})
	var known []Known
	for _, name := range []string{"kept", "other"} {
		info, err := old.Create(t.Context(), request("s-"+name, name))
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, Known{Provider: info.Provider, ID: info.ID, Name: name, Step: "s-" + name})
	}
	old.Open(run, Policy{})
	tied, err := old.Create(t.Context(), request("s-tied", "tied"))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := p.Create(t.Context(), sandbox.Spec{Run: "another", Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}

	set := catalog.New[sandbox.Provider]("sandbox type")
	set.Add("local", catalog.Origin{Kind: catalog.Builtin}, p)
	d := New(set, []string{"local"}, slog.New(slog.DiscardHandler))
	alive, err := d.Alive(t.Context(), run, known)
	if err != nil || !alive[known[0].ID] || !alive[known[1].ID] || alive[tied.ID] || alive[stranger.ID] {
		t.Errorf("%v %v", alive, err)
	}
	d.Open(run, Policy{Keep: true})
	if err := d.Reopen(t.Context(), run, known[:1]); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, m := range p.Machines() {
		left = append(left, m.ID())
	}
	if !slices.Equal(left, []string{known[0].ID, stranger.ID}) || names(d.Live(run)) != "kept" {
		t.Errorf("%v are left, %s in the account", left, names(d.Live(run)))
	}
	if _, err := d.Box(t.Context(), run, "kept"); err != nil {
		t.Error(err)
	}
	if _, err := d.Create(t.Context(), request("x", "kept")); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	// It goes with its step, as if that had made it here.
	if err := d.Undo(t.Context(), run, "s-kept"); err != nil || len(p.Machines()) != 1 {
		t.Errorf("%d sandboxes, %v", len(p.Machines()), err)
	}
}

func TestAliveWhenNobodyCanTell(t *testing.T) {
	d := providers(t, "local,mute", map[string]sandbox.Provider{"local": fake.New(fake.Options{}), "mute": mute{fake.New(fake.Options{})}})
	if _, err := d.Alive(t.Context(), run, []Known{{Provider: "local", ID: "1"}}); err != nil {
		t.Errorf("a provider that has none of the run's is in the way: %v", err)
	}
	if _, err := d.Alive(t.Context(), run, []Known{{Provider: "mute", ID: "1"}}); err == nil {
		t.Error("what nobody can tell counts as gone")
	}
	if err := d.Reopen(t.Context(), run, nil); err == nil {
		t.Error("a provider that could not be asked is passed over in silence")
	}
}
