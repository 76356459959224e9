package app

import (
	"log/slog"
	"testing"
)

// TestNoPluginIsLookedForWhereNoneIsUsed: what is built in is found without the plugin environment.
func TestNoPluginIsLookedForWhereNoneIsUsed(t *testing.T) {
	home := t.TempDir()
	a := New(Options{Env: func(k string) (string, bool) { return home, k == "HOME" }, Dir: home, Log: slog.New(slog.DiscardHandler)})
	defer func() {
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	o := a.bundleOptions(t.Context())
	if _, ok := o.Kinds.Get("verify_sandbox"); !ok {
		t.Error("verify_sandbox is unknown")
	}
	src, err := a.Bundle(t.Context(), "hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := a.plugins.peek(); ok {
		t.Error("the plugin environment was opened")
	}
	if _, ok := o.Kinds.Get("nobody_has_it"); ok {
		t.Error("it is known")
	}
	if _, ok := a.plugins.peek(); !ok {
		t.Error("the plugin environment wasn't asked")
	}
}
