package local

import (
	"context"
	"fmt"
	"os"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/subid"
	"agentenv.internal/agentenv/internal/treestore"
)

// image gets the image of a Spec and holds it until release; nil when it names none.
func (p *Provider) image(ctx context.Context, s *sandbox.Spec) (*image.Root, func(), error) {
	if s.Image == "" {
		return nil, func() {}, nil
	}
	if p.host.wide && !p.host.idmaps() {
		return nil, nil, fmt.Errorf("the image %s: the file system of %s can't map ids, which roots of images need when the machine's root starts them; "+
			"move the state root: %w", s.Image, p.opts.StateRoot, sandbox.ErrUnsupported)
	}
	return p.images.Root(ctx, s.Image, s.Progress)
}

// imageLayout is a box's world where an image takes the place of the host.
func (m *making) imageLayout() *layout {
	return &layout{overlays: []source{{target: "/", paths: m.image.Layers, owned: true}}}
}

// ids are the ones that the box gets from the caller's range; nil when it gets them otherwise.
func (m *making) ids() *subid.Range {
	if m.image == nil || m.image.Owners != image.OwnersSub {
		return nil
	}
	return &m.image.Range
}

// holding is the trees that the box holds for its life.
func (m *making) holding() []*treestore.Held {
	if m.image == nil {
		return m.held
	}
	return append([]*treestore.Held{m.image.Held()}, m.held...)
}

// imageBoot makes the image's config the defaults of the box's commands.
func (m *making) imageBoot(b *guest.Boot) {
	if m.image == nil {
		return
	}
	c := m.image.Config
	b.Env = append([]string{"PATH=" + systemPath, "HOME=/root"}, c.Env...)
	b.Env = append(b.Env, m.spec.Env...)
	b.User = c.User
	if b.Dir = c.WorkingDir; b.Dir == "" {
		b.Dir = "/"
	} else if !strings.HasPrefix(b.Dir, "/") {
		b.Dir = "/" + b.Dir
	}
	if b.OneID && m.imageHas("etc/apt/apt.conf.d") { // apt would become another user to fetch packages
		b.Contents["/etc/apt/apt.conf.d/zz-sandbox"] = "APT::Sandbox::User \"root\";\n"
	}
	m.marker = "/.sandbox-" + m.slot.id
	b.Probe.Marker, b.Probe.Hidden, b.Probe.Image = m.marker, []string{m.slot.path}, true
}

// imageHas tells whether a layer of the image has a folder, links on the way aside.
func (m *making) imageHas(name string) bool {
	for _, dir := range m.image.Layers {
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue
		}
		info, err := root.Lstat(name)
		root.Close()
		if err == nil {
			return info.IsDir()
		}
	}
	return false
}

// imageRecord tells of the image, and of what the box lacks of it.
func (m *making) imageRecord(r *record) {
	if m.image == nil {
		return
	}
	if m.image.Owners == image.OwnersOne {
		r.Isolation.Probes = append(r.Isolation.Probes, sandbox.Probe{Name: "note", OK: true, Detail: fmt.Sprintf(
			"the sandbox has one user id: %d files of the image lost their owner or capabilities, and changes of owners only look done; "+
				"install the package uidmap and give yourself a range in /etc/subuid and /etc/subgid, or start it as root", m.image.Unowned)})
	}
}
