package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Check is what Create would refuse without trying. It asks whether an engine is there.
func (p *Provider) Check(ctx context.Context, s sandbox.Spec) error {
	if err := checkSpec(&s); err != nil {
		return err
	}
	if s.Image == "" && p.opts.Image == "" {
		return errNoImage
	}
	if p.program.bytes == nil {
		return errNoGuest
	}
	_, err := p.engine(ctx)
	return err
}

// Examine looks at the engine and makes nothing.
func (p *Provider) Examine(ctx context.Context) Report {
	e, err := p.engine(ctx)
	if err != nil {
		return Report{Findings: []Finding{{
			Name: "engine", Detail: err.Error(), Fix: "start Docker or Podman, or name its socket in [sandbox.docker] socket",
		}}}
	}
	got, err := e.Info(ctx, client.InfoOptions{})
	if err != nil {
		return Report{Findings: []Finding{{Name: "engine", Detail: said(err).Error(), Fix: "see what the engine's log says"}}}
	}
	r := Report{OK: true}
	i := got.Info
	r.Findings = append(r.Findings, Finding{Name: "engine", OK: true, Detail: fmt.Sprintf("%s at %s, storage %s", i.ServerVersion, e.socket, i.Driver)})
	for _, l := range []struct {
		name string
		ok   bool
	}{{"memory", i.MemoryLimit}, {"cpu", i.CPUCfsQuota}, {"pids", i.PidsLimit}} {
		f := Finding{Name: "engine " + l.name + " limit", OK: l.ok, Detail: "by control groups"}
		if !l.ok {
			f.Detail, f.Fix = "the engine has none", "run the engine where it may use control groups"
		}
		r.Findings = append(r.Findings, f)
	}
	ids := Finding{Name: "engine user ids", Detail: "root of a container is this machine's root", Fix: idsFix}
	for _, o := range i.SecurityOptions {
		if strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless") {
			ids = Finding{Name: ids.Name, OK: true, Detail: "root of a container is an ordinary user of this machine"}
		}
	}
	r.Findings = append(r.Findings, ids, networkFinding(), p.imageFinding(ctx, e))
	return r
}

// idsFix is what to do where root of a container is the machine's root.
const idsFix = "run the engine rootless, or with userns-remap"

func networkFinding() Finding {
	f := Finding{Name: "engine network", OK: true, Detail: guest.TUNDevice + " is there"}
	if err := tunProblem(); err != nil {
		text, fix, _ := strings.Cut(err.Error(), " (")
		f.OK, f.Detail, f.Fix = false, text, strings.TrimSuffix(fix, ")")
	}
	return f
}

func (p *Provider) imageFinding(ctx context.Context, e *engine) Finding {
	f := Finding{Name: "engine image"}
	if p.opts.Image == "" {
		f.Detail, f.Fix = "no image is set for sandboxes that name none", "set [sandbox.docker] image"
		return f
	}
	_, err := e.look(ctx, p.opts.Image)
	switch {
	case err == nil:
		f.OK, f.Detail = true, p.opts.Image
	case errdefs.IsNotFound(err):
		f.OK, f.Detail = true, p.opts.Image+" is pulled when it is first needed"
	default:
		f.Detail, f.Fix = said(err).Error(), "see what the engine's log says"
	}
	return f
}
