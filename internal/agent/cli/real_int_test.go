//go:build integration || soak

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/exampleserver"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/treestore"
)

// Where packages come from in these tests; each can be another by its variable.
var registries = map[string]string{NPM: "https://registry.npmjs.org", PyPI: "https://pypi.org/simple"}

// theKey is the key of the model's endpoint, which no sandbox may see.
const theKey = "sk-real-key-of-the-endpoint-5f2c"

// toolsVar names folders of tool chains that these tests show to boxes, as sandbox.local.tools does, separated by colons.
const toolsVar = "AGENTENV_TEST_TOOLS"

func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("REQUIRE") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// world is what a real command is run in.
type world struct {
	*testing.T
	boxes  *local.Provider
	tools  []string
	places []string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t}
	for dir := range strings.SplitSeq(os.Getenv(toolsVar), ":") {
		if dir != "" {
			w.tools, w.places = append(w.tools, dir), append(w.places, dir+"/bin")
		}
	}
	var err error
	if w.boxes, err = local.New(local.Options{StateRoot: t.TempDir(), Tools: w.tools}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.boxes.Close() })
	return w
}

func (w *world) box(s sandbox.Spec) guest.Box {
	w.Helper()
	s.Tied = true
	info, err := w.boxes.Create(w.Context(), s)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = w.boxes.Destroy(context.WithoutCancel(w.Context()), info.ID) })
	box, err := w.boxes.Connect(w.Context(), info.ID)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = box.Close() })
	return box
}

// installed is the tree of a profile's package, kept between runs of these tests.
func (w *world) installed(p *Profile) *treestore.Held {
	w.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		w.Fatal(err)
	}
	registry := registries[p.Package.Registry]
	key, err := p.Package.Key(registry, strings.Join(w.tools, ":"))
	if err != nil {
		missing(w.T, "%s: %v", p.Name, err)
	}
	start := time.Now()
	trees := treestore.Open(filepath.Join(cache, "agentenv-test", "cli"), treestore.Options{})
	fresh := !trees.Has(key)
	h, err := trees.Get(w.Context(), key, func(ctx context.Context, dir string) error { return w.install(ctx, p, registry, dir) })
	if err != nil {
		missing(w.T, "%s: %v", p.Name, err)
	}
	w.Cleanup(func() { _ = h.Release() })
	if fresh {
		w.Logf("%s was installed in %.1f s", p.Name, time.Since(start).Seconds())
	}
	return h
}

func (w *world) install(ctx context.Context, p *Profile, registry, dir string) error {
	u, err := url.Parse(registry)
	if err != nil {
		return err
	}
	egress := sandbox.Egress{Ports: []uint16{443}, Hosts: []string{u.Hostname()}}
	if p.Package.Registry == PyPI {
		egress.Hosts = append(egress.Hosts, "files.pythonhosted.org")
	}
	for _, host := range egress.Hosts {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return err
		}
		for _, ip := range ips {
			egress.CIDRs = append(egress.CIDRs, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
		}
	}
	box := w.box(sandbox.Spec{Network: sandbox.NetAllow, Egress: egress})
	argv, err := p.Install(registry, w.places...)
	if err != nil {
		return err
	}
	res, err := guest.Output(ctx, box, guest.Command{Argv: argv, Timeout: 10 * time.Minute}, guest.Limits{Stdout: 4 << 10, Stderr: 4 << 10})
	if err != nil {
		return err
	}
	if !res.Exit.OK() {
		return fmt.Errorf("status %d: %s%s", res.Exit.Status(), res.Stdout, res.Stderr)
	}
	stream, err := box.Tree(ctx, Folder)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := bufio.NewReader(stream)
	_, err = archive.Unpack(ctx, in, root, archive.Options{
		Limits: archive.Limits{Bytes: 4 << 30, Entries: 1_000_000, Ratio: 1 << 30}, KeepClashes: true, Strict: true,
	})
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return err
}

// real is a real command in its box, with its doors.
type real struct {
	*Agent
	box   guest.Box
	mu    sync.Mutex
	asked []modelproxy.Exchange
	calls string
}

// agent makes the agent of a profile: the gateway with an echo server and the model's endpoint are behind its doors.
func (w *world) agent(p *Profile, play func(modeltest.Asked) modeltest.Answer) *real {
	w.Helper()
	h := w.installed(p)
	r := &real{box: w.box(sandbox.Spec{Shown: []sandbox.Shown{{From: h.Path(), At: Folder, Hold: h.File()}}})}
	w.door(r)
	endpoint := modeltest.New(w, play)
	proxy, err := modelproxy.New(modelproxy.Options{
		Upstream: &modelproxy.Upstream{BaseURL: endpoint.URL, Key: theKey}, Name: "the-runs-model",
		Record: func(x modelproxy.Exchange) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked = append(r.asked, x)
			return nil
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(proxy.Close)
	w.listen(r.box, "127.0.0.1:18766", proxy)
	program, err := FindRuntime(w.Context(), r.box, p.Runtime, w.places...)
	var none *MissingError
	if errors.As(err, &none) {
		missing(w.T, "%s: %v", p.Name, err)
	} else if err != nil {
		w.Fatal(err)
	}
	r.Agent = New(p, Options{Box: r.box, Command: p.Package.Path(), Runtime: program, Version: p.Package.Version})
	if err := r.AddServer(Server{Name: "echo", URL: "http://127.0.0.1:18765/mcp"}); err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) listen(box guest.Box, addr string, h http.Handler) {
	w.Helper()
	l, err := box.Listen(w.Context(), "tcp", addr)
	if err != nil {
		w.Fatal(err)
	}
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	w.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}

// door serves the echo server behind a gateway to the agent.
func (w *world) door(r *real) {
	w.Helper()
	server := exampleserver.New("echo-mcp", func(string) (string, bool) { return "", false })
	handler, err := server.Handler()
	if err != nil {
		w.Fatal(err)
	}
	host := httptest.NewServer(handler)
	w.Cleanup(host.Close)
	r.calls = filepath.Join(w.TempDir(), "calls.jsonl")
	g, err := front.New(w.Context(), front.Options{Name: "echo", Children: []front.Child{{Name: "echo", URL: host.URL}}, Log: slog.New(slog.DiscardHandler), CallLog: r.calls})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = g.Close() })
	if err := g.Ready(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.listen(r.box, "127.0.0.1:18765", g.Door(access.Principal{Role: "solver", Deployment: "d-1"}))
}

// echoes is a model that calls the echo tool once a turn and then says what came back.
func echoes(a modeltest.Asked) modeltest.Answer {
	tool := ""
	if a.Question != nil {
		for _, t := range a.Question.Request.Tools {
			if t.Name == "echo" || strings.HasSuffix(t.Name, "_echo") {
				tool = t.Name
			}
		}
	}
	said, _ := json.Marshal(a.Body["messages"])
	for _, k := range []string{"input", "contents"} {
		if a.Body[k] != nil {
			said, _ = json.Marshal(a.Body[k])
		}
	}
	// Each turn says a word of its own, which the answer of the tool then holds.
	for _, word := range []string{"second-word", "first-word"} {
		n := strings.Count(string(said), word)
		switch {
		case n == 0:
		case tool == "":
			return modeltest.Say("there is no tool")
		case strings.Contains(string(said), "tool-"+word):
			return modeltest.Say("it came back: tool-" + word)
		default:
			return modeltest.Call("call_"+word, tool, `{"text":"tool-`+word+`"}`)
		}
	}
	return modeltest.Say("nothing to do")
}

func (r *real) exchanges() []modelproxy.Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// TestRealCommands: each command, from its registry, in a box with no network, makes its call through the gateway and answers, twice.
func TestRealCommands(t *testing.T) {
	w := newWorld(t)
	for _, name := range commands() {
		p, ok := ProfileOf(name)
		if !ok {
			t.Fatal(name)
		}
		t.Run(name, func(t *testing.T) {
			w := &world{t, w.boxes, w.tools, w.places}
			w.turns(p)
		})
	}
}

func (w *world) turns(p *Profile) {
	r := w.agent(p, echoes)
	if err := r.AddSkill(Skill{Name: "counting", Files: []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte("---\nname: counting\ndescription: Use the zebra-method to count.\n---\nCount.\n"))}}); err != nil {
		w.Fatal(err)
	}
	for name, text := range map[string]string{ // unsound ones, which must not keep the command from its turn
		"Odd_Name": "---\nname: other\ndescription: Use the heron-method to name.\nmetadata: text\n---\nName.\n", "broken": "---\nname: [\n---\nBroken.\n", "plain": "No front matter.\n",
	} {
		if err := r.AddSkill(Skill{Name: name, Files: []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte(text))}}); err != nil {
			w.Fatal(err)
		}
	}
	start := time.Now()
	first, err := r.Prompt(w.Context(), Prompt{Conversation: "c", Text: "Echo first-word", Settings: Settings{SystemPrompt: "You are the walrus-agent.", Timeout: 3 * time.Minute}})
	w.check(r, first, err, "first-word")
	middle := time.Now()
	second, err := r.Prompt(w.Context(), Prompt{Conversation: "c", Text: "Echo second-word", Settings: Settings{Timeout: 3 * time.Minute}})
	w.check(r, second, err, "second-word")
	w.Logf("%s %s: turns of %.1f s and %.1f s, %d requests", p.Name, p.Package.Version, middle.Sub(start).Seconds(), time.Since(middle).Seconds(), len(r.exchanges()))
	if first.Session != second.Session {
		w.Errorf("the second turn is session %q, the first %q", second.Session, first.Session)
	}
	all, _ := json.Marshal(r.exchanges())
	for _, want := range []string{"walrus-agent", "zebra-method"} {
		if !strings.Contains(string(all), want) {
			w.Errorf("the model was not told of %s", want)
		}
	}
	for _, x := range r.exchanges() {
		if x.Protocol == p.Protocol && x.Model != "the-runs-model" {
			w.Errorf("%s asked for %q", x.Path, x.Model)
		}
	}
	w.keyless(r)
}

func (w *world) check(r *real, got Reply, err error, word string) {
	w.Helper()
	if err != nil || got.Fault != nil || got.Text != "it came back: tool-"+word || got.ToolCalls != 1 {
		var paths []string
		for _, x := range r.exchanges() {
			paths = append(paths, fmt.Sprintf("%s %d %s", x.Path, x.Status, x.Error))
		}
		w.Fatalf("%v %+v %q, %d calls\n%s\n%s", err, got.Fault, got.Text, got.ToolCalls, got.Native, strings.Join(paths, "\n"))
	}
	if got.Usage == nil || got.Usage.Input <= 0 || got.Usage.Output <= 0 {
		w.Errorf("used %+v", got.Usage)
	}
	doc := trajectory.Fold(trajectory.AgentInfo{Name: r.Profile().Name, Version: "1"}, got.Session, got.Events)
	if err := doc.Check(); err != nil {
		w.Error(err)
	}
	if total := *doc.FinalMetrics.PromptTokens; got.Usage != nil && total != got.Usage.Input {
		w.Errorf("the trajectory counts %d tokens, the reply %d", total, got.Usage.Input)
	}
	results := 0
	for _, s := range doc.Steps {
		if s.Observation != nil {
			for _, o := range s.Observation.Results {
				if o.CallID != "" && strings.Contains(o.Content.Text, "tool-"+word) {
					results++
				}
			}
		}
	}
	if results != 1 {
		w.Errorf("%d results in %+v", results, got.Events)
	}
	log, err := os.ReadFile(r.calls)
	if err != nil || strings.Count(string(log), "tool-"+word) == 0 {
		w.Errorf("the gateway knows of no call with %s: %v", word, err)
	}
	if !json.Valid(got.Native) || !strings.HasPrefix(string(got.Native), "[{") {
		w.Errorf("native %.100s", got.Native)
	}
}

// keyless looks for the key in the environment of every process, and in every file that the agent left.
func (w *world) keyless(r *real) {
	w.Helper()
	res, err := guest.Output(w.Context(), r.box, guest.Command{Argv: []string{"sh", "-c", `grep -rlaF -e "$1" /var/lib/agentenv /root /home /tmp /run /proc/[0-9]*/environ 2>/dev/null; true`, "look", theKey[:20]}}, guest.Limits{})
	if err != nil || len(res.Stdout.Head) != 0 {
		w.Errorf("the key is in the sandbox: %s %v", res.Stdout, err)
	}
}
