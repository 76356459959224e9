package deploy

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// ErrBuild: an engine could not build an image of what it was given; the text holds the end of its output.
var ErrBuild = errors.New("can't be built")

// ContainerRequest is one container that a step wants beside a sandbox of its run.
type ContainerRequest struct {
	Run, Step string
	Attempt   int
	Name      string // of the container's box
	Of        string // the sandbox that it is started in, whose policy of the network is the container's too
	// Context writes the folder that the image is built of as a tar. It isn't called when the image is there.
	Context    func(ctx context.Context, to io.Writer) error
	Sources    []string // digests of all that Context writes
	Dockerfile string   // within it
	Tag        string   // "" is none
	Args       map[string]string
	Redact     *redact.Redactor // takes secrets out of what its program writes; nil knows none
	Spec       sandbox.Spec     // its Env, Publish and Labels
}

// Container is a container that stands. It goes with its run.
type Container struct {
	Info sandbox.Info
	Box  guest.Box

	boxes *Deployments
	req   ContainerRequest
	main  *server // nil: nothing was started
}

// CheckContainers tells before anything is made why containers can't be made by a chain of providers, or nil. It is a *Refused then.
func (d *Deployments) CheckContainers(ctx context.Context, override []string, isolation string) error {
	_, _, err := d.builder(ctx, d.Chain(override, ""), isolation)
	return err
}

// builder is the first provider of a chain whose engine makes images.
func (d *Deployments) builder(ctx context.Context, chain []string, isolation string) (string, sandbox.Builder, error) {
	var refused []string
	for _, name := range chain {
		e, ok := d.providers.Get(name)
		if !ok {
			refused = append(refused, d.unknown(name))
			continue
		}
		b, ok := e.Value.(sandbox.Builder)
		if !ok {
			refused = append(refused, name+": it has no container engine")
			continue
		}
		if c, checks := e.Value.(sandbox.Checker); checks {
			if err := c.Check(ctx, sandbox.Spec{Image: toBeBuilt, Isolation: isolation}); errors.Is(err, sandbox.ErrUnsupported) {
				refused = append(refused, name+": "+oneLine(err))
				continue
			} else if err != nil {
				return "", nil, err
			}
		}
		return name, b, nil
	}
	return "", nil, &Refused{refused}
}

// Container builds an image, or finds it built, and makes a container of it. Nothing runs in it yet. The error is ErrNoBox, ErrBuild, a *Refused, or
// the machinery's.
func (d *Deployments) Container(ctx context.Context, r ContainerRequest) (*Container, error) {
	if _, err := d.Box(ctx, r.Run, r.Of); err != nil { // adopts one that another process made
		return nil, err
	}
	d.mu.Lock()
	a := d.account(r.Run)
	policy, of := a.policy, a.boxes[r.Of]
	d.mu.Unlock()
	if of == nil {
		return nil, fmt.Errorf("sandbox %s %w", diag.Repr(r.Of), ErrNoBox)
	}
	name, engine, err := d.builder(ctx, d.Chain(policy.Chain, ""), policy.Isolation)
	if err != nil {
		return nil, err
	}
	if r.Spec.Image, err = buildContainer(ctx, engine, r); err != nil {
		return nil, err
	}
	r.Spec.Network, r.Spec.Egress = of.info.Network, of.info.Egress
	c := &Container{boxes: d, req: r}
	c.Info, err = d.Create(ctx, Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt, Name: r.Name, Provider: name, Spec: r.Spec})
	if err != nil {
		return nil, err
	}
	if c.Box, err = d.Box(ctx, r.Run, r.Name); err == nil {
		err = ensureTmp(ctx, c.Box)
	}
	if err != nil {
		return nil, errors.Join(step.Infra(err), c.Discard(ctx))
	}
	return c, nil
}

func buildContainer(ctx context.Context, engine sandbox.Builder, r ContainerRequest) (string, error) {
	parts := append(slices.Clone(r.Sources), r.Dockerfile)
	for _, k := range slices.Sorted(maps.Keys(r.Args)) {
		parts = append(parts, k, r.Args[k])
	}
	id, unread, err := build(ctx, engine, sandbox.Build{Dockerfile: r.Dockerfile, Tag: r.Tag, Args: r.Args, Sources: keyOf("container", parts...)}, r.Context)
	switch {
	case unread != nil:
		return "", step.Infra(fmt.Errorf("read what the image is built of: %w", unread))
	case err == nil:
		return id, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", fmt.Errorf("the image %w: %w", ErrBuild, err)
}

// Start begins a program that runs for as long as the container stands; the container outlives it.
func (c *Container) Start(ctx context.Context, cmd guest.Command) error {
	cmd.KillTree = true
	c.main = newServer(c.req.Name, c.Box, cmd)
	c.main.log = c.boxes.output(c.req.Run, c.req.Name, c.req.Redact)
	if err := c.main.start(ctx); err != nil {
		return err
	}
	stop := func(context.Context) error { c.main.stop(); return nil }
	return c.boxes.Defer(c.req.Run, c.req.Step, "the program of container "+diag.Repr(c.req.Name), stop)
}

// Trouble is err with how the container's program ended, and the last that it wrote.
func (c *Container) Trouble(err error) error {
	if c.main == nil {
		return err
	}
	return c.main.trouble(err)
}

// Discard removes the container: it is not what was asked for.
func (c *Container) Discard(ctx context.Context) error {
	if c.main != nil {
		c.main.stop()
	}
	_, err := c.boxes.Remove(context.WithoutCancel(ctx), c.req.Run, c.req.Name)
	return err
}

// WriteContext writes stored files as the tar that an engine builds of.
func WriteContext(ctx context.Context, objects store.Objects, to io.Writer, files []artifact.Bytes) error {
	w := tar.NewWriter(to)
	if err := writeFiles(ctx, objects, w, files); err != nil {
		return err
	}
	return w.Close()
}
