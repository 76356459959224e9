// Package world executes the steps that make and end what a task runs in: deploy_sandbox, teardown_sandboxes.
//
// A sandbox belongs to its run: internal/deploy keeps it and takes it down. These executors translate a step's fields and record what they made.
package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

// Sandboxes is what these executors need of internal/deploy.
type Sandboxes interface {
	Create(ctx context.Context, r deploy.Request) (sandbox.Info, error)
	Check(ctx context.Context, override []string, typ string, s sandbox.Spec) error
	Box(ctx context.Context, run, name string) (guest.Box, error)
	Remove(ctx context.Context, run, name string) (id string, err error)
}

// workFolder exists in every sandbox of mode vm: verifiers begin from it unless told otherwise.
const workFolder = "/app"

// timeFormat is how records of the context spell times.
const timeFormat = "2006-01-02T15:04:05.000000+00:00"

// DeploySandbox makes a bare sandbox.
type DeploySandbox struct{ boxes Sandboxes }

// NewDeploySandbox makes the executor.
func NewDeploySandbox(b Sandboxes) *DeploySandbox { return &DeploySandbox{b} }

var _ step.Preflighter = (*DeploySandbox)(nil)

// Preflight tells what no provider of the chain can do.
func (e *DeploySandbox) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	if mode := d.Get("sandbox_mode"); mode.Text() == step.ModeContainer {
		l.Add(diag.Problem{
			Pos: mode.Pos(), Where: "sandbox_mode", Code: "world.container",
			Summary: "container sandboxes can't be made by this version of agent-env", Fix: "use sandbox_mode vm",
		})
		return l
	}
	spec := spec(d)
	spec.Isolation = p.Isolation
	if err := e.boxes.Check(ctx, p.Sandbox, d.Get("sandbox_type").Text(), spec); err != nil {
		field, fix := blame(d, p)
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "world.provider", Summary: diag.Clean(err.Error()), Fix: fix})
	}
	return l
}

// blame is the field that a provider most likely refuses, and what to do about it.
func blame(d doc.Node, p step.Plan) (field, fix string) {
	switch {
	case !d.Get("image").IsNull():
		return "image", "leave image out: the sandbox's root is then a private view of this machine"
	case !d.Get("network_policy").IsNull() && spec(d).Network != sandbox.NetNone:
		return "network_policy", "agent-env doctor shows whether sandboxes can have a network here; with network_policy left out one has its own loopback alone"
	case len(p.Sandbox) > 0 || !d.Get("sandbox_type").IsNull():
		return "sandbox_type", "agent-env doctor shows what works on this machine"
	default:
		return "", "agent-env doctor shows what works on this machine"
	}
}

// spec translates a step's fields. A field that its author left out is the provider's to choose, as in the systems that the fields come from,
// where local sandboxes know no limits.
func spec(d doc.Node) sandbox.Spec {
	s := sandbox.Spec{Image: d.Get("image").Text(), Lease: time.Duration(number(d, "ttl_seconds") * float64(time.Second))}
	if n := d.Get("cpu"); authored(n) {
		s.CPU, _ = n.Float()
	}
	if n := d.Get("memory_mb"); authored(n) {
		s.MemoryMB, _ = n.Int()
	}
	if n := d.Get("disk_size_gb"); authored(n) {
		gb, _ := n.Float()
		s.DiskMB = int64(gb * 1024)
	}
	for k, v := range d.Get("env_vars").Members() {
		s.Env = append(s.Env, k+"="+v.Text())
	}
	if policy := d.Get("network_policy"); !policy.IsNull() {
		s.Network = policy.Get("mode").Text()
		for _, h := range policy.Get("allow_hosts").Items() {
			s.Egress.Hosts = append(s.Egress.Hosts, h.Text())
		}
		for _, c := range policy.Get("allow_cidrs").Items() {
			if p, err := sandbox.ParseCIDR(c.Text()); err == nil { // the kind's schema has refused all else
				s.Egress.CIDRs = append(s.Egress.CIDRs, p)
			}
		}
	}
	for _, p := range d.Get("exposed_ports").Items() {
		n, _ := p.Int()
		if port := (sandbox.Port{Box: uint16(n)}); !slices.Contains(s.Publish, port) {
			s.Publish = append(s.Publish, port)
		}
	}
	for k, v := range d.Get("metadata").Get("attribution").Members() {
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[k] = v.Text()
	}
	return s
}

// tunnels are where the ports that a step exposes are reached.
func tunnels(ports []sandbox.Port) map[string]string {
	if len(ports) == 0 {
		return nil
	}
	urls := map[string]string{}
	for _, p := range ports {
		urls[strconv.Itoa(int(p.Box))] = "http://127.0.0.1:" + strconv.Itoa(int(p.Host))
	}
	return urls
}

// policyOf is the policy in force as records spell it.
func policyOf(info sandbox.Info) *step.NetworkPolicy {
	if info.Network == "" {
		return nil
	}
	p := &step.NetworkPolicy{Mode: info.Network, Hosts: append([]string{}, info.Egress.Hosts...), CIDRs: []string{}}
	for _, c := range info.Egress.CIDRs {
		p.CIDRs = append(p.CIDRs, c.String())
	}
	return p
}

// authored tells a value that the step's document spells from a default that was filled in.
func authored(n doc.Node) bool { return n.Raw() != nil }

func number(d doc.Node, field string) float64 {
	v, _ := d.Get(field).Float()
	return v
}

// Run makes the sandbox and records it at deployed_sandboxes.
func (e *DeploySandbox) Run(ctx context.Context, c *step.Call) error {
	name := c.Doc.Get("sandbox_name").Text()
	s := spec(c.Doc)
	info, err := e.boxes.Create(ctx, deploy.Request{
		Run: c.Run, Step: c.Step, Attempt: c.Attempt, Name: name, Type: c.Doc.Get("sandbox_type").Text(), Spec: s,
	})
	switch {
	case errors.Is(err, deploy.ErrTaken):
		return &step.Error{Type: "NameError", Err: err}
	case err != nil:
		return step.Infra(&step.Error{Type: "SandboxError", Err: err})
	}
	box, err := e.boxes.Box(ctx, c.Run, name)
	if err != nil {
		return step.Infra(err)
	}
	if err := guest.Put(ctx, box, workFolder, nil); err != nil {
		return step.Infra(fmt.Errorf("make %s: %w", workFolder, err))
	}
	c.Log.Info("sandbox made", "name", name, "id", info.ID, "provider", info.Provider, "isolation", info.Isolation.Level)
	return c.Out.Append(step.SandboxesPath, step.Sandbox{
		Name: name, ID: info.ID, Mode: c.Doc.Get("sandbox_mode").Text(), Type: info.Provider, Instance: c.Run,
		Created: info.Created.UTC().Format(timeFormat), ExpiresAt: info.Expires.UTC().Format(timeFormat),
		Tunnels: tunnels(info.Published), Policy: policyOf(info),
	})
}
