package source

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

func put(t *testing.T, s *mem.Store, id, text string) {
	t.Helper()
	stage, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, n, err := stage.Put(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	f := artifact.NewFile(artifact.Pin{ID: id, Version: 1}, artifact.Bytes{Path: "s.json", Digest: d, Size: n, Mode: 0o644}, "")
	stage.Doc(store.Doc{Kind: store.Artifact, ID: f.ID, Version: 1, Type: f.Type, Body: f.Body(time.Now()), Objects: f.Objects}, store.Absent)
	if err := stage.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestModels(t *testing.T) {
	s := mem.New(mem.Options{})
	put(t, s, "@local/good", `{"variants":[{"turns":[{"say":"one"}]},{"turns":[{"say":"two"}]}]}`)
	put(t, s, "@local/bad", `{"variants":[]}`)
	var set Settings
	m := New(s, func(context.Context) (Settings, error) { return set, nil }, model.Patience{}, slog.New(slog.DiscardHandler))
	defer m.Close()

	for v, want := range []string{"one", "two"} {
		got, err := m.Model(t.Context(), "scripted:@local/good", "")
		if err != nil {
			t.Fatal(err)
		}
		res, err := got.Generate(t.Context(), &model.Request{Variant: v, Messages: []model.Message{model.Text(model.User, "x")}})
		if err != nil || res.Message.Text() != want {
			t.Errorf("variant %d: %v %v", v, res, err)
		}
	}
	if _, err := m.Model(t.Context(), "scripted:@local/none", ""); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	if _, err := m.Model(t.Context(), "scripted:@local/bad", ""); err == nil || !strings.Contains(err.Error(), "no variants") {
		t.Error(err)
	}
	if err := m.Check(t.Context(), "gpt", ""); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	set.Endpoint = model.Endpoint{BaseURL: "http://127.0.0.1:9", Key: "k"}
	a, err := m.Model(t.Context(), "gpt", "")
	b, _ := m.Model(t.Context(), "other", "")
	c, _ := m.Model(t.Context(), "other", "http://127.0.0.1:8")
	if err != nil || a != b || a == c {
		t.Error("one endpoint, one client", err)
	}
}

func TestWhichNameWins(t *testing.T) {
	set := Settings{}
	m := New(mem.New(mem.Options{}), func(context.Context) (Settings, error) { return set, nil }, model.Patience{}, slog.New(slog.DiscardHandler))
	name := func(chosen map[string]string, own string) string {
		n, err := m.Name(t.Context(), Judge, chosen, own)
		if err != nil && !errors.Is(err, ErrNone) {
			t.Error(err)
		}
		return n
	}
	if n := name(nil, ""); n != "" {
		t.Error(n)
	}
	set.Default = "default"
	if n := name(nil, ""); n != "default" {
		t.Error(n)
	}
	if n := name(nil, "task"); n != "task" {
		t.Error(n)
	}
	set.Roles = map[string]string{Judge: "role"}
	if n := name(nil, "task"); n != "role" {
		t.Error(n)
	}
	if n := name(map[string]string{Judge: "run", Agent: "x"}, "task"); n != "run" {
		t.Error(n)
	}
}

func TestNoEndpoint(t *testing.T) {
	for name, want := range map[string]string{"m": "the model m needs an endpoint: ", "": "the agent's model needs an endpoint: "} {
		if err := NoEndpoint(name); !errors.Is(err, ErrNone) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
