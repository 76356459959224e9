// Package steptest is a bench for tests of executors: a store in memory, a provider of fake or real sandboxes, and steps given as JSON.
package steptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// Run is the id of the bench's run.
const Run = "@local/b/t-abcd1234"

// Rig is one bench.
type Rig struct {
	T       *testing.T
	Store   *mem.Store
	Fake    *fake.Provider // nil with a provider of the test's own
	Deploy  *deploy.Deployments
	Envs    *deploy.Envs
	Agents  *deploy.Agents
	Models  *source.Models // without an endpoint
	Trial   int
	Kinds   *catalog.Set[*step.Kind]
	History step.History

	// Settings are what the configuration says of models, Redact knows the secrets.
	Settings source.Settings
	Redact   redact.Redactor

	waits deploy.AgentWaits

	mu    sync.Mutex
	log   bytes.Buffer
	steps int
	spent step.Cost
}

// Spent is what steps have spent.
func (r *Rig) Spent() step.Cost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// Objects keeps pieces of the run's record in the bench's store.
func (r *Rig) Objects() Objects { return Objects{r} }

// Objects is what keeps them.
type Objects struct{ r *Rig }

// Keep stores a piece.
func (o Objects) Keep(ctx context.Context, _ string, b []byte) (runlog.Object, error) {
	s, err := o.r.Store.Begin(ctx)
	if err != nil {
		return runlog.Object{}, err
	}
	d, n, err := s.Put(bytes.NewReader(b))
	if err != nil {
		return runlog.Object{}, errors.Join(err, s.Discard())
	}
	s.Doc(store.Doc{Kind: store.Blob, ID: "run " + d.Hex(), Version: 1, Body: []byte("{}"), Objects: []ref.Digest{d}}, store.Absent)
	if err := s.Commit(ctx); err != nil && !errors.Is(err, store.ErrConflict) {
		return runlog.Object{}, err
	}
	return runlog.Object{Digest: string(d), Size: n}, nil
}

// Read is a piece's bytes.
func (r *Rig) Read(o step.Object) []byte {
	r.T.Helper()
	f, _, err := r.Store.Open(r.T.Context(), ref.Digest(o.Digest))
	if err != nil {
		r.T.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		r.T.Fatal(err)
	}
	return b
}

// New makes a bench with fake sandboxes under the name "local".
func New(t *testing.T, o fake.Options) *Rig {
	p := fake.New(o)
	r := With(t, p)
	r.Fake = p
	return r
}

// WithPatience is New with another patience towards models.
func WithPatience(t *testing.T, o fake.Options, patience model.Patience) *Rig {
	r := New(t, o)
	r.Models.Close()
	r.useModels(patience)
	return r
}

// Hurry waits less for agents that misbehave: Operation, End and Malformed are this long. No agent may be deployed yet.
func (r *Rig) Hurry(d time.Duration) {
	r.waits.Operation, r.waits.End, r.waits.Malformed = d, d, d
	r.useAgents()
}

func (r *Rig) useModels(patience model.Patience) {
	r.Models = source.New(r.Store, func(context.Context) (source.Settings, error) { return r.Settings, nil }, patience, slog.New(slog.DiscardHandler))
	r.waits = deploy.AgentWaits{Card: 20 * time.Second, Malformed: 200 * time.Millisecond, Operation: time.Second, End: 500 * time.Millisecond}
	r.useAgents()
}

func (r *Rig) useAgents() {
	r.Agents = deploy.NewAgents(r.Deploy, r.Envs, deploy.AgentOptions{
		Models: r.Models, Store: r.Store, Redact: &r.Redact, Release: "test", Records: r.T.TempDir(),
		Waits:   r.waits,
		Makers:  deploy.CLIMakers(r.Envs),
		Default: func(context.Context) (string, error) { return agent.Loop, nil },
	})
}

// With makes a bench whose sandboxes p makes, under the name "local". p is closed at the test's end.
func With(t *testing.T, p sandbox.Provider) *Rig {
	t.Helper()
	return WithAll(t, deploy.EnvOptions{}, Named{"local", p})
}

// Named is a provider of a bench.
type Named struct {
	Name     string
	Provider sandbox.Provider
}

// WithAll makes a bench whose sandboxes the providers make, tried in this order. They are closed at the test's end.
func WithAll(t *testing.T, o deploy.EnvOptions, ps ...Named) *Rig {
	t.Helper()
	r := &Rig{T: t, Store: mem.New(mem.Options{}), Kinds: step.Kinds()}
	set := catalog.New[sandbox.Provider]("sandbox type")
	var chain []string
	for _, p := range ps {
		set.Add(p.Name, catalog.Origin{Kind: catalog.Builtin}, p.Provider)
		chain = append(chain, p.Name)
	}
	r.Deploy = deploy.New(set, chain, slog.New(slog.DiscardHandler))
	if o.LookPath == nil { // desktops of tests are fakes
		o.LookPath = func(program string) (string, error) { return "/usr/bin/" + program, nil }
	}
	r.Envs = deploy.NewEnvs(r.Deploy, r.Store, o)
	r.useModels(model.Patience{})
	t.Cleanup(func() {
		r.Models.Close()
		if _, err := r.Deploy.Down(context.WithoutCancel(t.Context()), Run); err != nil {
			t.Error(err)
		}
		for _, p := range ps {
			if err := p.Provider.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// Doc is a step with its defaults filled in. It must hold the rules of its kind.
func (r *Rig) Doc(text string) doc.Node {
	r.T.Helper()
	tree, l := doc.ParseJSON("step.json", []byte(text))
	if l.HasErrors() {
		r.T.Fatal(l.Err())
	}
	n := tree.Root()
	k, ok := r.Kinds.Get(n.Get("type").Text())
	if !ok {
		r.T.Fatalf("no kind %s", n.Get("type").Text())
	}
	var found diag.List
	k.Value.Schema().Check(n, "", &found)
	if !found.HasErrors() {
		k.Value.Rules(n, &found)
	}
	if found.HasErrors() {
		r.T.Fatal(found.Err())
	}
	return k.Value.Schema().Fill(n)
}

// Do runs a step after all steps before it, and commits its diff when it succeeds.
func (r *Rig) Do(e step.Executor, text string) error {
	r.T.Helper()
	return r.DoCtx(r.T.Context(), e, text)
}

// DoCtx is Do with a context.
func (r *Rig) DoCtx(ctx context.Context, e step.Executor, text string) error {
	r.T.Helper()
	d := r.Doc(text)
	c := &step.Call{
		Run: Run, Step: d.Get("id").Text(), Attempt: 1, Trial: max(r.Trial, 1), Doc: d, State: r.View(), Out: &step.Diff{},
		Log: slog.New(slog.NewTextHandler(writer{r}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
		OnSpend: func(c step.Cost) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.spent.USD += c.USD
			r.spent.InputTokens += c.InputTokens
			r.spent.OutputTokens += c.OutputTokens
		},
	}
	if err := e.Run(ctx, c); err != nil {
		if step.IsKept(err) {
			r.History.Commit(r.steps, c.Out.Ops())
			r.steps++
		}
		return err
	}
	r.History.Commit(r.steps, c.Out.Ops())
	r.steps++
	return nil
}

// Must is Do for a step that has to succeed.
func (r *Rig) Must(e step.Executor, text string) {
	r.T.Helper()
	if err := r.Do(e, text); err != nil {
		r.T.Fatal(err)
	}
}

// Box makes a sandbox called box, as a deploy step would.
func (r *Rig) Box() sandbox.Info {
	r.T.Helper()
	info, err := r.Deploy.Create(r.T.Context(), deploy.Request{Run: Run, Step: "box", Attempt: 1, Name: "box"})
	if err != nil {
		r.T.Fatal(err)
	}
	return info
}

// View sees every step so far.
func (r *Rig) View() step.View { return r.History.View(func(int) bool { return true }) }

// Log is what executors have logged.
func (r *Rig) Log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

type writer struct{ r *Rig }

func (w writer) Write(p []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.log.Write(p)
}

// Verification is the score of a verifier.
func (r *Rig) Verification(id string) step.Verification {
	r.T.Helper()
	var v step.Verification
	if ok, err := r.View().Get(step.Child(step.VerificationsPath, id), &v); !ok || err != nil {
		r.T.Fatalf("no verification %s: %v", id, err)
	}
	return v
}

// File is a file of an artifact for a test.
type File struct {
	Path, Text string
	Mode       uint32 // 0: 0644
}

// PutFile stores a file artifact.
func (r *Rig) PutFile(id string, f File) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		return []artifact.Document{artifact.NewFile(artifact.Pin{ID: id, Version: 1}, r.bytes(s, f), "")}
	})
}

// PutUniverse stores a universe.
func (r *Rig) PutUniverse(id string, files ...File) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		var parts []artifact.Bytes
		for _, f := range files {
			parts = append(parts, r.bytes(s, f))
		}
		return artifact.NewFileUniverse(artifact.Pin{ID: id, Version: 1}, parts, func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: 1} })
	})
}

// PutOther stores an artifact of another type.
func (r *Rig) PutOther(id, typ string) {
	r.T.Helper()
	r.put(func(store.Stage) []artifact.Document {
		return []artifact.Document{{Pin: artifact.Pin{ID: id, Version: 1}, Type: typ}}
	})
}

func (r *Rig) bytes(s store.Stage, f File) artifact.Bytes {
	r.T.Helper()
	d, n, err := s.Put(strings.NewReader(f.Text))
	if err != nil {
		r.T.Fatal(err)
	}
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	return artifact.Bytes{Path: f.Path, Digest: d, Size: n, Mode: f.Mode}
}

func (r *Rig) put(docs func(store.Stage) []artifact.Document) {
	r.T.Helper()
	s, err := r.Store.Begin(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	for _, d := range docs(s) {
		s.Doc(store.Doc{Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(time.Now()), Objects: d.Objects}, store.Absent)
	}
	if err := s.Commit(r.T.Context()); err != nil {
		r.T.Fatal(err)
	}
}

// Types is a Plan's Type that knows what the store has.
func (r *Rig) Types(ctx context.Context, k ref.Kind, id string, version int) string {
	d, err := r.Store.Get(ctx, store.Kind(k), id, version)
	if err != nil {
		return ""
	}
	return d.Type
}

// Equal compares two values by what they print as JSON.
func (r *Rig) Equal(what string, got, want any) {
	r.T.Helper()
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if s, ok := want.(json.RawMessage); ok {
		w = s
	}
	if err1 != nil || err2 != nil || string(g) != string(w) {
		r.T.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// ErrorType is the type word of a step's failure, "infra: " before it when the machinery failed.
func ErrorType(err error) string {
	if err == nil {
		return "none"
	}
	typ := "untyped"
	if e, ok := errors.AsType[*step.Error](err); ok {
		typ = e.Type
	}
	if step.IsInfra(err) {
		typ = "infra: " + typ
	}
	return typ
}

// Texts are the problems of a preflight.
func Texts(l diag.List) string {
	var out []string
	for _, p := range l {
		p.Pos = diag.Pos{}
		out = append(out, fmt.Sprint(p))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
