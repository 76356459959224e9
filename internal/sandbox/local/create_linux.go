package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// errClosed: the provider was closed.
var errClosed = errors.New("the sandbox provider is closed")

// Create makes a box, or answers the living one of the same key.
func (p *Provider) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if s.From != "" {
		k, err := p.loadSnapshot(s.From)
		if err != nil {
			return sandbox.Info{}, err
		}
		if s.Image != "" && s.Image != k.Image {
			return sandbox.Info{}, fmt.Errorf("snapshot %s is of a sandbox with another image than %s: %w", k.ID, s.Image, sandbox.ErrUnsupported)
		}
		s.Image = k.Image
	}
	if err := check(&s); err != nil {
		return sandbox.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Info{}, err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return sandbox.Info{}, errClosed
	}
	p.making.Add(1)
	p.mu.Unlock()
	defer p.making.Done()

	suffix := ""
	if s.Key != "" {
		sum := sha256.Sum256([]byte(s.Key))
		suffix = "-" + hex.EncodeToString(sum[:6])
		unlock, err := p.lockKey(ctx, sum[:])
		if err != nil {
			return sandbox.Info{}, err
		}
		defer unlock()
		if info, ok := p.byKey(s.Key, suffix); ok {
			return info, nil
		}
	}
	img, release, err := p.image(ctx, &s) // its download is none of the start's time
	if err != nil {
		return sandbox.Info{}, fmt.Errorf("make a local sandbox: %w", err)
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the sandbox did not start within %s", startLimit))
	defer cancel()
	info, err := p.make(ctx, &s, img, suffix)
	if errors.Is(err, errNoIDMap) && img == nil { // known from now on: the next attempt does without
		info, err = p.make(ctx, &s, img, suffix)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // what failed for it is of no interest
	}
	if err != nil {
		return sandbox.Info{}, fmt.Errorf("make a local sandbox: %w", err)
	}
	return info, nil
}

// check refuses what local boxes can't be, and fills in the defaults.
func check(s *sandbox.Spec) error {
	var errs []error
	unsupported := func(what string) {
		errs = append(errs, fmt.Errorf("%s: %w", what, sandbox.ErrUnsupported))
	}
	if s.Image != "" {
		if _, err := image.Parse(s.Image); err != nil {
			errs = append(errs, err)
		}
	}
	if err := hostside.CheckNetwork(s, tunProblem); err != nil {
		errs = append(errs, err)
	}
	switch s.Isolation {
	case "":
		s.Isolation = sandbox.LevelNamespaces
	case sandbox.LevelNone, sandbox.LevelNamespaces:
	default:
		unsupported("the isolation " + s.Isolation)
	}
	if err := s.CheckLimits(); err != nil {
		errs = append(errs, err)
	}
	if s.Lease == 0 {
		s.Lease = sandbox.DefaultLease
	}
	if s.Pids == 0 {
		s.Pids = DefaultPids
	}
	if s.DiskMB == 0 {
		s.DiskMB = DefaultDiskMB
	}
	return errors.Join(append(errs, s.CheckGiven())...)
}

// lockKey takes the one lock that all processes share for a key: a byte of a file, so that keys leave nothing behind.
func (p *Provider) lockKey(ctx context.Context, sum []byte) (func(), error) {
	if err := os.MkdirAll(p.opts.StateRoot, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(p.opts.StateRoot, "boxes.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	var at int64
	for _, b := range sum[:7] {
		at = at<<8 | int64(b)
	}
	wait := time.Millisecond
	for {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the sandbox's key: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, 20*time.Millisecond)
		}
	}
}

// byKey finds the living box of a key. Its caller holds the key's lock.
func (p *Provider) byKey(key, suffix string) (sandbox.Info, bool) {
	names, err := slots(p.boxes)
	if err != nil {
		return sandbox.Info{}, false
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		s, err := openSlot(p.boxes, name)
		if err != nil {
			continue
		}
		r := s.read()
		s.close()
		if r.Key == key && r.State == sandbox.StateRunning {
			return r.Info, true
		}
	}
	return sandbox.Info{}, false
}

// make makes one box. On failure nothing of it is left.
func (p *Provider) make(ctx context.Context, s *sandbox.Spec, img *image.Root, suffix string) (_ sandbox.Info, err error) {
	place, err := p.newSlot(suffix)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer place.close() // lets go of the slot too
	m := &making{p: p, spec: s, image: img, slot: place}
	defer func() {
		m.rides.close()
		m.net.Close()
		if err != nil {
			err = errors.Join(err, m.undo())
		}
	}()
	// The look at the host takes about as long as the fork of the child, and neither needs the other.
	looked := make(chan error, 1)
	var looking sync.WaitGroup
	looking.Go(func() { looked <- m.look(ctx) })
	defer looking.Wait()
	if err := m.prepare(ctx); err != nil {
		return sandbox.Info{}, err
	}
	booted, err := m.start(ctx, looked)
	if err != nil {
		return sandbox.Info{}, err
	}
	r := m.record(booted)
	if err := refuseBelow(s.Isolation, r.Isolation); err != nil {
		return sandbox.Info{}, err
	}
	if err := place.write(&r); err != nil {
		return sandbox.Info{}, err
	}
	if err := m.child.birth.Send(guest.FrameEnd, nil); err != nil {
		return sandbox.Info{}, fmt.Errorf("let the sandbox live: %w", err)
	}
	p.keep(place.id, m.child, s.Tied)
	return r.Info, nil
}

// newSlot makes a slot that nobody else has. A sweep may take one away between its making and its taking.
func (p *Provider) newSlot(suffix string) (*slot, error) {
	for range 10 {
		s, err := makeSlot(p.boxes, "b"+strings.ToLower(rand.Text()[:9])+suffix)
		if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make the sandbox's file: %w", err)
		}
		if s.here() {
			return s, nil
		}
		s.close()
	}
	return nil, errors.New("make the sandbox's file: it is taken away each time")
}

// keep remembers a child until it ends or the provider closes.
func (p *Provider) keep(id string, c *child, tied bool) {
	if !tied {
		c.birth.CloseWrite()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.children[id] = c
	c.tied = tied
	p.watching.Go(func() {
		c.watch()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.children, id)
	})
}

// refuseBelow refuses a box that withstood less than was asked.
func refuseBelow(asked string, got sandbox.Isolation) error {
	if why := got.Below(asked); why != "" {
		return fmt.Errorf("%s: %w", why, sandbox.ErrUnsupported)
	}
	return nil
}
