package calllog_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, o calllog.Options) *calllog.Log {
	t.Helper()
	o.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC) }
	l, err := calllog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !strings.Contains(err.Error(), "already closed") {
			t.Error(err)
		}
	})
	return l
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "calls.jsonl")
	var secrets redact.Redactor
	secrets.Add("hunter22")
	l := open(t, calllog.Options{Path: path, Redact: &secrets, Clock: func() (string, bool) { return "2030-01-01T00:00:00Z", true }})
	id, err := l.Append(calllog.Event{Type: "tool_call", Members: []byte(`"tool_call":{"function_name":"f","arguments":{"p":"hunter22"}},"role":"bob"`)})
	if err != nil || id != "event_1" {
		t.Fatal(id, err)
	}
	if _, err := l.Append(calllog.Event{Type: "tool_call_result", Members: []byte(`"tool_call_event_id":"event_1"`), Name: "tool_call_result", Value: bytes.NewReader([]byte(`{"n":1.0}`)), After: []byte(`"changelog_id":null`)}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"event_type":"tool_call","tool_call":{"function_name":"f","arguments":{"p":"***"}},"role":"bob","event_id":"event_1","timestamp_utc":"2026-01-02T03:04:05.000006+00:00","virtual_time":"2030-01-01T00:00:00Z"}
{"event_type":"tool_call_result","tool_call_event_id":"event_1","tool_call_result":{"n":1.0},"changelog_id":null,"event_id":"event_2","timestamp_utc":"2026-01-02T03:04:05.000006+00:00","virtual_time":"2030-01-01T00:00:00Z"}
`
	if string(got) != want {
		t.Errorf("the log is\n%s", got)
	}
}

// TestGoesOn: ids go on behind what is there, and half a line that a killed process left is cut off.
func TestGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(path, []byte("{\"a\":1}\n{\"a\":2}\n{\"half"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, calllog.Options{Path: path})
	id, err := l.Append(calllog.Event{Type: "x"})
	if err != nil || id != "event_3" {
		t.Errorf("%s, %v", id, err)
	}
	got, _ := os.ReadFile(path)
	if lines := strings.Split(string(got), "\n"); len(lines) != 4 || !json.Valid([]byte(lines[2])) {
		t.Errorf("the log is %q", got)
	}
}

// TestLarge: a value of any size is one line, its secrets taken out across the parts that it is written in, while others write too.
func TestLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	var secrets redact.Redactor
	secrets.Add("s3cr3t-value")
	l := open(t, calllog.Options{Path: path, Redact: &secrets})
	big := `{"t":"` + strings.Repeat("abcdefs3cr3t-value", 500_000) + `"}`
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := l.Append(calllog.Event{Type: "big", Name: "v", Value: strings.NewReader(big)}); err != nil {
				t.Error(err)
			}
			if _, err := l.Append(calllog.Event{Type: "small"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, size, err := l.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || int64(len(got)) != size || strings.Contains(string(got), "s3cr3t") {
		t.Errorf("%d bytes of %d, %v; holds the secret: %v", len(got), size, err, strings.Contains(string(got), "s3cr3t"))
	}
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("no JSON: %.80s", line)
		}
	}
	if len(lines) != 8 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestNoLog(t *testing.T) {
	l := open(t, calllog.Options{})
	if id, err := l.Append(calllog.Event{Type: "x"}); id != "event_1" || err != nil {
		t.Error(id, err)
	}
	if r, size, err := l.Reader(); r != nil || size != 0 || err != nil {
		t.Error(r, size, err)
	}
}
