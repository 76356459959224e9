package deploy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: conversations go on side by side while the agent is configured alike, one conversation's prompts in order, and nobody waits for ever.
func TestTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		prompts string // conversation:settings of each, in the order in which they come; each takes a second
		want    string // who is under way in each second
	}{
		"other conversations":  {"a:x b:x c:x", "abc"},
		"one conversation":     {"a:x a:x b:x a:x", "ab a a"},
		"no conversation":      {":x :x :x", "..."},
		"configured otherwise": {"a:x b:y c:x d:x", "a b cd"},
		"alone":                {"a: b: c:x d:x", "a b cd"},
		"order stays":          {"a:x a:y b:x b:y", "a a b b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q turns
				var mu sync.Mutex
				var seconds []string
				start := time.Now()
				var wg sync.WaitGroup
				for p := range strings.FieldsSeq(tt.prompts) {
					conversation, with, _ := strings.Cut(p, ":")
					wg.Go(func() {
						_, leave, err := q.enter(t.Context(), conversation, with, nil)
						if err != nil {
							t.Error(err)
							return
						}
						defer leave()
						mu.Lock()
						for at := int(time.Since(start) / time.Second); len(seconds) <= at; {
							seconds = append(seconds, "")
						}
						if conversation == "" {
							conversation = "."
						}
						seconds[len(seconds)-1] += conversation
						mu.Unlock()
						time.Sleep(time.Second)
					})
					synctest.Wait() // they come in order
				}
				wg.Wait()
				for i, s := range seconds { // of one second in no order
					letters := []byte(s)
					slices.Sort(letters)
					seconds[i] = string(letters)
				}
				if got := strings.Join(seconds, " "); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if len(q.under)+len(q.waiting) != 0 {
					t.Error("somebody is left")
				}
			})
		})
	}
}

// TestTurnGivenUp: who gives up waiting lets those behind pass, and who fails to configure the agent leaves that to the next.
func TestTurnGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		_, leave, err := q.enter(t.Context(), "a", "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		given, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		go func() {
			if _, _, err := q.enter(given, "b", "y", nil); !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
		}()
		synctest.Wait()
		passed := make(chan *configured)
		go func() {
			g, leave, err := q.enter(t.Context(), "c", "x", nil)
			if err != nil {
				t.Error(err)
			}
			leave()
			passed <- g
		}()
		synctest.Wait()
		select {
		case <-passed:
			t.Error("it passed one that needs the agent configured otherwise")
		default:
		}
		cancel(why)
		g := <-passed
		n := 0
		set := func() ([]string, error) {
			if n++; n == 1 {
				return nil, errors.New("no")
			}
			return []string{"model"}, nil
		}
		if _, err := g.once(set); err == nil {
			t.Error("no error")
		}
		for range 3 {
			if left, err := g.once(set); err != nil || len(left) != 1 {
				t.Errorf("%v %v", left, err)
			}
		}
		if n != 2 {
			t.Errorf("configured %d times", n)
		}
		leave()
	})
}
