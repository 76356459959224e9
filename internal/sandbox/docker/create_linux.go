package docker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// Create makes a box, or answers the living one of the same key.
func (p *Provider) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(&s); err != nil {
		return sandbox.Info{}, err
	}
	if s.Image == "" {
		s.Image = p.opts.Image
	}
	if s.Image == "" {
		return sandbox.Info{}, errNoImage
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
		lock, err := p.lockKey(ctx, suffix)
		if err != nil {
			return sandbox.Info{}, err
		}
		defer func() { _ = lock.Remove() }()
		if info, ok := p.byKey(s.Key, suffix); ok {
			return info, nil
		}
	}
	info, err := p.make(ctx, &s, suffix)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // what failed for it is of no interest
	}
	if err != nil {
		return sandbox.Info{}, fmt.Errorf("make a sandbox of the engine: %w", err)
	}
	return info, nil
}

// lockKey takes the one lock that all processes share for a key. Its file goes with it.
func (p *Provider) lockKey(ctx context.Context, suffix string) (*atomicfile.Lock, error) {
	dir := filepath.Dir(p.boxes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return atomicfile.NewLock(ctx, filepath.Join(dir, "key"+suffix+".lock"))
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

// making is one box on its way.
type making struct {
	p       *Provider
	spec    *sandbox.Spec
	engine  *engine
	image   *image
	slot    *slot
	net     hostside.Network
	record  record
	birth   *guest.Conn
	asked   bool // the engine was asked to make something
	foreign bool // the container of that name is somebody else's
}

// make makes one box. On failure nothing of it is left.
func (p *Provider) make(ctx context.Context, s *sandbox.Spec, suffix string) (_ sandbox.Info, err error) {
	e, err := p.engine(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	img, err := p.ensure(ctx, e, s.Image, s.Progress)
	if err != nil {
		return sandbox.Info{}, err
	}
	program, err := p.program.get()
	if err != nil {
		return sandbox.Info{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the sandbox did not start within %s", startLimit))
	defer cancel()
	place, err := p.newSlot(suffix)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer place.close() // lets go of the slot too
	m := &making{p: p, spec: s, engine: e, image: img, slot: place}
	defer func() {
		m.net.Close()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	if err := m.start(ctx, program); err != nil {
		return sandbox.Info{}, err
	}
	if !s.Tied {
		m.birth.Close()
		return m.record.Info, nil
	}
	p.keep(ctx, place.id, m.birth)
	return m.record.Info, nil
}

// start makes the container and lives through its birth.
func (m *making) start(ctx context.Context, program string) error {
	// The record names the engine before anything is made there: a maker may be killed in between, and the sweep has to find what it made.
	if err := m.net.Publish(ctx, m.spec.Publish); err != nil {
		return err
	}
	m.record = record{Info: m.info(), Engine: m.engine.socket}
	m.record.State = sandbox.StateStarting
	if err := m.slot.write(&m.record); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(m.slot.path, birthName), 0o755); err != nil {
		return err
	}
	born, err := m.slot.listen(filepath.Join(birthName, guest.BirthSocket))
	if err != nil {
		return err
	}
	defer born.Close()
	// The container's root may be nobody here, so the socket is open to all; the folder around it is not.
	if err := os.Chmod(filepath.Join(m.slot.path, birthName, guest.BirthSocket), 0o666); err != nil {
		return err
	}
	id, err := m.container(ctx, program)
	if err != nil {
		return err
	}
	words, err := hostside.NewWords()
	if err != nil {
		return err
	}
	defer words.Close()
	if err := m.network(ctx, words); err != nil { // while the container comes up
		return hostside.LastWords(words, err)
	}
	if m.birth, err = m.await(ctx, born, id); err != nil {
		return err
	}
	born.Close()
	if err := os.Remove(filepath.Join(m.slot.path, birthName, guest.BirthSocket)); err != nil {
		return err
	}
	booted, tun, err := m.boot(ctx)
	if err != nil {
		return m.lastWords(ctx, id, err)
	}
	if err := m.net.Serve(ctx, m.p.opts.Proxy, tun); err != nil {
		return hostside.LastWords(words, err)
	}
	if err := m.finish(booted); err != nil {
		return err
	}
	if err := m.birth.Send(guest.FrameEnd, nil); err != nil {
		return fmt.Errorf("let the sandbox live: %w", err)
	}
	return nil
}

// await is the connection of the container's PID 1. The engine is asked now and then whether there is one still.
func (m *making) await(ctx context.Context, l *net.UnixListener, id string) (*guest.Conn, error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		l.SetDeadline(time.Now().Add(500 * time.Millisecond))
		c, err := l.AcceptUnix()
		if err == nil {
			return guest.NewConn(c), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("wait for the sandbox: %w", err)
		}
		got, err := m.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return nil, fmt.Errorf("look at the container: %w", said(err))
		}
		if st := got.Container.State; st != nil && !st.Running {
			return nil, m.lastWords(ctx, id, fmt.Errorf("the container ended at its start with code %d", st.ExitCode))
		}
	}
}

// boot tells PID 1 what to be, and answers its word and the TUN that it made, if any.
func (m *making) boot(ctx context.Context) (_ *guest.Booted, tun *os.File, _ error) {
	stop := context.AfterFunc(ctx, func() { m.birth.SetDeadline(time.Now()) })
	defer stop()
	listener, err := m.slot.listen(sockName)
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	lf, err := listener.File()
	if err != nil {
		return nil, nil, fmt.Errorf("hand the sandbox its socket: %w", err)
	}
	defer lf.Close()
	file, err := m.slot.forGuest()
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	files := []*os.File{lf, file}
	b := &guest.Boot{
		Given: true, Tied: m.spec.Tied, Lease: m.spec.Lease,
		Contents: map[string]string{"/etc/resolv.conf": m.net.ResolvConf()},
		Env:      append(append([]string{"PATH=" + systemPath, "HOME=/root", "LANG=C.UTF-8"}, m.image.config.Env...), m.spec.Env...),
		Probe: guest.Probing{
			Hidden: []string{m.p.opts.StateRoot, m.engine.socket}, HostPID: os.Getpid(), HostUID: os.Geteuid(),
			Image: true, Network: m.spec.Network != sandbox.NetNone,
		},
	}
	b.User, b.Dir = m.image.config.User, path.Join("/", m.image.config.WorkingDir)
	for _, s := range m.spec.Shown {
		if s.Hold != nil {
			files = append(files, s.Hold)
			b.Holds++
		}
	}
	files = append(files, m.net.Join(b)...)
	if err := m.birth.SendJSON(guest.FrameRequest, guest.Request{Op: guest.OpBoot, Boot: b}, files...); err != nil {
		return nil, nil, fmt.Errorf("send the boot message: %w", err)
	}
	var reply guest.Reply
	if err := m.birth.RecvJSON(guest.FrameReply, &reply); err != nil {
		return nil, nil, fmt.Errorf("the sandbox's init process ended early: %w", err)
	}
	if err := reply.Fault.Err(); err != nil {
		if errors.Is(err, fs.ErrPermission) && strings.Contains(err.Error(), guest.TUNDevice) {
			err = refuse("%v: root of a container of this engine may not open it (chmod 0666 %s, as most distributions have it)", err, guest.TUNDevice)
		}
		return nil, nil, err
	}
	if reply.Boot == nil {
		return nil, nil, errors.New("the sandbox's init process gave no answer")
	}
	if got := m.birth.TakeFiles(); len(got) > 0 {
		tun = got[0]
	}
	return reply.Boot, tun, nil
}

// systemPath is the PATH of commands whose image names none.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// finish records what the box has become, and refuses it when that is less than was asked.
func (m *making) finish(b *guest.Booted) error {
	r := &m.record
	r.State = sandbox.StateRunning
	if at, err := hostside.Wall(b.Deadline); err == nil {
		r.Expires = at
	}
	r.Isolation.Level = sandbox.LevelContainer
	for _, t := range b.Tried {
		probe := sandbox.Probe{Name: t.Name, OK: t.OK, Detail: t.Detail}
		switch {
		case t.OK:
		case t.Name == "user_ids": // an engine without user namespaces has the host's root in every container
			probe.Warning, probe.Fix = true, idsFix
		default:
			r.Isolation.Level = sandbox.LevelNone
		}
		r.Isolation.Probes = append(r.Isolation.Probes, probe)
	}
	for _, note := range b.Notes {
		r.Isolation.Probes = append(r.Isolation.Probes, sandbox.Probe{Name: "note", OK: true, Detail: note})
	}
	if why := r.Isolation.Below(m.spec.Isolation); why != "" {
		return refusal(why)
	}
	return m.slot.write(r)
}

// newSlot makes a slot that nobody else has. A sweep may take one away between its making and its taking.
func (p *Provider) newSlot(suffix string) (*slot, error) {
	for range 10 {
		s, err := makeSlot(p.boxes, "d"+strings.ToLower(rand.Text()[:9])+suffix)
		if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make the sandbox's folder: %w", err)
		}
		if s.here() {
			return s, nil
		}
		s.close()
	}
	return nil, errors.New("make the sandbox's folder: it is taken away each time")
}

// undoLimit bounds taking away what a failed start has made.
const undoLimit = 20 * time.Second

// undo takes away all that was made, also when ctx has ended.
func (m *making) undo(ctx context.Context) error {
	if m.birth != nil {
		m.birth.Close() // ends PID 1, if there is one
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if m.asked && !m.foreign {
		if err := m.engine.clear(ctx, &m.record); err != nil {
			return err // the slot stays, so that a sweep finds it
		}
	}
	return m.slot.remove()
}

func (m *making) info() sandbox.Info {
	now := time.Now().UTC().Round(time.Millisecond)
	c := m.image.config
	return sandbox.Info{
		ID: m.slot.id, Provider: Name, Name: m.spec.Name, Key: m.spec.Key, Run: m.spec.Run, Tied: m.spec.Tied,
		Created: now, Expires: now.Add(m.spec.Lease), OwnerPID: os.Getpid(), Labels: m.spec.Labels,
		Image: m.image.pinned, Entry: &c, Network: m.spec.Network, Egress: m.spec.Egress, Published: m.net.Published(),
	}
}
