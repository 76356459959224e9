package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
)

// TestKilledRunKeepsItsCost: a run that is killed in the middle of its agent's work has on record every answer that the endpoint gave, with its tokens and its
// price, and a trajectory that ends with the last of them.
func TestKilledRunKeepsItsCost(t *testing.T) {
	for _, answered := range []int{0, 1, 3, 7} {
		t.Run(fmt.Sprint(answered), func(t *testing.T) {
			t.Parallel()
			reached := make(chan struct{})
			var once sync.Once
			s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
				if q.N == answered {
					once.Do(func() { close(reached) })
					return modeltest.Answer{Hang: true}
				}
				a := modeltest.Call(fmt.Sprint("c", q.N), "nosuch", fmt.Sprintf(`{"n":%d}`, q.N))
				a.Usage = model.Usage{Input: int64(100 + q.N), Output: int64(10 + q.N), USD: 0.25, Priced: true}
				return a
			})
			home := asking(t, s.URL, 1, 20)
			r := start(t, home, "run", "./b", "--quiet")
			select {
			case <-reached:
			case <-time.After(30 * time.Second):
				t.Error("the endpoint was not asked so often")
			}
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			r.end(t, 10*time.Second)
			in, out := 0, 0
			for i := range answered {
				in, out = in+100+i, out+10+i
			}
			var list struct {
				Runs []struct {
					ID string `json:"run_id"`
				} `json:"runs"`
			}
			if err := json.Unmarshal([]byte(say(t, home, "runs", "list", "--json")), &list); err != nil || len(list.Runs) != 1 {
				t.Fatal(list, err)
			}
			id := list.Runs[0].ID
			var shown struct {
				Run struct {
					Cost struct {
						USD    float64 `json:"usd"`
						Input  int     `json:"input_tokens"`
						Output int     `json:"output_tokens"`
					} `json:"cost"`
				} `json:"run"`
			}
			if err := json.Unmarshal([]byte(say(t, home, "runs", "show", id, "--json")), &shown); err != nil {
				t.Fatal(err)
			}
			if c := shown.Run.Cost; c.Input != in || c.Output != out || c.USD != 0.25*float64(answered) {
				t.Errorf("%+v on record; the endpoint gave %d and %d tokens for %g", c, in, out, 0.25*float64(answered))
			}
			text := say(t, home, "runs", "show", id, "--trajectory")
			if n := strings.Count(text, "nosuch {"); n != answered || answered > 0 && !strings.Contains(text, fmt.Sprintf(`nosuch {"n":%d}`, answered-1)) || !strings.Contains(text, "Question 0") {
				t.Errorf("%d calls of %d are on record:\n%s", n, answered, text)
			}
			clean(t, home)
		})
	}
}
