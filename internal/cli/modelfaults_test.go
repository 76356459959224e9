package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
)

const modelKey = "sk-canary-0123456789"

// asking makes a home with a bundle of n tasks, whose models are asked for patience seconds: each asks the built-in agent, has its reply looked at, and graded by a judge.
func asking(t *testing.T, baseURL string, n, patience int) (home string) {
	t.Helper()
	home = newHome(t)
	write := func(name, text string) {
		path := filepath.Join(home, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".agentenv/config.toml", fmt.Sprintf("[model]\nbase_url = %q\napi_key = %q\ndefault = \"m\"\npatience_seconds = %d\n", baseURL, modelKey, patience))
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%q", fmt.Sprintf("t%d", i)))
		write(fmt.Sprintf("b/tasks/t%d.json", i), fmt.Sprintf(`[
 {"id": "agent", "type": "deploy_agent", "env_ids": []},
 {"id": "ask", "type": "prompt_agent", "prompt": "Question %d: say something.", "prompt_id": "p"},
 {"id": "text", "type": "agent_prompt_response_verifier", "prompt_id": "p", "criteria": [{"type": "response_contains", "needles": ["good"]}]},
 {"id": "judged", "type": "rubrics_verifier", "prompt_id": "p", "use_agent_judge": false, "criteria": [{"id": "g", "criterion": "is good"}]}]`, i))
	}
	write("b/evals/e.toml", "tasks = ["+strings.Join(names, ", ")+"]\n")
	return home
}

var question = regexp.MustCompile(`Question (\d+)`)

// answers is what a model without faults says: agents answer by their question's number, judges by what was answered.
func answers(q modeltest.Asked) modeltest.Answer {
	text := q.Flat()
	if strings.Contains(text, "is good") {
		score := "0"
		if strings.Contains(text, "a good answer") {
			score = "1"
		}
		return modeltest.Say(`{"results":[{"id":"c1","score":` + score + `,"justification":"it is what it is"}]}`)
	}
	if m := question.FindStringSubmatch(text); m != nil && (m[1] == "0" || m[1] == "2" || m[1] == "3") {
		return modeltest.Say("a good answer")
	}
	return modeltest.Say("a bad answer")
}

// judging tells whether a judge asks.
func judging(q modeltest.Asked) bool { return strings.Contains(q.Flat(), "is good") }

// ended is what --json says of a command's runs.
type ended struct {
	code   int
	stderr string
	all    string
	Runs   []struct {
		Label    string             `json:"label"`
		Trial    int                `json:"trial"`
		Status   string             `json:"status"`
		Started  bool               `json:"started"`
		Scores   map[string]float64 `json:"scores"`
		Failures []struct {
			Error string `json:"error"`
		} `json:"failures"`
	} `json:"runs"`
	N      int            `json:"n"`
	Held   int            `json:"held_back"`
	Halted string         `json:"halted"`
	Counts map[string]int `json:"-"`
	Group  string         `json:"group"`
}

// table is the outcome and the scores of each run.
func (e *ended) table() []string {
	var out []string
	for _, r := range e.Runs {
		out = append(out, fmt.Sprint(r.Label, " ", r.Trial, " ", r.Status, " ", r.Scores))
	}
	slices.Sort(out)
	return out
}

func (e *ended) why() string {
	for _, r := range e.Runs {
		if len(r.Failures) > 0 {
			return r.Failures[0].Error
		}
	}
	return ""
}

// ask runs a command with --json and reads its summary.
func ask(t *testing.T, home string, args ...string) ended {
	t.Helper()
	r := start(t, home, append(args, "--json")...)
	var e ended
	e.code = r.end(t, time.Minute)
	e.stderr, e.all = r.stderr.String(), strings.Join(r.out, "\n")
	for _, line := range r.out {
		if !strings.Contains(line, `"type":"summary"`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err, line)
		}
	}
	e.Counts = map[string]int{}
	for _, x := range e.Runs {
		e.Counts[x.Status]++
	}
	if e.N != len(e.Runs) || e.N == 0 {
		t.Errorf("%d runs of %d are told of:\n%s\n%s", len(e.Runs), e.N, e.all, e.stderr)
	}
	if strings.Contains(e.all+e.stderr, modelKey) {
		t.Error("the key is in what is said")
	}
	return e
}

// clean tells that no file below a home but its configuration holds the key.
func clean(t *testing.T, home string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(home, "state"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), modelKey) {
			t.Errorf("%s holds the key", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestModelFaults: what an endpoint does wrong, and what becomes of a run that meets it. A fault that passes changes nothing; one that stays is
// infra_failed, and never a score.
func TestModelFaults(t *testing.T) {
	with := func(f func(*modeltest.Answer)) modeltest.Answer {
		a := modeltest.Say("a good answer, half of which is never seen")
		f(&a)
		return a
	}
	for _, c := range []struct {
		name  string
		fault modeltest.Answer
		stays bool // it is met by every request, else by the first of the agent and the first of the judge
		want  string
		says  string
	}{
		{"a rate limit that passes", modeltest.Answer{Status: 429, Text: "slow down", RetryAfter: "0.05"}, false, "passed", ""},
		{"an error that passes", modeltest.Answer{Status: 503, Text: "oops"}, false, "passed", ""},
		{"a cut stream", with(func(a *modeltest.Answer) { a.CutAfter = 2 }), false, "passed", ""},
		{"a stream that ends early", with(func(a *modeltest.Answer) { a.EndAfter = 2 }), false, "passed", ""},
		{"an error within a stream", with(func(a *modeltest.Answer) { a.StreamFail = "overloaded_error" }), false, "passed", ""},
		{"a rate limit as 200", modeltest.Answer{Raw: true, Text: `{"error":{"message":"rate limit","code":429},"type":"error"}`}, false, "passed", ""},
		{"nothing as 200", modeltest.Answer{Response: model.Response{Stop: model.StopEnd, Message: model.Message{Role: model.Assistant}}}, false, "passed", ""},
		{"a page in place of an answer", modeltest.Answer{Raw: true, Media: "text/html", Text: "<h1>a good proxy</h1>"}, false, "passed", ""},
		{"rate limits for ever", modeltest.Answer{Status: 429, Text: "slow down"}, true, "infra_failed", "rate limited (HTTP 429): slow down (tried"},
		{"a rate limit until tomorrow", modeltest.Answer{Status: 429, Text: "tomorrow", RetryAfter: "86400"}, true, "infra_failed", "tomorrow"},
		{"errors for ever", modeltest.Answer{Status: 500, Text: "oops"}, true, "infra_failed", "overloaded (HTTP 500): oops (tried"},
		{"cut for ever", with(func(a *modeltest.Answer) { a.CutAfter = 1 }), true, "infra_failed", "cut"},
		{"a key that is refused", modeltest.Answer{Status: 401, Text: "no such key"}, true, "infra_failed", "set a valid model.api_key"},
		{"a key that is spent", modeltest.Answer{Status: 402, Text: "pay"}, true, "infra_failed", "raise its limit or pay its bill"},
		{"a quota that is spent", modeltest.Answer{Status: 429, Text: "You exceeded your current quota"}, true, "infra_failed", "raise its limit or pay its bill"},
		{"no such model", modeltest.Answer{Status: 404, Text: "no such model"}, true, "infra_failed", "no such model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			met := map[bool]bool{}
			s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
				mu.Lock()
				defer mu.Unlock()
				if c.stays || !met[judging(q)] {
					met[judging(q)] = true
					return c.fault
				}
				return answers(q)
			})
			patience := 20
			if c.stays {
				patience = 1
			}
			home := asking(t, s.URL, 1, patience)
			e := ask(t, home, "run", "./b")
			if e.Counts[c.want] != 1 || !strings.Contains(e.why(), c.says) || (e.code == 0) != (c.want == "passed") {
				t.Errorf("exit %d, %v, %s\n%s", e.code, e.table(), e.why(), e.stderr)
			}
			if c.want == "infra_failed" && len(e.Runs[0].Scores) > 0 {
				t.Errorf("scores %v", e.Runs[0].Scores)
			}
			clean(t, home)
		})
	}
}

// TestNoEndpoint: nobody listens, and a name does not resolve. That is told while it is still tried.
func TestNoEndpoint(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, url := range []string{"http://" + addr, "http://models.invalid"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			home := asking(t, url, 2, 3)
			e := ask(t, home, "run", "./b", "--k", "3", "--concurrency", "2")
			if e.code != 1 || e.Counts["infra_failed"] == 0 || e.Counts["infra_failed"]+e.Held != 6 || !strings.Contains(e.Halted, "unreachable") ||
				!strings.Contains(e.Halted, "see that model.base_url is right") {
				t.Errorf("exit %d, %v, held %d: %s\n%s", e.code, e.Counts, e.Held, e.Halted, e.stderr)
			}
			if n := strings.Count(e.stderr, "Warning: the model endpoint "+url+" can't be reached: "); n != 1 || !strings.Contains(e.stderr, "; it is tried again for up to 3s; see that model.base_url is right") {
				t.Errorf("told %d times:\n%s", n, e.stderr)
			}
		})
	}
}

// TestMalformedCallsAndVerdicts: a model's nonsense is the model's: a call that can't be read is told to it, a verdict that can't be read leaves no score.
func TestMalformedCallsAndVerdicts(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		switch text := q.Flat(); {
		case judging(q) && question.FindString(text) == "Question 1":
			return modeltest.Say("I'd give it 0.5, or 7/10. " + modelKey)
		case judging(q), strings.Contains(text, "nosuch"):
			return answers(q)
		default:
			a := modeltest.Call("c1", "nosuch", "")
			a.Message.Calls[0].Malformed = `{"path": `
			a.Message.Parts = []model.Part{{Text: "calling nosuch"}}
			return a
		}
	})
	home := asking(t, s.URL, 2, 20)
	e := ask(t, home, "run", "./b")
	if got, want := strings.Join(e.table(), "; "), "tasks/t0.json 1 passed map[judged:1 text:1]; tasks/t1.json 1 unscored map[text:0]"; got != want || e.code != 0 {
		t.Errorf("exit %d\n%s\nwant\n%s\n%s", e.code, got, want, e.stderr)
	}
	clean(t, home)
}

// TestFaultsBesideScores: faults that pass move no score, and those that stay take away nothing but the runs that meet them.
func TestFaultsBesideScores(t *testing.T) {
	t.Parallel()
	quiet := modeltest.New(t, answers)
	want := ask(t, asking(t, quiet.URL, 6, 20), "run", "./b", "--k", "2")
	if want.Counts["passed"] != 6 || want.Counts["scored"] != 6 {
		t.Fatalf("%v\n%s", want.table(), want.stderr)
	}
	var mu sync.Mutex
	met := map[string]int{}
	broken := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		n := question.FindString(q.Flat())
		if n == "Question 4" || n == "Question 5" && judging(q) {
			return modeltest.Answer{Status: 500, Text: "for ever"}
		}
		id := fmt.Sprint(n, judging(q))
		met[id]++
		if i := met[id]; i%2 == 1 {
			a := modeltest.Say("a good answer, half of which is never seen")
			switch i / 2 % 3 {
			case 0:
				return modeltest.Answer{Status: 429, Text: "slow down", RetryAfter: "0.02"}
			case 1:
				a.CutAfter = 2
			default:
				a.EndAfter = 1
			}
			return a
		}
		return answers(q)
	})
	home := asking(t, broken.URL, 6, 2)
	got := ask(t, home, "run", "./b", "--k", "2")
	if got.Counts["infra_failed"] != 4 || got.Held != 0 {
		t.Errorf("%v, held %d\n%s", got.Counts, got.Held, got.stderr)
	}
	for i, line := range got.table() {
		if !strings.Contains(line, "infra_failed") && line != want.table()[i] {
			t.Errorf("%s with faults, %s without", line, want.table()[i])
		}
	}
}

// TestSpentKey: a key that is spent in the middle of an eval costs the runs under way and no others, the eval run says so and goes on with another key, and
// then its table is that of one that was never held up.
func TestSpentKey(t *testing.T) {
	t.Parallel()
	quiet := modeltest.New(t, answers)
	whole := asking(t, quiet.URL, 6, 20)
	want := evalTable(t, whole, evalRun(t, whole, "--k", "3").Group)

	var mu sync.Mutex
	refused := 0
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if q.N < 15 || strings.Contains(q.Header.Get("Authorization"), "sk-another") {
			return answers(q)
		}
		refused++
		return modeltest.Answer{Status: 429, Text: "You exceeded your current quota, please check your plan and billing details."}
	})
	home := asking(t, s.URL, 6, 20)
	id := evalRun(t, home, "--k", "3", "--concurrency", "2")
	if id.code != 1 || id.Counts["infra_failed"] == 0 || id.Counts["infra_failed"] > 2 || id.Held < 6 || id.N != 18 || refused > 2 {
		t.Errorf("exit %d, %v of %d, held back %d, refused %d times\n%s", id.code, id.Counts, id.N, id.Held, refused, id.stderr)
	}
	if !strings.Contains(id.Halted, "raise its limit or pay its bill, or set another model.api_key") {
		t.Error(id.Halted)
	}
	config := filepath.Join(home, ".agentenv", "config.toml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(read(t, config), modelKey, "sk-another-key")), 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(s.Asked())
	again := ask(t, home, "eval", "run", "--resume", id.Group)
	if got := evalTable(t, home, id.Group); got != want {
		t.Errorf("gone on with:\n%s\nnever held up:\n%s\n%s", got, want, again.stderr)
	}
	if n := len(s.Asked()) - before; n != 2*(id.Held+id.Counts["infra_failed"]) {
		t.Errorf("asked %d times for %d runs that were missing", n, id.Held+id.Counts["infra_failed"])
	}
}

// TestKilledEval: an eval whose process is killed, twice, and gone on with has the table of one that was left in peace, and asks for no result twice
// but those that were under way.
func TestKilledEval(t *testing.T) {
	t.Parallel()
	quiet := modeltest.New(t, answers)
	whole := asking(t, quiet.URL, 6, 20)
	want := evalTable(t, whole, evalRun(t, whole, "--k", "4").Group)

	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		a := answers(q)
		a.Delay = 40 * time.Millisecond
		return a
	})
	home := asking(t, s.URL, 6, 20)
	say(t, home, "bundle", "register", "./b")
	args := []string{"eval", "run", evalID(t, home), "--k", "4", "--concurrency", "3"}
	var group string
	for _, after := range []int{12, 12} {
		before := len(s.Asked())
		r := start(t, home, args...)
		for len(s.Asked()) < before+after {
			time.Sleep(2 * time.Millisecond)
		}
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.end(t, 10*time.Second)
		group = newestEvalRun(t, home)
		args = []string{"eval", "run", "--resume", group}
	}
	if got := evalTable(t, home, group); got == want {
		t.Error("nothing was missing")
	}
	e := ask(t, home, args...)
	if got := evalTable(t, home, group); got != want || e.code != 0 {
		t.Errorf("exit %d; killed and gone on with:\n%s\nleft in peace:\n%s\n%s", e.code, got, want, e.stderr)
	}
	if n := len(s.Asked()); n < 48 || n > 48+2*2*3 {
		t.Errorf("asked %d times for 24 runs of two requests", n)
	}
}

// evalID is the id of the eval that a home's bundle has.
func evalID(t *testing.T, home string) string {
	t.Helper()
	m := regexp.MustCompile(`"id":"([^"]*)"`).FindStringSubmatch(say(t, home, "eval", "list", "--json"))
	if m == nil {
		t.Fatal("no eval is stored")
	}
	return m[1]
}

func newestEvalRun(t *testing.T, home string) string {
	t.Helper()
	var l struct {
		Runs []struct {
			ID string `json:"eval_run_id"`
		} `json:"eval_runs"`
	}
	if err := json.Unmarshal([]byte(say(t, home, "eval", "list", "--runs", "--json")), &l); err != nil {
		t.Fatal(err)
	}
	return l.Runs[0].ID
}

// evalRun stores the bundle's eval, which asks for nothing, and runs it.
func evalRun(t *testing.T, home string, args ...string) ended {
	t.Helper()
	say(t, home, "bundle", "register", "./b")
	return ask(t, home, append([]string{"eval", "run", evalID(t, home)}, args...)...)
}

// say is what a command prints.
func say(t *testing.T, home string, args ...string) string {
	t.Helper()
	r := start(t, home, args...)
	if code := r.end(t, time.Minute); code != 0 {
		t.Fatalf("%v ends with %d: %s", args, code, r.stderr.String())
	}
	return strings.Join(r.out, "\n")
}

// evalTable is everything that an eval run's report says but times and ids.
func evalTable(t *testing.T, home, id string) string {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal([]byte(say(t, home, "eval", "report", id, "--json")), &r); err != nil {
		t.Fatal(err)
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				strip(x)
			}
		case map[string]any:
			for _, k := range []string{"eval_run_id", "created", "run_seconds", "wall_seconds", "mean_seconds", "run_id", "inputs", "seconds", "started", "ended", "eval_id"} {
				delete(v, k)
			}
			for _, x := range v {
				strip(x)
			}
		}
	}
	strip(r)
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
