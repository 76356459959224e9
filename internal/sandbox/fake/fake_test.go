package fake_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
)

func TestScriptedProgramSeesTheCommand(t *testing.T) {
	p := fake.New(fake.Options{Programs: map[string]fake.Program{
		"greet": func(_ context.Context, p *fake.Proc) guest.Exit {
			p.Machine.Files.WriteFile("/app/greeting", []byte("hello "+p.Env["WHO"]), 0o644)
			in, _ := io.ReadAll(p.Stdin)
			p.Stdout.Write(in)
			return fake.Code(3)
		},
	}})
	info, err := p.Create(t.Context(), sandbox.Spec{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	res, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"greet"}, Env: []string{"WHO=you"}}, guest.Limits{Stdin: []byte("in")})
	if err != nil || res.Exit.Code != 3 || res.Stdout.String() != "in" {
		t.Fatalf("got %+v, %v", res, err)
	}
	if b, err := box.ReadFile(t.Context(), "/app/greeting", 100); err != nil || string(b) != "hello you" {
		t.Errorf("greeting is %q, %v", b, err)
	}
	if got := p.Machine(info.ID).Commands(); len(got) != 1 || got[0].Argv[0] != "greet" {
		t.Errorf("commands: %v", got)
	}
}

func TestLeaseEndsTheBoxOnTheTestsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New(fake.Options{})
		info, err := p.Create(t.Context(), sandbox.Spec{Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		box, err := p.Connect(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if err := box.Renew(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if _, err := box.Stat(t.Context(), "/tmp"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := box.Stat(t.Context(), "/tmp"); !errors.Is(err, guest.ErrGone) {
			t.Errorf("after the lease: %v", err)
		}
		if swept, _ := p.Sweep(t.Context()); len(swept) != 1 || swept[0] != info.ID {
			t.Errorf("swept %v", swept)
		}
	})
}
