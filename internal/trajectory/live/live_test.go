package live_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
)

// TestRecord: what was recorded is there for others at once, without secrets, and a torn end is left out.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.jsonl")
	var r redact.Redactor
	r.Add("canary-secret-1")
	f, err := live.Open(live.Options{Path: path, Redact: &r})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, text := range []string{"hello", "the key is canary-secret-1."} {
		if err := f.Record(trajectory.Event{Kind: trajectory.Said, Source: trajectory.User, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString(`{"kind":"answ`); err != nil {
		t.Fatal(err)
	}
	got, err := live.Read(path)
	if err != nil || len(got) != 2 || strings.Contains(got[1].Text, "canary") || len(f.Events()) != 2 || f.Events()[1].Text != got[1].Text {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err := live.Read(path + "x"); got != nil || err != nil {
		t.Error(got, err)
	}
}
