package local_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// worlds are what is forked: so many files with so many bytes together.
var worlds = []struct {
	name  string
	files int
	each  int
}{{"1MB", 256, 4 << 10}, {"1GB", 64, 16 << 20}}

// BenchmarkFork measures a fork of a box that began with a world and has changed ten files since: the snapshot, and the new box until it
// answers. "first" is the one time that the world itself is copied.
func BenchmarkFork(b *testing.B) {
	for _, w := range worlds {
		b.Run(w.name, func(b *testing.B) { benchWorld(b, w.files, w.each, "snapshot-p50-ms", fork) })
	}
}

// BenchmarkReset measures a box thrown away and begun anew with its world.
func BenchmarkReset(b *testing.B) {
	for _, w := range worlds {
		b.Run(w.name, func(b *testing.B) { benchWorld(b, w.files, w.each, "destroy-p50-ms", reset) })
	}
}

type bench struct {
	*testing.B
	p     sandbox.Provider
	f     sandbox.Forker
	world sandbox.Snapshot
	id    string
	box   guest.Box
}

func (b *bench) sh(box guest.Box, script string) {
	b.Helper()
	if r, err := guest.Output(b.Context(), box, guest.Command{Argv: []string{"sh", "-c", script}}, guest.Limits{}); err != nil || !r.Exit.OK() {
		b.Fatalf("%s: %+v, %v: %s", script, r.Exit, err, r.Stderr.String())
	}
}

func (b *bench) start(from string) (string, guest.Box) {
	b.Helper()
	info, err := b.p.Create(b.Context(), sandbox.Spec{From: from, Tied: true, DiskMB: 2048})
	if err != nil {
		b.Fatal(err)
	}
	box, err := b.p.Connect(b.Context(), info.ID)
	if err != nil {
		b.Fatal(err)
	}
	return info.ID, box
}

func (b *bench) end(id string, box guest.Box) {
	box.Close()
	if err := b.p.Destroy(b.Context(), id); err != nil {
		b.Fatal(err)
	}
}

const change = "cd /world; for i in 0 1 2 3 4 5 6 7 8 9; do echo changed >f$i.new; done"

func benchWorld(b *testing.B, files, each int, part string, one func(*bench) (time.Duration, time.Duration)) {
	p := openAt(b, stateRoot(b))
	w := &bench{B: b, p: p, f: p}
	id, box := w.start("")
	w.sh(box, fmt.Sprintf("mkdir /world; i=0; while [ $i -lt %d ]; do head -c %d /dev/urandom >/world/f$i; i=$((i+1)); done", files, each))
	begin := time.Now()
	var err error
	if w.world, err = w.f.Snapshot(b.Context(), id, sandbox.SnapshotOptions{Passing: true}); err != nil {
		b.Fatal(err)
	}
	first := time.Since(begin)
	w.end(id, box)
	w.id, w.box = w.start(w.world.ID)
	w.sh(w.box, change)
	var all, parts []time.Duration
	for b.Loop() {
		whole, part := one(w)
		all, parts = append(all, whole), append(parts, part)
	}
	slices.Sort(all)
	slices.Sort(parts)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(first), "first-ms")
	b.ReportMetric(ms(all[len(all)/2]), "p50-ms")
	b.ReportMetric(ms(all[len(all)*99/100]), "p99-ms")
	b.ReportMetric(ms(parts[len(parts)/2]), part)
	w.end(w.id, w.box)
	if err := w.f.RemoveSnapshot(b.Context(), w.world.ID); err != nil {
		b.Fatal(err)
	}
}

func fork(b *bench) (time.Duration, time.Duration) {
	begin := time.Now()
	s, err := b.f.Snapshot(b.Context(), b.id, sandbox.SnapshotOptions{Passing: true})
	if err != nil {
		b.Fatal(err)
	}
	part := time.Since(begin)
	id, box := b.start(s.ID)
	whole := time.Since(begin)
	if err := b.f.RemoveSnapshot(b.Context(), s.ID); err != nil {
		b.Fatal(err)
	}
	b.end(id, box)
	return whole, part
}

func reset(b *bench) (time.Duration, time.Duration) {
	b.sh(b.box, change)
	begin := time.Now()
	b.end(b.id, b.box)
	part := time.Since(begin)
	b.id, b.box = b.start(b.world.ID)
	return time.Since(begin), part
}
