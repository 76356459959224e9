package runs

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFollow: following ends with the run, or once nobody is left who could end it; while somebody drives it, it waits.
func TestFollow(t *testing.T) {
	for name, tt := range map[string]struct {
		drive func(t *testing.T, o runlog.Owner)
		n     int // events
		idle  bool
		after time.Duration
	}{
		"to its end": {func(t *testing.T, o runlog.Owner) {
			for range 10 {
				time.Sleep(10 * time.Second)
				if err := errors.Join(o.Renew(t.Context()), o.Append(t.Context(), runlog.Event{Kind: runlog.Note})); err != nil {
					t.Error(err)
				}
			}
			if err := o.Append(t.Context(), runlog.Event{Kind: runlog.RunEnded, Data: json.RawMessage(`{"status":"passed"}`)}); err != nil {
				t.Error(err)
			}
		}, 12, false, 100 * time.Second},
		"lost": {func(*testing.T, runlog.Owner) {}, 1, true, runlog.OwnerTTL + lookAgain},
		"lost, and resumed before anybody gave up": {func(t *testing.T, o runlog.Owner) {
			time.Sleep(runlog.OwnerTTL + lookAgain/2)
			if err := errors.Join(o.Renew(t.Context()), o.Append(t.Context(), runlog.Event{Kind: runlog.RunEnded, Data: json.RawMessage(`{"status":"failed"}`)})); err != nil {
				t.Error(err)
			}
		}, 2, false, runlog.OwnerTTL + lookAgain/2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := mem.New(mem.Options{Now: time.Now}).Runs()
				if err := log.Create(t.Context(), runlog.Meta{ID: "r", Task: "t"}); err != nil {
					t.Fatal(err)
				}
				o, err := log.Claim(t.Context(), "r")
				if err != nil {
					t.Fatal(err)
				}
				if err := o.Append(t.Context(), runlog.Event{Kind: runlog.RunStarted}); err != nil {
					t.Fatal(err)
				}
				go tt.drive(t, o)
				began, n, idle := time.Now(), 0, false
				for _, err := range follow(t.Context(), log, "r") {
					if err == nil {
						n++
					}
					idle = errors.Is(err, errIdle)
				}
				if took := time.Since(began); n != tt.n || idle != tt.idle || took < tt.after || took > tt.after+2*lookAgain {
					t.Errorf("%d events, idle %t, after %v; want %d, %t, %v", n, idle, took, tt.n, tt.idle, tt.after)
				}
			})
		})
	}
}
