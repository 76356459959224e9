package fleet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/fleet"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/keeper"
)

// role is the variable that tells the test binary which agent to play.
const role = "FLEET_TEST_ROLE"

func TestMain(m *testing.M) {
	pid1.Dispatch()
	if as := os.Getenv(role); as != "" {
		play(as)
	}
	goleak.VerifyTestMain(m)
}

func play(as string) {
	switch as {
	case "ends":
		fmt.Fprintln(os.Stderr, "no \x1b[1mmodel\nis set")
		os.Exit(3)
	case "babbles":
		fmt.Println("hello")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		select {}
	case "lies":
		fmt.Println(`{"a2a_url": "http://127.0.0.1:9/c/x"}`)
		select {}
	case "floods": // without an end of its first line, and goes on
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<16)); err != nil {
				os.Exit(1)
			}
		}
	case "hangs": // it tells that it is there
		if err := os.WriteFile("up", nil, 0o600); err != nil {
			os.Exit(1)
		}
		select {}
	}
	l, err := net.FileListener(os.NewFile(fleet.ListenerFD, "listener"))
	if err != nil {
		os.Exit(1)
	}
	if as == "lingers" {
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		go func() {
			<-term
			if os.WriteFile("ending", nil, 0o600) == nil {
				time.Sleep(200 * time.Millisecond)
			}
			os.Exit(0)
		}()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /c/x/.well-known/agent.json", func(w http.ResponseWriter, _ *http.Request) {
		if as == "broken" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"name": "a", "description": "d", "url": "/", "version": "1", "protocolVersion": "0.3.0", "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "skills": []}`)
	})
	fmt.Printf(`{"a2a_url": "http://%s/c/x", "tools": ["look"]}`+"\n", l.Addr())
	_ = http.Serve(l, mux)
	os.Exit(1)
}

func open(t *testing.T, as string) *fleet.Fleet {
	t.Helper()
	k := keeper.New(nil)
	t.Cleanup(k.Close)
	f := fleet.New(fleet.Options{Keeper: k, Command: func(ctx context.Context) (*exec.Cmd, error) {
		if as == "none" {
			return nil, errors.New("there is no program")
		}
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), role+"="+as)
		return cmd, nil
	}})
	t.Cleanup(func() {
		if err := f.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return f
}

func listen(t *testing.T, f *fleet.Fleet) *net.TCPListener {
	t.Helper()
	l, err := f.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refused tells that nobody listens at an address.
func refused(t *testing.T, at string) bool {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func TestServed(t *testing.T) {
	t.Parallel()
	f, place := open(t, "serves"), t.TempDir()
	l := listen(t, f)
	at := l.Addr().String()
	if _, err := f.Listen(t.Context(), l.Addr().(*net.TCPAddr).Port); !errors.Is(err, fleet.ErrTaken) {
		t.Errorf("a port that is taken: %v", err)
	}
	a, err := f.Start(t.Context(), place, l)
	if err != nil || a.URL != "http://"+at+"/c/x" || len(a.Tools) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if s := f.Look(place); !s.Running || s.URL != a.URL || s.Port == 0 || s.Fault != "" {
		t.Errorf("it is %+v", s)
	}
	if _, err := f.Start(t.Context(), place, listen(t, f)); !errors.Is(err, fleet.ErrRunning) {
		t.Errorf("started twice: %v", err)
	}
	f.Stop(place)
	f.Stop(place)
	if s := f.Look(place); s.Running || s.Fault != "" || !refused(t, at) {
		t.Errorf("after it was stopped it is %+v", s)
	}
	l = listen(t, f)
	at = l.Addr().String()
	if _, err := f.Start(t.Context(), place, l); err != nil {
		t.Error(err)
	}
	if err := f.Close(t.Context()); err != nil || !refused(t, at) {
		t.Errorf("closed: %v", err)
	}
	l, err = f.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Start(t.Context(), place, l); !errors.Is(err, fleet.ErrClosed) || !refused(t, l.Addr().String()) {
		t.Errorf("after it was closed: %v", err)
	}
}

// TestNotServed: an agent that can't be served says why, leaves nothing, and its place is free.
func TestNotServed(t *testing.T) {
	t.Parallel()
	for as, want := range map[string]string{
		"ends":    `it ended with exit code 3; it said: no \x1b[1mmodel | is set`,
		"babbles": "it doesn't say where it is",
		"broken":  "HTTP 500",
		"lies":    "it says that it is at 'http://127.0.0.1:9/c/x', and it was to be at 127.0.0.1:",
		"floods":  "it doesn't say where it is",
		"none":    "there is no program",
	} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			f, place := open(t, as), t.TempDir()
			for range 2 {
				l := listen(t, f)
				_, err := f.Start(t.Context(), place, l)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("it says %v, want %q", err, want)
				}
				if s := f.Look(place); s.Running || !strings.Contains(s.Fault, want) || !refused(t, l.Addr().String()) {
					t.Errorf("it is %+v", s)
				}
			}
		})
	}
}

// TestAgain: an agent is started once the one before, which is being ended, is over.
func TestAgain(t *testing.T) {
	t.Parallel()
	f, place := open(t, "lingers"), t.TempDir()
	if _, err := f.Start(t.Context(), place, listen(t, f)); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.Stop(place)
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(place, "ending")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody ends it")
		}
	}
	if _, err := f.Start(t.Context(), place, listen(t, f)); err != nil {
		t.Error(err)
	}
	<-stopped
	if s := f.Look(place); !s.Running {
		t.Errorf("it is %+v", s)
	}
}

// TestStoppedAtOnce: an agent that is stopped before its program runs isn't waited for.
func TestStoppedAtOnce(t *testing.T) {
	t.Parallel()
	place, stopped := t.TempDir(), make(chan struct{})
	var f *fleet.Fleet
	f = fleet.New(fleet.Options{Command: func(ctx context.Context) (*exec.Cmd, error) {
		go func() {
			defer close(stopped)
			f.Stop(place)
		}()
		time.Sleep(20 * time.Millisecond) // later would be stopped all the same
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), role+"=hangs")
		return cmd, nil
	}})
	late := time.AfterFunc(time.Minute, func() { t.Error("it was waited for") })
	defer late.Stop()
	if _, err := f.Start(t.Context(), place, listen(t, f)); err == nil || !strings.Contains(err.Error(), "was stopped before it was served") {
		t.Errorf("it says %v", err)
	}
	<-stopped
	if s := f.Look(place); s.Running || s.Fault != "" {
		t.Errorf("it is %+v", s)
	}
}

// TestGivenUp: an agent that doesn't come up is ended when whoever starts it gives up, or somebody stops it, or the fleet closes.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"cancel", "stop", "close"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			f, place := open(t, "hangs"), t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l, failed := listen(t, f), make(chan error, 1)
			go func() {
				_, err := f.Start(ctx, place, l)
				failed <- err
			}()
			for _, err := os.Stat(filepath.Join(place, "up")); err != nil; _, err = os.Stat(filepath.Join(place, "up")) {
				select {
				case err := <-failed:
					t.Fatal(err)
				case <-time.After(2 * time.Millisecond):
				}
			}
			switch by {
			case "cancel":
				cancel()
			case "stop":
				f.Stop(place)
			default:
				if err := f.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := <-failed; err == nil || by == "cancel" && !errors.Is(err, context.Canceled) {
				t.Errorf("it says %v", err)
			}
			if s := f.Look(place); s.Running || !refused(t, l.Addr().String()) {
				t.Errorf("it is %+v", s)
			}
		})
	}
}
