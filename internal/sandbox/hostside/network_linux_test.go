package hostside_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

func TestReadLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "net")
	if got, err := hostside.ReadLog(name, "b1"); err != nil || got != nil {
		t.Errorf("without a log: %v, %v", got, err)
	}
	text := `{"proto":"tcp","addr":"10.0.0.1","port":80,"why":"private","count":1}` + "\n" + `{"proto":"dns","host":"a.te`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := hostside.ReadLog(name, "b1")
	if err != nil || len(got) != 1 || got[0].Addr != "10.0.0.1" || got[0].Port != 80 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := hostside.RemoveLog(name, "b1"); err != nil {
		t.Error(err)
	}
	if err := hostside.RemoveLog(name, "b1"); err != nil {
		t.Errorf("a log that is gone: %v", err)
	}
	if err := os.Symlink("/etc/passwd", name); err != nil {
		t.Fatal(err)
	}
	if _, err := hostside.ReadLog(name, "b1"); err == nil {
		t.Error("a link is read")
	}
}

// FuzzReadLog: whatever a log holds is read or left out.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte(`{"proto":"tcp","count":1}` + "\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "net")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := hostside.ReadLog(name, "b1")
		if err != nil || len(got) > len(strings.Split(string(b), "\n")) {
			t.Errorf("%d entries, %v", len(got), err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckNetwork(t *testing.T) {
	none := func() error { return errors.New("no TUN here") }
	s := sandbox.Spec{}
	if err := hostside.CheckNetwork(&s, none); err != nil || s.Network != sandbox.NetNone {
		t.Errorf("%v, %q", err, s.Network)
	}
	for _, c := range []struct {
		s    sandbox.Spec
		want string
		not  bool // it is no want of this machine
	}{
		{sandbox.Spec{Network: sandbox.NetAllowAll}, "the network policy allow_all: no TUN here", false},
		{sandbox.Spec{Network: "lan"}, "lan", true},
		{sandbox.Spec{Egress: sandbox.Egress{Hosts: []string{"a.test"}}}, "have no effect without a network", true},
		{sandbox.Spec{Publish: []sandbox.Port{{Box: 1, Host: 9}, {Box: 2, Host: 9}}}, "port 2 is published twice", true},
	} {
		err := hostside.CheckNetwork(&c.s, none)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, sandbox.ErrUnsupported) == c.not {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}

// A box without a network and ports needs nothing of the host, and what failed on the way is let go of.
func TestNetworkOfNothing(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var n hostside.Network
	defer n.Close()
	spec := &sandbox.Spec{Network: sandbox.NetNone}
	err = errors.Join(n.Publish(t.Context(), nil), n.Prepare(dir, "net", spec), n.Start(t.Context(), nil, nil, 0, nil), n.Serve(context.WithoutCancel(t.Context()), nil, nil))
	var b guest.Boot
	if files := n.Join(&b); err != nil || len(files) > 0 || b.Network != (guest.BootNetwork{}) {
		t.Errorf("%v %v %+v", err, files, b.Network)
	}
	if entries, err := dir.ReadDir(-1); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}
