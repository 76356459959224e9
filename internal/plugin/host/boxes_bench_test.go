package host_test

import (
	"bytes"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// BenchmarkSandbox is what the protocol costs: sandboxes in memory do nothing themselves.
func BenchmarkSandbox(b *testing.B) {
	p := openBoxes(b, "fakeboxes", fakeAbilities())
	info, err := p.Create(b.Context(), sandbox.Spec{Isolation: sandbox.LevelNone, Tied: true})
	if err != nil {
		b.Fatal(err)
	}
	box, err := p.Connect(b.Context(), info.ID)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			if _, err := guest.Output(b.Context(), box, guest.Command{Argv: []string{"true"}}, guest.Limits{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 16 MiB", func(b *testing.B) {
		big := bytes.Repeat([]byte("x"), 16<<20)
		if err := guest.Put(b.Context(), box, "/tmp", []guest.PutFile{guest.PutBytes("big", 0o644, big)}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(big)))
		for b.Loop() {
			if got, err := box.ReadFile(b.Context(), "/tmp/big", 32<<20); err != nil || len(got) != len(big) {
				b.Fatal(len(got), err)
			}
		}
	})
}
