package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyUser(t *testing.T) {
	for ids, want := range map[string]bool{
		"         0       1001          1\n": true,
		"         0          0 4294967295\n": false, // the machine's root
		"         0          0          1\n": false, // root outside too
		"         0     100000      65536\n": false, // there are others
		"0 1001 1\n1 100000 65536\n":         false,
		"1000 1001 1\n":                      false, // not root
		"":                                   false,
	} {
		if got := onlyUser(ids); got != want {
			t.Errorf("%q: %v", ids, got)
		}
	}
}

// TestAgain: what died is started again, also when that fails at first, but not for ever.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &desktop{config: Config{Log: slog.New(slog.DiscardHandler)}}
		dead := &process{err: errors.New("killed")}
		started := 0
		flaky := func(context.Context) error {
			if started++; started < 4 {
				return errors.New("it ended at once")
			}
			return nil
		}
		if err := s.again(t.Context(), "it", dead, flaky); err != nil || started != 4 {
			t.Errorf("started %d times: %v", started, err)
		}
		started = 0
		if err := s.again(t.Context(), "it", dead, flaky); err == nil || err.Error() != "it ended 6 times in 1m0s: it ended at once" {
			t.Error(err)
		}
		time.Sleep(restartTime + time.Second)
		if err := s.again(t.Context(), "it", dead, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		if err := s.again(ended, "it", dead, func(ctx context.Context) error { cancel(); return ctx.Err() }); err != nil {
			t.Errorf("the end of a session counts as a failure: %v", err)
		}
	})
}

// TestInstallThatFails: an app is installed once in a home, and one whose program fails isn't installed (A7).
func TestInstallThatFails(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".agentenv/apps"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &desktop{config: Config{Home: home, Environ: os.Environ(), Output: t.Output()}, driver: &process{done: make(chan struct{})}}
	a := App{Name: "notes", Dir: t.TempDir(), Install: []string{"sh", "-c", `echo "$AGENTENV_APP" >> "$AGENTENV_HOME/ran"; test -e "$HOME/ready"`}}
	if err := s.install(t.Context(), a); err == nil || err.Error() != "exit status 1" {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(home, "ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.install(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(home, "ran")); err != nil || string(b) != "notes\nnotes\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestEnsure: a home that isn't there is made the user's; one that is stays whose it is, unless it is to be given; links aren't followed.
func TestEnsure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	dir := t.TempDir()
	id := identity{uid: 1234, gid: 1234}
	owner := func(path string) uint32 {
		st, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Uid
	}
	fresh, there, outside := filepath.Join(dir, "fresh"), filepath.Join(dir, "there"), filepath.Join(dir, "outside")
	file, link := filepath.Join(there, "sub", "file"), filepath.Join(there, "link")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, outside} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := ensure(fresh, id, false); err != nil || owner(fresh) != 1234 {
		t.Errorf("%v, of %d", err, owner(fresh))
	}
	if err := ensure(there, id, false); err != nil || owner(there) != 0 {
		t.Errorf("%v, of %d", err, owner(there))
	}
	if err := ensure(there, id, true); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]uint32{there: 1234, file: 1234, link: 1234, outside: 0} {
		if got := owner(path); got != want {
			t.Errorf("%s is of %d, want %d", path, got, want)
		}
	}
}
