package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// worldProvider is a provider whose trees other tests share.
func worldProvider(t *testing.T) *Provider {
	t.Helper()
	root := t.TempDir()
	if err := sandboxtest.ShareTrees(root); err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{StateRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// run makes a box of p whose layout is changed, and answers the output of a script in it.
func run(t *testing.T, p *Provider, change func(*layout), script string) (string, *guest.Booted) {
	t.Helper()
	slot, err := p.newSlot("")
	if err != nil {
		t.Fatal(err)
	}
	defer slot.close()
	spec := sandbox.Spec{Tied: true}
	if err := check(&spec); err != nil {
		t.Fatal(err)
	}
	m := &making{p: p, spec: &spec, slot: slot}
	defer m.rides.close()
	if err := m.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	change(m.layout)
	looked := make(chan error, 1)
	looked <- nil
	booted, err := m.start(t.Context(), looked)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.child.birth.Send(guest.FrameEnd, nil); err != nil {
		t.Fatal(err)
	}
	p.keep(slot.id, m.child, true)
	box, err := p.Connect(t.Context(), slot.id)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", script}}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout.String() + r.Stderr.String(), booted
}

// readable lets other users pass into a test's folder.
func readable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Homes below a folder that boxes see appear empty, and what is beside them doesn't.
func TestHiddenHomes(t *testing.T) {
	dir := t.TempDir()
	readable(t, dir)
	for _, name := range []string{"users/ann/secret", "users/bob", "app/tool"} {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	passwd := fmt.Sprintf("ann:x:1::x:%s/users/ann:/bin/sh\nann2:x:1::x:%[1]s/users/ann/:/bin/sh\ngone:x:2::x:%[1]s/gone:/bin/sh\nshown:x:3::x:%[1]s/app:\nroot:x:0:0:root:/root:/bin/sh\nbad\n", dir)
	hide := homesBelow(dir, []byte(passwd), []string{dir + "/app/tool"})
	if !slices.Equal(hide, []string{"users/ann"}) {
		t.Fatalf("hidden: %q", hide)
	}
	got, _ := run(t, worldProvider(t), func(l *layout) {
		l.overlays = append(l.overlays, source{target: "/data", paths: []string{dir}, hide: hide})
	}, "cd /data; ls users/ann; cat users/bob app/tool; echo mine > users/ann/new && cat users/ann/new")
	if got != "users/bobapp/toolmine\n" {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "users/ann/new")); err == nil {
		t.Error("a write came out")
	}
}

// Where the file systems can't map ids, root's boxes still have ids of their own and folders to write to.
func TestWithoutIDMaps(t *testing.T) {
	p := worldProvider(t)
	if !p.host.wide {
		t.Skip("only root has several ids to map")
	}
	p.host.noIDMap = true
	got, booted := run(t, p, func(*layout) {}, `id -u; cat /proc/self/uid_map | tr -s ' '; echo x > /usr/local/bin/x && mkdir /usr/lib/x && rm /usr/bin/true && ls /usr/bin/true 2>&1; stat -c %U /usr/bin/env /etc/passwd; cat /etc/shadow`)
	want := fmt.Sprintf("0\n 0 %d 65536\nls: cannot access '/usr/bin/true': No such file or directory\nnobody\nroot\ncat: /etc/shadow: No such file or directory\n", idFirst)
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, tried := range booted.Tried {
		if !tried.OK {
			t.Errorf("%+v", tried)
		}
	}
}

// Other file systems mounted below /usr make it read-only for those who can't take them off, and the box says so.
func TestMountsBelowUsr(t *testing.T) {
	name := os.Getenv("AGENTENV_TEST_MOUNTED")
	if name == "" {
		t.Skip("run by TestMountsBelowUsrAsAUser")
	}
	got, booted := run(t, worldProvider(t), func(*layout) {}, "cat /usr/games/mark; touch /usr/x 2>&1; touch /etc/x && echo etc")
	if !strings.HasPrefix(got, "mark\n") || !strings.Contains(got, "Read-only file system") || !strings.HasSuffix(got, "etc\n") {
		t.Errorf("%q", got)
	}
	if len(booted.Notes) != 1 || !strings.Contains(booted.Notes[0], "/usr: read-only") {
		t.Errorf("notes: %q", booted.Notes)
	}
	for _, tried := range booted.Tried {
		if !tried.OK {
			t.Errorf("%+v", tried)
		}
	}
}
