package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Sandboxes is a provider of sandboxes that a plugin serves. What its sandboxes read and write goes over the plugin's connection, in streams: it hands over no
// descriptors, so that its sandboxes may be anywhere. Nothing is started before something is asked for.
type Sandboxes struct {
	served
	name string
	can  plugin.SandboxAbilities
	used uses
}

var (
	_ sandbox.Provider = (*Sandboxes)(nil)
	_ sandbox.Checker  = (*Sandboxes)(nil)
)

// NewSandboxes makes the provider that a type of a plugin is. whose is the plugin in messages. dir is a folder that notes which sandboxes there are, so that a
// provider of which there are none is never started to list them; "" notes nothing, and asks always.
func NewSandboxes(p *Plugin, t plugin.Type, e plugin.Entry, whose, dir string) *Sandboxes {
	out := &Sandboxes{served: served{p, e, whose}, name: t.Name, used: uses{dir}}
	if t.Sandbox != nil {
		out.can = *t.Sandbox
	}
	return out
}

// levels are the words of isolation, weakest first.
var levels = [...]string{sandbox.LevelNone, sandbox.LevelNamespaces, sandbox.LevelContainer}

// Check tells why the provider can't make s: ErrUnsupported, with all that it can't.
func (s *Sandboxes) Check(_ context.Context, spec sandbox.Spec) error {
	if err := errors.Join(spec.CheckLimits(), spec.CheckGiven()); err != nil {
		return err
	}
	var no []string
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			no = append(no, fmt.Sprintf(format, args...))
		}
	}
	asked, holds := slices.Index(levels[:], level(spec)), slices.Index(levels[:], s.can.Isolation)
	refuse(asked < 0, "isolation %s is not known", diag.Repr(spec.Isolation))
	refuse(asked > holds, "its isolation is %s, and %s is asked for", s.can.Isolation, level(spec))
	refuse(!slices.Contains(s.can.Networks, network(spec)), "it has no network policy %s (it has %s)", network(spec), strings.Join(s.can.Networks, ", "))
	refuse(spec.Image != "" && !s.can.Has(plugin.CanImages), "it makes no sandboxes of images")
	refuse(spec.From != "", "it has no snapshots")
	refuse((len(spec.Shown) > 0 || spec.Self) && !s.can.Has(plugin.CanShown), "it can't show files of this machine in a sandbox")
	refuse(len(spec.Publish) > 0 && !s.can.Has(plugin.CanPublish), "it publishes no ports")
	refuse((spec.CPU > 0 || spec.MemoryMB > 0 || spec.DiskMB > 0 || spec.Pids > 0) && !s.can.Has(plugin.CanLimits), "it limits neither cpu, memory, disk nor processes")
	refuse(!spec.Tied && !s.can.Has(plugin.CanLeases), "its sandboxes don't outlive the process that makes them")
	if len(no) == 0 {
		return nil
	}
	return fmt.Errorf("the plugin %s can't make this sandbox: %s: %w", s.whose, strings.Join(no, "; "), sandbox.ErrUnsupported)
}

func network(s sandbox.Spec) string {
	if s.Network == "" {
		return sandbox.NetNone
	}
	return s.Network
}

func level(s sandbox.Spec) string {
	if s.Isolation == "" {
		return sandbox.LevelNamespaces
	}
	return s.Isolation
}

// Create makes a sandbox.
func (s *Sandboxes) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := s.Check(ctx, spec); err != nil {
		return sandbox.Info{}, err
	}
	asked, err := wireSpec(spec)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Info{}, err
	}
	note, err := s.used.begin()
	if err != nil {
		return sandbox.Info{}, err
	}
	var out, late plugin.SandboxAnswer
	by := &Caller{Run: spec.Run, Log: s.p.o.Log}
	by.Late = func(result json.RawMessage) { _ = json.Unmarshal(result, &late) } // what can't be read made nothing that is known
	err = s.ask(ctx, plugin.MethodSandboxCreate, by, plugin.SandboxParams{Spec: asked}, &out)
	if err == nil && out.Sandbox == nil {
		err = s.defectOf("what it made can't be used", errors.New("it says nothing of the sandbox"))
	}
	if late.Sandbox != nil { // it stands, and nobody wants it any more
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
		defer cancel()
		return sandbox.Info{}, errors.Join(err, s.Destroy(limited, late.Sandbox.ID), note.drop())
	}
	if err != nil {
		return sandbox.Info{}, errors.Join(err, note.drop())
	}
	info, err := s.info(*out.Sandbox)
	if err == nil {
		err = note.keep(info.ID)
	}
	if err == nil && slices.Index(levels[:], info.Isolation.Level) < slices.Index(levels[:], level(spec)) {
		err = fmt.Errorf("the plugin %s made a sandbox of isolation %s, and %s was asked for: %w", s.whose, info.Isolation.Level, level(spec), sandbox.ErrUnsupported)
	}
	if err != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
		defer cancel()
		return sandbox.Info{}, errors.Join(err, s.Destroy(limited, out.Sandbox.ID))
	}
	return info, nil
}

// wireSpec is a Spec as plugins read it.
func wireSpec(s sandbox.Spec) (*plugin.SandboxSpec, error) {
	out := &plugin.SandboxSpec{
		Key: s.Key, Run: s.Run, Name: s.Name, Image: s.Image, Env: s.Env, LeaseMS: millis(s.Lease, sandbox.DefaultLease), Tied: s.Tied, CPU: s.CPU, MemoryMB: s.MemoryMB,
		DiskMB: s.DiskMB, Pids: s.Pids, Network: network(s), Egress: wireEgress(s.Egress), Aliases: s.Aliases, Isolation: level(s), Labels: s.Labels,
	}
	for _, p := range s.Publish {
		out.Publish = append(out.Publish, plugin.SandboxPort(p))
	}
	for _, v := range s.Shown {
		out.Shown = append(out.Shown, plugin.SandboxShown{From: v.From, At: v.At})
	}
	if s.Self {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		out.Shown = append(out.Shown, plugin.SandboxShown{From: self, At: sandbox.SelfPath})
	}
	return out, nil
}

func millis(d, zero time.Duration) int64 {
	if d == 0 {
		d = zero
	}
	return max(1, d.Milliseconds())
}

func wireEgress(e sandbox.Egress) *plugin.SandboxEgress {
	if len(e.Hosts)+len(e.CIDRs)+len(e.Ports) == 0 {
		return nil
	}
	out := &plugin.SandboxEgress{Hosts: e.Hosts, Ports: e.Ports}
	for _, c := range e.CIDRs {
		out.CIDRs = append(out.CIDRs, c.String())
	}
	return out
}

// info is what a plugin says of a sandbox. The error is a defect of the plugin.
func (s *Sandboxes) info(i plugin.SandboxInfo) (sandbox.Info, error) {
	bad := func(format string, args ...any) (sandbox.Info, error) {
		return sandbox.Info{}, s.defectOf("what it says of a sandbox can't be used", fmt.Errorf(format, args...))
	}
	if !usableID(i.ID) {
		return bad("the id %s isn't letters, digits, and . _ - after the first", diag.Repr(i.ID))
	}
	switch i.State {
	case sandbox.StateStarting, sandbox.StateRunning, sandbox.StateDead:
	default:
		return bad("no state %s", diag.Repr(i.State))
	}
	if !slices.Contains(levels[:], i.Isolation.Level) {
		return bad("no isolation %s", diag.Repr(i.Isolation.Level))
	}
	out := sandbox.Info{
		ID: i.ID, Provider: s.name, Name: diag.Clean(i.Name), Key: i.Key, Run: diag.Clean(i.Run), State: i.State, Tied: i.Tied, Created: i.Created, Expires: i.Expires,
		Image: diag.Clean(i.Image), Network: i.Network, Labels: i.Labels,
		Isolation: sandbox.Isolation{Level: i.Isolation.Level, Limits: map[string]string{"cpu": "none", "memory": "none", "disk": "none", "pids": "none"}},
	}
	if sandbox.Why(i.Cause) != "" {
		out.Cause = i.Cause
	}
	if i.Entry != nil {
		e := sandbox.Entry(*i.Entry)
		out.Entry = &e
	}
	for _, p := range i.Published {
		out.Published = append(out.Published, sandbox.Port(p))
	}
	if i.Egress != nil {
		out.Egress = sandbox.Egress{Hosts: i.Egress.Hosts, Ports: i.Egress.Ports}
		for _, c := range i.Egress.CIDRs {
			p, err := netip.ParsePrefix(c)
			if err != nil {
				return bad("the range %s can't be read", diag.Repr(c))
			}
			out.Egress.CIDRs = append(out.Egress.CIDRs, p)
		}
	}
	for r, what := range i.Isolation.Limits {
		out.Isolation.Limits[diag.Clean(r)] = diag.Clean(what)
	}
	// Who reads a record can tell what was tried from what was said.
	out.Isolation.Probes = []sandbox.Probe{{Name: "plugin", OK: true, Detail: "what follows, and the level, is what " + s.whose + " says"}}
	for _, p := range i.Isolation.Probes {
		out.Isolation.Probes = append(out.Isolation.Probes, sandbox.Probe{Name: diag.Clean(p.Name), OK: p.OK, Detail: diag.Clean(p.Detail), Warning: p.Warning, Fix: diag.Clean(p.Fix)})
	}
	return out, nil
}

// usableID tells whether text can be a sandbox's id.
func usableID(id string) bool {
	if len(id) == 0 || len(id) > 128 || strings.ContainsAny(id[:1], "._-") {
		return false
	}
	return strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// Connect opens a living sandbox.
func (s *Sandboxes) Connect(ctx context.Context, id string) (guest.Box, error) {
	if !usableID(id) || !s.used.any() {
		return nil, fmt.Errorf("sandbox %s: %w", diag.Repr(id), sandbox.ErrNotFound)
	}
	l, err := s.p.get(ctx)
	if err != nil {
		return nil, s.boxError(ctx, err)
	}
	defer s.p.work.Done()
	if err := l.ask(ctx, s, plugin.MethodSandboxConnect, plugin.SandboxParams{ID: id}, nil); err != nil {
		return nil, err
	}
	return newBox(s, l, id), nil
}

// List tells of every sandbox of the provider. Nothing is started where none has been made.
func (s *Sandboxes) List(ctx context.Context) ([]sandbox.Info, error) {
	if !s.used.any() {
		return nil, nil
	}
	var out plugin.SandboxAnswer
	if err := s.ask(ctx, plugin.MethodSandboxList, nil, plugin.SandboxParams{}, &out); err != nil {
		return nil, err
	}
	var errs []error
	infos := make([]sandbox.Info, 0, len(out.Sandboxes))
	for _, i := range out.Sandboxes {
		info, err := s.info(i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		infos = append(infos, info)
	}
	if len(errs) > 0 {
		s.p.o.Log.Warn("a sandbox of a plugin can't be listed", "error", errors.Join(errs...))
	}
	return infos, nil
}

// Destroy ends a sandbox; nil for an unknown one.
func (s *Sandboxes) Destroy(ctx context.Context, id string) error {
	if !usableID(id) || !s.used.any() {
		return nil
	}
	if err := s.ask(ctx, plugin.MethodSandboxDestroy, nil, plugin.SandboxParams{ID: id}, nil); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return s.used.forget(id)
}

// Sweep removes what dead sandboxes left.
func (s *Sandboxes) Sweep(ctx context.Context) ([]string, error) {
	if !s.used.any() {
		return nil, nil
	}
	var out plugin.SandboxAnswer
	if err := s.ask(ctx, plugin.MethodSandboxSweep, nil, plugin.SandboxParams{}, &out); err != nil {
		return nil, err
	}
	infos, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, i := range infos {
		known[i.ID] = true
	}
	out.IDs = slices.DeleteFunc(out.IDs, func(id string) bool { return !usableID(id) })
	return out.IDs, s.used.only(known)
}

// Close ends the plugin's processes, and so its tied sandboxes.
func (s *Sandboxes) Close() error {
	s.p.close()
	return nil
}

// ask calls the provider and tells its errors as those of sandboxes.
func (s *Sandboxes) ask(ctx context.Context, method string, by *Caller, params plugin.SandboxParams, out *plugin.SandboxAnswer) error {
	if by == nil {
		by = &Caller{Log: s.p.o.Log}
	}
	if out == nil {
		out = &plugin.SandboxAnswer{}
	}
	err := s.p.Call(ctx, method, by, func(call string) any { return s.params(call, params) }, out)
	return s.boxError(ctx, err)
}

func (s *Sandboxes) params(call string, p plugin.SandboxParams) plugin.SandboxParams {
	p.Call, p.Entry = call, s.entry
	return p
}

// boxError is an error of a plugin as callers of sandboxes know them.
func (s *Sandboxes) boxError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	if _, died := errors.AsType[*Died](err); died {
		return fmt.Errorf("%w: %w", guest.ErrGone, err)
	}
	if errors.Is(err, errClosed) {
		return fmt.Errorf("%w: %w", guest.ErrGone, err)
	}
	e, ok := errors.AsType[*rpc.Error](err)
	if !ok {
		return errors.New(s.text(err))
	}
	if e.Code != plugin.CodeFailed {
		return errors.New(s.text(errors.New("has a defect: " + e.Message)))
	}
	f := plugin.SandboxFault{}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &f) != nil {
		f = plugin.SandboxFault{}
	}
	f.Message = e.Message
	return faultError(&f)
}

// faultError is what a fault of a sandbox is here.
func faultError(f *plugin.SandboxFault) error {
	text := diag.Clean(f.Message)
	switch f.Code {
	case "not_found":
		return &boxFault{text, []error{sandbox.ErrNotFound}}
	case "unsupported": // by what makes sandboxes, and by those that it made
		return &boxFault{text, []error{sandbox.ErrUnsupported, errors.ErrUnsupported}}
	case "canceled":
		return &boxFault{text, []error{context.Canceled}}
	}
	return (&guest.Fault{Text: text, Errno: f.Errno, Code: f.Code}).Err()
}

// boxFault is a fault with what it is.
type boxFault struct {
	text string
	is   []error
}

func (f *boxFault) Error() string   { return f.text }
func (f *boxFault) Unwrap() []error { return f.is }
