package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/task"
)

// rooms is a Room for so many steps, whoever runs them.
type rooms struct {
	mu            sync.Mutex
	has, in, most int
	entered       int
}

func (r *rooms) Enter(first bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in >= r.has && !first {
		return "it is full"
	}
	r.in++
	r.entered++
	r.most = max(r.most, r.in)
	return ""
}

func (r *rooms) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in--
}

func (r *rig) runIn(ctx context.Context, room Room) (Result, error) {
	runner := &Runner{Executors: r.set, World: r.world, Room: room, Log: slog.New(slog.DiscardHandler)}
	return runner.Run(ctx, Request{Run: "@local/b/t-12345678", Task: &task.Task{ID: "@local/b/t", Steps: r.steps}, Owner: r.owner})
}

func (r *rig) notes() int {
	n := 0
	for _, e := range r.owner.events {
		if e.Kind == runlog.Note {
			n++
		}
	}
	return n
}

func TestStepsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, room := newRig(), &rooms{has: 2}
		for i := range 7 {
			r.add(fmt.Sprint("s", i), "", sleeps(time.Second))
		}
		res, err := r.runIn(t.Context(), room)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", res.Status, runlog.Unscored)
		want(t, "seconds", res.Seconds, 4)
		want(t, "at once, in all, and still in", []int{room.most, room.entered, room.in}, []int{2, 7, 0})
		want(t, "it is told once", r.notes(), 1)
	})
}

// Room that others have is looked for again; a run with nothing under way waits for nobody.
func TestRoomOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, room := newRig(), &rooms{has: 2, in: 2}
		r.add("a", "", sleeps(10*time.Second))
		r.add("b", "", sleeps(time.Second))
		time.AfterFunc(3*time.Second, func() { room.Leave(); room.Leave() })
		res, err := r.runIn(t.Context(), room)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "seconds", res.Seconds, 10)
		want(t, "b began when there was room, or within a quarter of a second", r.began("b") <= 3*time.Second+roomAgain, true)
		want(t, "and not before", r.began("b") >= 3*time.Second, true)
		want(t, "still in", room.in, 0)
		want(t, "it is told once", r.notes(), 1)
	})
}

// began is when a step started, counted from the run's start.
func (r *rig) began(step string) time.Duration {
	var start time.Time
	for _, e := range r.owner.events {
		switch {
		case e.Kind == runlog.RunStarted:
			start = e.At
		case e.Kind == runlog.StepStarted && e.Step == step:
			return e.At.Sub(start)
		}
	}
	return -1
}

func TestRoomIsGivenBack(t *testing.T) {
	for name, f := range map[string]func(r *rig, cancel func()){
		"cancelled": func(_ *rig, cancel func()) { time.AfterFunc(time.Second, cancel) },
		"a record that can't be written": func(r *rig, _ func()) {
			r.owner.refuse = func(e runlog.Event) error {
				if e.Step == "s3" {
					return errors.New("no space left on device")
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, room := newRig(), &rooms{has: 3}
				for i := range 6 {
					r.add(fmt.Sprint("s", i), "", sleeps(10*time.Second))
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f(r, cancel)
				_, _ = r.runIn(ctx, room)
				want(t, "still in", room.in, 0)
				want(t, "some had entered", room.entered >= 3, true)
			})
		})
	}
}
