//go:build integration && linux

package session

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/computer/x11"
)

// standing is a desktop of which the X server runs.
func standing(t *testing.T) *desktop {
	t.Helper()
	for _, program := range []string{"Xvfb", "openbox"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatal(err)
			}
			t.Skip("needs " + program)
		}
	}
	home := t.TempDir()
	s := &desktop{
		config: Config{Width: 320, Height: 200, MaxWidth: 320, MaxHeight: 200, Home: home, Environ: os.Environ(), Output: t.Output(), Log: slog.New(slog.DiscardHandler)},
		auth:   filepath.Join(home, "authority"), ended: make(chan string), over: make(chan struct{}),
	}
	if err := s.authority(); err != nil {
		t.Fatal(err)
	}
	if err := s.startX(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.x.stop)
	return s
}

// TestAwaitManager: a window manager that takes its time is waited for, and one that never comes only as long as the caller wants.
func TestAwaitManager(t *testing.T) {
	s := standing(t)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := x11.AwaitManager(short, s.display, s.auth); err == nil {
		t.Error("nobody manages windows, and somebody answered")
	}
	s.config.Manager = []string{"sh", "-c", "sleep 0.5; exec openbox"}
	if err := s.startManager(); err != nil {
		t.Fatal(err)
	}
	defer s.manager.stop()
	began := time.Now()
	long, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := x11.AwaitManager(long, s.display, s.auth); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it answered after %s, before it was started", took)
	} else {
		t.Logf("it answered after %s", took)
	}
}

// TestManagerThatEnds: a window manager that ends isn't waited for, so that what else ends meanwhile is seen.
func TestManagerThatEnds(t *testing.T) {
	s := standing(t)
	s.config.Manager = []string{"sh", "-c", "sleep 0.3; kill -9 $$"}
	if err := s.startManager(); err != nil {
		t.Fatal(err)
	}
	defer s.manager.stop()
	began := time.Now()
	s.awaitManager(t.Context())
	if took := time.Since(began); took > managerTime/2 {
		t.Errorf("it was waited for for %s", took)
	}
}

// TestManagerEndsWithItsServer: a window manager that ends with its X server is started again with it, and that is no death of its own.
func TestManagerEndsWithItsServer(t *testing.T) {
	s := standing(t)
	s.config.Manager = []string{"openbox"}
	if err := s.startManager(); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.driver, err = s.spawn(program{argv: []string{"sleep", "600"}}); err != nil {
		t.Fatal(err)
	}
	defer s.driver.stop()
	s.awaitManager(t.Context())
	for i := range 3 {
		if err := s.x.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-s.x.done
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := s.hold(ctx); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		cancel()
		if isDone(s.x) || isDone(s.manager) {
			t.Fatalf("%d: not both stand", i)
		}
	}
	s.manager.stop()
	s.x.stop()
	if len(s.died["the X server"]) != 3 || len(s.died["the window manager"]) != 0 {
		t.Errorf("%v", s.died)
	}
}
