package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// Bounds of a changelog, and how often it is fetched while the agent works.
const (
	maxIncrements = 10_000
	maxIncrement  = 1 << 30 // bytes
	maxChangelog  = 10 << 30
	fetchEvery    = 5 * time.Second
	fetchLimit    = 2 * time.Minute // of the last fetch of a prompt
	enableLimit   = 2 * time.Minute
)

// incrementName is what an increment is called: the position of its tool call, from 0, in six digits, and an extension.
var incrementName = lazyregexp.New(`^([0-9]{6})(\.[A-Za-z0-9_-]+)*$`)

// Changelog is what an agent has changed, an increment for a tool call, as far as it was fetched. The agent's form of an increment is its own.
type Changelog struct {
	ID    string   // of the universe of files in which it is kept
	Roots []string // folders that the agent follows

	agent *Agent
	stage *stage
	dir   string // of increments that were fetched; it goes with the agent

	mu   sync.Mutex // held during a fetch
	size int64
	have []string // names, in order
	kept int      // of have, in the store
}

// changelogFolder is where increments are staged.
const changelogFolder = "changelog"

// EnableChangelog has the agent record what it changes from now on; it is kept as the universe of files id by Keep. ErrNotServed when it can't.
func (a *Agent) EnableChangelog(ctx context.Context, id string) (*Changelog, error) {
	r, err := a.changes("enable-changelog")
	if err != nil {
		return nil, err
	}
	c := &Changelog{ID: id, agent: a}
	if c.stage, err = r.stage(); err != nil {
		return nil, err
	}
	life := grantTime
	if left := time.Until(a.Expires); left > life {
		life = left
	}
	at := c.stage.path
	limited, cancel := context.WithTimeoutCause(ctx, enableLimit, fmt.Errorf("it did not begin to record its changes within %s", enableLimit))
	defer cancel()
	var out struct {
		Roots []string `json:"roots"`
	}
	err = r.client.Operation(limited, &r.card, wire.URNSnapshot, "enable-changelog", map[string]any{"write_namespace": wire.WriteNamespace{
		RootPath: changelogFolder, ExpiresAt: time.Now().Add(life).UTC(), MaxObjects: maxIncrements, MaxObjectBytes: maxIncrement, MaxTotalBytes: maxChangelog,
		Write: wire.PostPolicy{
			URL: "https://staging.invalid" + at, Fields: map[string]string{}, PathField: "key", FileField: "file", Headers: map[string]string{stagedHeader: at},
		},
	}}, &out, true)
	if err != nil {
		return nil, r.fault(ctx, caused(limited, err))
	}
	folder := ""
	if a.all.o.Records != "" {
		folder = RecordsOf(a.all.o.Records, a.Run)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, step.Infra(&step.Error{Type: "RecordError", Err: err})
		}
	}
	if c.dir, err = os.MkdirTemp(folder, "changelog-"); err != nil {
		return nil, step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	r.ending = append(r.ending, func() { _ = os.RemoveAll(c.dir) }) // what stays goes with the run's records
	c.Roots = out.Roots
	a.changelog.Store(c)
	return c, nil
}

// Changelog is what the agent has changed since EnableChangelog; nil before.
func (a *Agent) Changelog() *Changelog { return a.changelog.Load() }

// changes is the agent as one that serves an operation of changelogs.
func (a *Agent) changes(operation string) (*a2aRunner, error) {
	r, ok := a.Runner.(*a2aRunner)
	if ok {
		_, ok = r.card.AgentOperation(wire.URNSnapshot, operation)
	}
	if !ok {
		return nil, fmt.Errorf("%s of %s %w", operation, wire.URNSnapshot, ErrNotServed)
	}
	return r, nil
}

// Follow fetches increments while the agent works, until the function that it answers is called: what the agent has room for is bounded.
func (c *Changelog) Follow(ctx context.Context) (stop func()) {
	if c == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(fetchEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = c.fetch(ctx) // Keep tells what is still wrong then
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Kept is what of a changelog is in the store.
type Kept struct {
	envstore.Pin
	Increments int
}

// Keep fetches what the agent has recorded and stores all increments so far as the next version of the universe, where there are new ones. The error
// tells why increments are missing; what was fetched is stored nevertheless.
func (c *Changelog) Keep(ctx context.Context, s store.Store) (*Kept, error) {
	limited, cancel := context.WithTimeoutCause(ctx, fetchLimit, fmt.Errorf("the agent's changes were not fetched within %s", fetchLimit))
	ferr := c.fetch(limited)
	if ferr != nil {
		ferr = fmt.Errorf("changes of agent %s: %w", diag.Repr(c.agent.Name), caused(limited, ferr))
	}
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.have) == c.kept {
		return nil, ferr
	}
	pin, err := envstore.PutFiles(ctx, s, c.ID, func(_ context.Context, put func(envstore.Piece) error) error {
		for _, name := range c.have {
			if err := c.put(name, put); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(ferr, step.Infra(&step.Error{Type: "StoreError", Err: err}))
	}
	c.kept = len(c.have)
	return &Kept{pin, len(c.have)}, ferr
}

func (c *Changelog) put(name string, put func(envstore.Piece) error) error {
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	return put(envstore.Piece{File: name, Reader: f})
}

// fetch moves what is staged into the folder. An increment that comes again takes the place of the one before.
func (c *Changelog) fetch(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.stage.list(ctx, changelogFolder)
	if err != nil {
		return err
	}
	for _, o := range found {
		if !incrementName().MatchString(o.Path) {
			return fmt.Errorf("%s is no name of an increment, which is six digits and an extension", diag.Repr(o.Path))
		}
		if err := c.take(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *Changelog) take(ctx context.Context, o stagedObject) error {
	at := filepath.Join(c.dir, o.Path)
	known := slices.Contains(c.have, o.Path)
	if !known && len(c.have) >= maxIncrements || o.Size > maxIncrement || c.size+o.Size > maxChangelog {
		return fmt.Errorf("%s is more than is kept of a changelog: %d increments of 1 GiB, 10 GiB in all", diag.Repr(o.Path), maxIncrements)
	}
	var n, before int64
	if fi, err := os.Stat(at); err == nil {
		before = fi.Size()
	}
	tag, err := c.stage.fetch(ctx, path.Join(changelogFolder, o.Path), o.Size, func(r io.Reader) (err error) {
		f, err := os.OpenFile(at+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return step.Infra(err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		n, err = io.Copy(f, r)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(at+".part", at); err != nil { // within the folder of one process: it need not outlive a crash
		return step.Infra(err)
	}
	if c.size += n - before; !known {
		i, _ := slices.BinarySearch(c.have, o.Path)
		c.have = slices.Insert(c.have, i, o.Path)
	} else {
		c.kept = -1 // the stored version has another one of this name
	}
	return c.stage.remove(ctx, path.Join(changelogFolder, o.Path), tag)
}

// ApplyChangelog gives a new agent the increments of a stored changelog, those before a position where before is not negative, and answers how many there were
// and the conversation in which it goes on, "" for none; target is the one to go on in, "" leaves that to the agent. version 0 is the latest.
func (a *Agent) ApplyChangelog(ctx context.Context, s envstore.Reader, id string, version int, before int64, target string) (k Kept, conversation string, err error) {
	r, err := a.changes("apply-changelog")
	if err != nil {
		return Kept{}, "", err
	}
	d, err := s.Get(ctx, store.Artifact, id, version)
	if err != nil {
		return Kept{}, "", fmt.Errorf("changelog %s: %w", diag.Repr(id), err)
	}
	k.Pin = envstore.Pin{ID: d.ID, Version: d.Version, Type: d.Type}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return k, "", fmt.Errorf("changelog %s version %d: %w", diag.Repr(id), d.Version, err)
	}
	increments, err := incrementsOf(files, before)
	if err != nil {
		return k, "", fmt.Errorf("%s version %d is no changelog of an agent: %w", diag.Repr(id), d.Version, err)
	}
	k.Increments = len(increments)
	conversation, err = r.apply(ctx, s, increments, target)
	return k, conversation, err
}

// appliedIncrement is a stored increment and its position.
type appliedIncrement struct {
	artifact.Bytes
	sequence int64
}

// incrementsOf are the increments of a universe before a position, in order.
func incrementsOf(files []artifact.Bytes, before int64) ([]appliedIncrement, error) {
	var out []appliedIncrement
	for _, f := range files {
		m := incrementName().FindStringSubmatch(f.Path)
		if m == nil {
			return nil, fmt.Errorf("it has a file %s", diag.Repr(f.Path))
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return nil, err
		}
		if before < 0 || n < before {
			out = append(out, appliedIncrement{f, n})
		}
	}
	slices.SortFunc(out, func(a, b appliedIncrement) int { return int(a.sequence - b.sequence) })
	for i := 1; i < len(out); i++ {
		if out[i].sequence == out[i-1].sequence {
			return nil, fmt.Errorf("%s and %s are of one tool call", diag.Repr(out[i-1].Path), diag.Repr(out[i].Path))
		}
	}
	return out, nil
}

func (r *a2aRunner) apply(ctx context.Context, s envstore.Reader, increments []appliedIncrement, target string) (string, error) {
	st, err := r.stage()
	if err != nil {
		return "", err
	}
	defer st.clear(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, stateTime, fmt.Errorf("it did not apply the changes within %s", stateTime))
	defer cancel()
	list := []any{}
	for _, x := range increments {
		f, size, err := s.Open(ctx, x.Digest)
		if err != nil {
			return "", step.Infra(err)
		}
		err = st.put(ctx, x.Path, f, size)
		f.Close()
		if err != nil {
			return "", r.fault(ctx, err)
		}
		list = append(list, map[string]any{"sequence": x.sequence, "object": st.read(x.Path, size)})
	}
	in := map[string]any{"increments": list, "resume_conversation": true}
	if target != "" {
		in["target_context_id"] = target
	}
	var out struct {
		Count   *int   `json:"count"`
		Context string `json:"context_id"`
	}
	if err := r.client.Operation(ctx, &r.card, wire.URNSnapshot, "apply-changelog", in, &out, true); err != nil {
		return "", r.fault(ctx, err)
	}
	if out.Count == nil || *out.Count != len(increments) {
		return "", fmt.Errorf("the agent doesn't say that it has applied all of the %d increments", len(increments))
	}
	return out.Context, nil
}
