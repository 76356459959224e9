package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// leaseLife is how long an instance whose plugin can't close it is tried again.
const leaseLife = 7 * 24 * time.Hour

// leases are records of running instances, so that those of a process that was killed can be closed by another: a file each, and a lock beside it that
// its process holds.
type leases struct{ dir string }

func (p *Plugins) leases() leases { return leases{p.setup.Leases} }

// lease is the record of one instance.
type lease struct {
	path string
	lock *atomicfile.Lock
}

// leaseRecord is what closing an instance takes.
type leaseRecord struct {
	Type    string          `json:"type"`
	Run     string          `json:"run"`
	Step    string          `json:"step"`
	State   json.RawMessage `json:"state"`
	Created time.Time       `json:"created"`
}

// take records an instance. Without a folder nothing is recorded.
func (l leases) take(i *Instance) (*lease, error) {
	if l.dir == "" {
		return nil, nil
	}
	if err := atomicfile.MkdirAll(l.dir); err != nil {
		return nil, err
	}
	out := &lease{path: filepath.Join(l.dir, strings.ToLower(rand.Text()[:16])+".json")}
	var err error
	if out.lock, err = atomicfile.TryLock(out.lockPath()); err != nil {
		return nil, err
	}
	b, err := json.Marshal(leaseRecord{i.by.entry.Name, i.run, i.step, i.state, time.Now().UTC()})
	if err == nil {
		err = atomicfile.WriteBytes(out.path, 0o600, append(b, '\n'))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("note the environment, so that it can be closed later: %w", err), out.lock.Remove())
	}
	return out, nil
}

func (l *lease) lockPath() string { return strings.TrimSuffix(l.path, ".json") + ".lock" }

// end forgets the instance.
func (l *lease) end() error {
	err := os.Remove(l.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.lock.Remove())
}

// leave leaves the record for Sweep.
func (l *lease) leave() { _ = l.lock.Unlock() }

// Sweep closes environments whose process has ended without doing so, and answers what they were, in words. One whose plugin can't close it stays on record
// for a week.
func (p *Plugins) Sweep(ctx context.Context) (closed []string, err error) {
	left, lerr := filepath.Glob(filepath.Join(p.setup.Leases, "*.json"))
	if p.setup.Leases == "" || lerr != nil {
		return nil, lerr
	}
	var errs []error
	for _, path := range left {
		what, err := p.sweep(ctx, &lease{path: path})
		if what != "" {
			closed = append(closed, what)
		}
		errs = append(errs, err)
	}
	return closed, errors.Join(errs...)
}

func (p *Plugins) sweep(ctx context.Context, l *lease) (string, error) {
	var err error
	if l.lock, err = atomicfile.TryLock(l.lockPath()); errors.Is(err, atomicfile.ErrLocked) {
		return "", nil // its process lives
	} else if err != nil {
		return "", err
	}
	defer l.leave()
	b, err := os.ReadFile(l.path)
	if errors.Is(err, os.ErrNotExist) { // another one has closed it
		return "", l.lock.Remove()
	}
	var r leaseRecord
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s can't be read and is dropped: %w", l.path, err), l.end())
	}
	what := fmt.Sprintf("environment of type %s of %s", diag.Clean(r.Type), diag.Clean(r.Run))
	s, err := p.serving(ctx, plugin.GroupEnvs, r.Type)
	if err == nil {
		by := &Caller{Run: r.Run, Step: r.Step, Log: p.setup.Log}
		err = s.p.Call(ctx, plugin.MethodEnvClose, by, func(call string) any {
			return plugin.EnvParams{Call: call, Entry: s.entry, Run: r.Run, Step: r.Step, State: r.State}
		}, nil)
	}
	switch {
	case err == nil || rpc.CodeOf(err) == rpc.CodeNoMethod:
		return what, l.end()
	case time.Since(r.Created) > leaseLife:
		return "", errors.Join(fmt.Errorf("an %s was left standing and is given up: %w", what, err), l.end())
	default:
		return "", fmt.Errorf("an %s was left standing, and its plugin can't close it: %w", what, err)
	}
}
