package local_test

import (
	"os"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	os.Exit(m.Run())
}

func TestThin(t *testing.T) {
	p, err := local.New(local.Options{StateRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 5 {
		begin := time.Now()
		info, err := p.Create(t.Context(), sandbox.Spec{Name: "thin", Tied: true})
		if err != nil {
			t.Fatal(err)
		}
		made := time.Since(begin)
		box, err := p.Connect(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		res, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "echo hi; id; hostname; ls -la / /proc/self/ns; cat /proc/mounts; mkdir /app; touch /usr/bin/x && echo OKUSR; cat /etc/hostname"}}, guest.Limits{})
		t.Log(made, time.Since(begin))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v\n%s\n%s", res.Exit, res.Stdout.String(), res.Stderr.String())
		t.Logf("%+v", info)
		box.Close()
		if err := p.Destroy(t.Context(), info.ID); err != nil {
			t.Fatal(err)
		}
	}
}
