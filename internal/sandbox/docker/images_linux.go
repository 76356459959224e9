package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"agentenv.internal/agentenv/internal/sandbox"
)

// image is an image of the engine.
type image struct {
	id     string
	pinned string // its reference with its digest, or its id where no registry has given it one
	config sandbox.Entry
}

// look is the engine's image of that reference or id; an errdefs.IsNotFound error when it has none.
func (e *engine) look(ctx context.Context, ref string) (*image, error) {
	got, err := e.ImageInspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	if got.Os != "" && got.Os != "linux" {
		return nil, refuse("the image %s is for %s, and sandboxes are Linux", ref, got.Os)
	}
	i := &image{id: got.ID, pinned: got.ID}
	if len(got.RepoDigests) > 0 {
		i.pinned = got.RepoDigests[0]
	}
	if c := got.Config; c != nil {
		i.config = sandbox.Entry{User: c.User, Env: c.Env, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd}
	}
	return i, nil
}

// ensure is the image of that reference, which is pulled when the engine lacks it. progress may be nil.
func (p *Provider) ensure(ctx context.Context, e *engine, ref string, progress func(done, total int64)) (*image, error) {
	i, err := e.look(ctx, ref)
	if err == nil || !errdefs.IsNotFound(err) {
		if err != nil {
			err = fmt.Errorf("look at the image %s: %w", ref, said(err))
		}
		return i, err
	}
	auth, err := registryAuth(ctx, p.opts.Keychain, ref)
	if err != nil {
		return nil, fmt.Errorf("sign in for the image %s: %w", ref, err)
	}
	pull, err := e.ImagePull(ctx, ref, client.ImagePullOptions{RegistryAuth: auth})
	if err == nil {
		got := pulled{layers: map[string]jsonstream.Progress{}, tell: progress}
		_, err = transcript(pull, got.see)
		pull.Close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("the engine has no image %s and can't pull it: %w", ref, err)
	}
	if i, err = e.look(ctx, ref); err != nil {
		return nil, fmt.Errorf("look at the image %s after its pull: %w", ref, said(err))
	}
	return i, nil
}

// registryAuth is what an engine is told to sign in with, from where Docker and Podman keep it; "" where nobody has signed in, or the
// reference is none of a registry.
func registryAuth(ctx context.Context, keychain authn.Keychain, text string) (string, error) {
	ref, err := name.ParseReference(text)
	if err != nil {
		return "", nil // the engine says what is wrong with it
	}
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	found, err := authn.Resolve(ctx, keychain, ref.Context())
	if err != nil {
		return "", err
	}
	c, err := authn.Authorization(ctx, found)
	if err != nil || *c == (authn.AuthConfig{}) {
		return "", err
	}
	return authconfig.Encode(registry.AuthConfig{
		Username: c.Username, Password: c.Password, Auth: c.Auth, IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken,
		ServerAddress: ref.Context().RegistryStr(),
	})
}

// pulled sums up what an engine tells of the layers that it fetches.
type pulled struct {
	layers map[string]jsonstream.Progress
	tell   func(done, total int64)
}

func (p *pulled) see(m *jsonstream.Message) {
	if p.tell == nil || m.ID == "" {
		return
	}
	layer, known := p.layers[m.ID]
	switch {
	case m.Status == "Downloading" && m.Progress != nil:
		layer = *m.Progress
	case known && (m.Status == "Download complete" || m.Status == "Pull complete"):
		layer.Current = layer.Total
	default:
		return
	}
	p.layers[m.ID] = layer
	var done, total int64
	for _, l := range p.layers {
		done, total = done+l.Current, total+max(l.Total, l.Current)
	}
	p.tell(done, total)
}

// maxLog is how much of an engine's output is kept: its end, where the fault is.
const maxLog = 64 << 10

// tail keeps the end of what is written.
type tail struct {
	b   []byte
	cut bool
}

func (t *tail) WriteString(s string) {
	t.b = append(t.b, s...)
	if len(t.b) > 2*maxLog {
		t.trim()
	}
}

func (t *tail) trim() {
	if len(t.b) > maxLog {
		t.b, t.cut = append([]byte(nil), t.b[len(t.b)-maxLog:]...), true
	}
}

func (t *tail) String() string {
	t.trim()
	if t.cut {
		return "[…]\n" + string(t.b)
	}
	return string(t.b)
}

// errCut: the engine's answer ended in the middle.
var errCut = errors.New("the engine's answer ended early")

// transcript reads an engine's progress to its end: the text of it, and the fault that it tells of. see, which may be nil, gets every message.
func transcript(r io.Reader, see func(*jsonstream.Message)) (string, error) {
	var log tail
	d := json.NewDecoder(r)
	for {
		var m jsonstream.Message
		err := d.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return log.String(), nil
		case err != nil:
			if isContext(err) {
				return log.String(), err
			}
			return log.String(), fmt.Errorf("%w: %w", errCut, err)
		case m.Error != nil:
			return log.String(), m.Error
		}
		if see != nil {
			see(&m)
		}
		switch {
		case m.Stream != "":
			log.WriteString(m.Stream)
		case m.Status != "" && m.Progress == nil:
			log.WriteString(strings.TrimSpace(m.ID+" "+m.Status) + "\n")
		}
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Build builds an image, or answers the one that was built of the same sources. It is sandbox.Builder.
func (p *Provider) Build(ctx context.Context, b sandbox.Build) (sandbox.Built, error) {
	e, err := p.engine(ctx)
	if err != nil {
		return sandbox.Built{}, err
	}
	if b.Sources != "" {
		if id, err := e.built(ctx, b.Sources); err != nil {
			return sandbox.Built{}, err
		} else if id != "" {
			if b.Tag != "" {
				if _, err := e.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: b.Tag}); err != nil {
					return sandbox.Built{}, fmt.Errorf("tag the image %s: %w", b.Tag, said(err))
				}
			}
			return sandbox.Built{ID: id, Cached: true}, nil
		}
	}
	o := client.ImageBuildOptions{Dockerfile: b.Dockerfile, Remove: true, ForceRemove: true, Version: "1", Labels: map[string]string{}}
	if b.Tag != "" {
		o.Tags = []string{b.Tag}
	}
	if b.Sources != "" {
		o.Labels[labelSources] = b.Sources
	}
	if len(b.Args) > 0 {
		o.BuildArgs = map[string]*string{}
		for k, v := range b.Args {
			o.BuildArgs[k] = &v
		}
	}
	if b.Platform != "" {
		pl, err := platform(b.Platform)
		if err != nil {
			return sandbox.Built{}, err
		}
		o.Platforms = []ocispec.Platform{pl}
	}
	got, err := e.ImageBuild(ctx, b.Context, o)
	if err != nil {
		return sandbox.Built{}, fmt.Errorf("build the image: %w", said(err))
	}
	defer got.Body.Close()
	var out sandbox.Built
	out.Log, err = transcript(got.Body, func(m *jsonstream.Message) {
		var id struct{ ID string }
		if m.Aux != nil && json.Unmarshal(*m.Aux, &id) == nil && id.ID != "" {
			out.ID = id.ID
		}
	})
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if err != nil {
		return out, fmt.Errorf("build the image: %w%s", err, quoted(out.Log))
	}
	if out.ID == "" { // Podman tells it in its text alone
		if out.ID, err = e.built(ctx, b.Sources); err != nil || out.ID == "" {
			return out, errors.Join(fmt.Errorf("build the image: the engine named none%s", quoted(out.Log)), err)
		}
	}
	return out, nil
}

// quoted is the end of a build's output, for its error.
func quoted(log string) string {
	const most = 4000
	log = strings.TrimSpace(log)
	if log == "" {
		return ""
	}
	if len(log) > most {
		log = "[…]" + strings.ToValidUTF8(log[len(log)-most:], "")
	}
	return "\n" + log
}

// built is the image that was built of sources; "" when there is none.
func (e *engine) built(ctx context.Context, sources string) (string, error) {
	if sources == "" {
		return "", nil
	}
	got, err := e.ImageList(ctx, client.ImageListOptions{Filters: client.Filters{}.Add("label", labelSources+"="+sources)})
	if err != nil {
		return "", fmt.Errorf("look for the built image: %w", said(err))
	}
	newest, id := int64(0), ""
	for _, i := range got.Items {
		// The layers of a build carry its labels too, so the image itself has to.
		if i.Labels[labelSources] == sources && (id == "" || i.Created > newest) {
			newest, id = i.Created, i.ID
		}
	}
	return id, nil
}

// platform reads "os/architecture" with an optional variant.
func platform(text string) (ocispec.Platform, error) {
	f := strings.Split(text, "/")
	if len(f) < 2 || len(f) > 3 || f[0] == "" || f[1] == "" {
		return ocispec.Platform{}, fmt.Errorf("the platform %q is not of the form linux/amd64", text)
	}
	p := ocispec.Platform{OS: f[0], Architecture: f[1]}
	if len(f) == 3 {
		p.Variant = f[2]
	}
	return p, nil
}

// Load reads the images of a tarball (docker save, or an OCI layout where the engine knows those) into the engine, and answers their
// references, or their ids where they have none. It is sandbox.Builder.
func (p *Provider) Load(ctx context.Context, tarball io.Reader) ([]string, error) {
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	got, err := e.ImageLoad(ctx, tarball)
	if err != nil {
		return nil, fmt.Errorf("load the images: %w", said(err))
	}
	defer got.Close()
	log, err := transcript(got, nil)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("load the images: %w%s", err, quoted(log))
	}
	refs := loaded(log)
	if len(refs) == 0 {
		return nil, fmt.Errorf("load the images: the engine named none%s", quoted(log))
	}
	return refs, nil
}

// loaded are the references that an engine says it has loaded.
func loaded(log string) []string {
	var refs []string
	for line := range strings.Lines(log) {
		for _, prefix := range []string{"Loaded image ID: ", "Loaded image: "} {
			if ref, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				refs = append(refs, strings.TrimSpace(ref))
				break
			}
		}
	}
	return refs
}
