package calllog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/gateway/calllog"
)

// On a full disk an event is refused and nothing half written is left; once there is room, the log goes on.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("needs the right to mount a small file system:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "calls.jsonl")
	l := open(t, calllog.Options{Path: path})
	if _, err := l.Append(calllog.Event{Type: "tool_call", Members: []byte(`"n":1`)}); err != nil {
		t.Fatal(err)
	}
	big, err := json.Marshal(strings.Repeat("x", 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = l.Append(calllog.Event{Type: "tool_call_result", Name: "tool_call_result", Value: bytes.NewReader(big)})
		if !errors.Is(err, unix.ENOSPC) || l.Err() != nil {
			t.Errorf("a large event: %v, the log %v", err, l.Err())
		}
	}
	if id, err := l.Append(calllog.Event{Type: "tool_call", Members: []byte(`"n":2`)}); err != nil || id != "event_2" {
		t.Errorf("a small event after it: %s %v", id, err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	if id, err := l.Append(calllog.Event{Type: "tool_call_result", Name: "tool_call_result", Value: bytes.NewReader(big)}); err != nil || id != "event_3" {
		t.Errorf("with room again: %s %v", id, err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines", len(lines))
	}
	for i, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d: %.100s", i+1, line)
		}
	}
}
