package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/archive"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Containers is what RunDockerContainer needs of internal/deploy.
type Containers interface {
	CheckContainers(ctx context.Context, override []string, isolation string) error
	Container(ctx context.Context, r deploy.ContainerRequest) (*deploy.Container, error)
}

// Web downloads files.
type Web interface {
	Check(url string) error
	// Get is a file of its own, which the caller closes, and its size. The error is typed.
	Get(ctx context.Context, url string) (*os.File, int64, error)
}

// Files is what a build context is read from.
type Files interface {
	store.Docs
	store.Objects
}

// RunDockerContainer builds an image and starts a container of it beside a sandbox of the task. The container is a sandbox of the engine, which other
// steps find by container_name.
type RunDockerContainer struct {
	files   Files
	boxes   Containers
	web     Web
	secrets *redact.Redactor
}

// NewRunDockerContainer makes the executor. r takes secrets out of what containers' programs write; it may be nil.
func NewRunDockerContainer(f Files, b Containers, w Web, r *redact.Redactor) *RunDockerContainer {
	return &RunDockerContainer{f, b, w, r}
}

var _ step.Preflighter = (*RunDockerContainer)(nil)

// Preflight tells what no engine here can do, and what containers aren't given.
func (e *RunDockerContainer) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	refuse := func(field, summary, fix string) {
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "world.container", Summary: summary, Fix: fix})
	}
	if err := e.boxes.CheckContainers(ctx, p.Sandbox, p.Isolation); err != nil {
		l.Add(diag.Problem{
			Pos: d.Get("type").Pos(), Code: "world.engine", Summary: "a container needs an engine that builds its image: " + diag.Clean(err.Error()),
			Fix: "agent-env doctor shows what works on this machine",
		})
	}
	const own = "a container has the network of its sandbox alone and shares it with no other"
	for _, x := range []struct{ field, summary string }{
		{"network", own},
		{"extra_networks", own},
		{"devices", "a container gets no devices of this machine"},
		{"cap_add", "a container gets no more capabilities than sandboxes have"},
		{"volumes", "a container sees no folders of this machine; load_artifact copies files into it"},
		{"shm_size", "the size of a container's /dev/shm is the engine's"},
	} {
		if n := d.Get(x.field); !n.IsNull() && (n.Kind() != doc.Array || n.Len() > 0) {
			refuse(x.field, x.summary, "leave it out")
		}
	}
	if on, _ := d.Get("privileged").Bool(); on {
		refuse("privileged", "a container is never privileged: it could leave its sandbox", "leave it out")
	}
	if url := d.Get("docker_context_url").Text(); url != "" {
		if err := e.web.Check(url); err != nil {
			refuse("docker_context_url", diag.Clean(err.Error()), "name a .zip by its http or https URL")
		}
	}
	if text := d.Get("command_override").Text(); text != "" {
		if _, err := words(text); err != nil {
			refuse("command_override", err.Error(), "write it as in a shell")
		}
	}
	return l
}

// readyTries and readyPause are how often a container is asked whether it is ready; readyLimit is the time of all of it.
const (
	readyFirst = 100 * time.Millisecond
	readyPause = 2 * time.Second
	readyLimit = 120 * time.Second
)

// Run builds, starts, waits until the container is ready, and records it.
func (e *RunDockerContainer) Run(ctx context.Context, c *step.Call) error {
	of, name := c.Doc.Get("sandbox_name").Text(), c.Doc.Get("container_name").Text()
	if _, _, taken := step.FindContainer(c.State, of, name); taken {
		return step.Errorf("NameError", "sandbox %s has a container %s already", diag.Repr(of), diag.Repr(name))
	}
	r := deploy.ContainerRequest{
		Run: c.Run, Step: c.Step, Attempt: c.Attempt, Name: "container " + name + " of " + of, Of: of,
		Dockerfile: path.Clean(c.Doc.Get("dockerfile_path").Text()), Tag: c.Doc.Get("image_tag").Text(), Spec: containerSpec(c.Doc), Redact: e.secrets,
	}
	for k, v := range c.Doc.Get("build_args").Members() {
		if r.Args == nil {
			r.Args = map[string]string{}
		}
		r.Args[k] = v.Text()
	}
	done, err := e.context(ctx, c.Doc, &r)
	if err != nil {
		return err
	}
	defer done()
	began := time.Now()
	k, err := e.boxes.Container(ctx, r)
	if err != nil {
		return containerError(ctx, err)
	}
	if err := e.begin(ctx, c, k); err != nil {
		return errors.Join(err, k.Discard(ctx))
	}
	rec := step.Container{Name: name, Sandbox: of, Box: r.Name, ID: k.Info.ID, Image: k.Info.Image, Tunnels: tunnels(k.Info.Published)}
	if k.Info.Entry != nil {
		rec.Workdir = k.Info.Entry.WorkingDir
	}
	c.Log.Info("container started", "container", name, "sandbox", of, "id", k.Info.ID, "took", time.Since(began).Round(time.Millisecond))
	return c.Out.Append(step.ContainersPath, rec)
}

// containerError types the error of a container that can't be made.
func containerError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case step.IsInfra(err):
		return err
	case errors.Is(err, deploy.ErrNoBox):
		return &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, deploy.ErrTaken):
		return &step.Error{Type: "NameError", Err: err}
	case errors.Is(err, deploy.ErrBuild):
		return &step.Error{Type: "BuildError", Err: err}
	}
	return step.Infra(&step.Error{Type: "SandboxError", Err: err})
}

func containerSpec(d doc.Node) sandbox.Spec {
	var s sandbox.Spec
	for k, v := range d.Get("env_vars").Members() {
		s.Env = append(s.Env, k+"="+v.Text())
	}
	for _, n := range d.Get("ports").Items() {
		v, _ := n.Int()
		if p := (sandbox.Port{Box: uint16(v)}); !slices.Contains(s.Publish, p) {
			s.Publish = append(s.Publish, p)
		}
	}
	return s
}

// begin starts what the container is for, and waits until it is ready.
func (e *RunDockerContainer) begin(ctx context.Context, c *step.Call, k *deploy.Container) error {
	var argv []string
	entry := sandbox.Entry{}
	if k.Info.Entry != nil {
		entry = *k.Info.Entry
	}
	base, _ := c.Doc.Get("keep_alive_with_base_command").Bool()
	if text := c.Doc.Get("command_override").Text(); text != "" {
		args, err := words(text)
		if err != nil || len(args) == 0 {
			return step.Errorf("ValueError", "command_override: %s is no command", diag.Repr(text))
		}
		argv = entry.Argv(args...)
	} else if base {
		if argv = entry.Argv(); len(argv) == 0 {
			return step.Errorf("ValueError", "keep_alive_with_base_command: the image has neither ENTRYPOINT nor CMD")
		}
	}
	if argv != nil {
		if err := k.Start(ctx, guest.Command{Argv: argv}); err != nil {
			return step.Infra(err)
		}
	}
	ready := c.Doc.Get("ready_command").Text()
	if ready == "" {
		return nil
	}
	return awaitReady(ctx, k, ready)
}

// awaitReady runs a command in the container until it succeeds.
func awaitReady(ctx context.Context, k *deploy.Container, command string) error {
	wait, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("its ready_command did not succeed within %s", readyLimit))
	defer cancel()
	last := ""
	for pause := readyFirst; ; pause = min(2*pause, readyPause) {
		r, err := guest.Output(wait, k.Box, guest.Command{Argv: []string{"sh", "-c", command}, KillTree: true}, guest.Limits{Stdout: 1 << 10, Stderr: 1 << 10})
		switch {
		case err == nil && r.Exit.OK():
			return nil
		case err == nil:
			last = fmt.Sprintf("exit %d: %s", r.Exit.Status(), strings.TrimSpace(strings.ToValidUTF8(r.Stderr.String(), "\uFFFD")))
		case ctx.Err() != nil: // told below
		case errors.Is(err, guest.ErrGone):
			return step.Infra(err)
		case wait.Err() == nil:
			return step.Errorf("ReadyError", "ready_command can't be run in the container: %w", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-wait.Done():
			t.Stop()
			if ctx.Err() != nil {
				return &step.Halted{Err: ctx.Err(), State: k.Trouble(fmt.Errorf("it is not ready yet (%s)", last)).Error()}
			}
			return &step.Error{Type: "ReadyError", Err: k.Trouble(fmt.Errorf("%w (%s)", context.Cause(wait), last))}
		}
	}
}

// context fills in what the image is built of. done drops what it holds.
func (e *RunDockerContainer) context(ctx context.Context, d doc.Node, r *deploy.ContainerRequest) (done func(), err error) {
	if url := d.Get("docker_context_url").Text(); url != "" {
		return e.fromURL(ctx, url, r)
	}
	version, _ := d.Get("docker_context_artifact_version").Int()
	stored, err := e.files.Get(ctx, store.Artifact, d.Get("docker_context_artifact_id").Text(), int(version))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return nil, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	files, err := artifact.Files(stored.Type, stored.Body)
	if errors.Is(err, artifact.ErrNoFiles) {
		return nil, step.Errorf("TypeError", "docker_context_artifact_id: %s is of type %s; a build context is of type %s", diag.Repr(stored.ID), stored.Type, artifact.FileUniverse)
	} else if err != nil {
		return nil, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	var ignored artifact.Ignore
	if i := slices.IndexFunc(files, func(f artifact.Bytes) bool { return f.Path == artifact.IgnoreFile }); i >= 0 {
		text, err := e.read(ctx, files[i])
		if err != nil {
			return nil, err
		}
		if ignored, err = ignore(text, r.Dockerfile); err != nil {
			return nil, err
		}
	}
	files = slices.DeleteFunc(files, func(f artifact.Bytes) bool { return ignored.Match(f.Path) })
	if !slices.ContainsFunc(files, func(f artifact.Bytes) bool { return f.Path == r.Dockerfile && !f.Folder }) {
		return nil, noDockerfile(r.Dockerfile, diag.Repr(stored.ID))
	}
	for _, f := range files {
		r.Sources = append(r.Sources, f.Path, string(f.Digest), strconv.FormatUint(uint64(f.Mode&0o100), 8), f.Link)
	}
	r.Context = func(ctx context.Context, to io.Writer) error { return deploy.WriteContext(ctx, e.files, to, files) }
	return func() {}, nil
}

func noDockerfile(name, where string) error {
	return step.Errorf("NotFoundError", "dockerfile_path: there is no %s in %s", diag.Repr(name), where)
}

// maxIgnore bounds an ignore file.
const maxIgnore = 1 << 20

func (e *RunDockerContainer) read(ctx context.Context, f artifact.Bytes) ([]byte, error) {
	in, _, err := store.OpenVerified(ctx, e.files, f.Digest)
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxIgnore))
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	return b, nil
}

// ignore reads an ignore file.
func ignore(text []byte, dockerfile string) (artifact.Ignore, error) {
	ig, l := artifact.ParseIgnore(artifact.IgnoreFile, text, dockerfile)
	if l.HasErrors() {
		return ig, &step.Error{Type: "ValueError", Err: l.Err()}
	}
	return ig, nil
}

// fromURL downloads a .zip and unpacks it into a folder that done removes.
func (e *RunDockerContainer) fromURL(ctx context.Context, url string, r *deploy.ContainerRequest) (_ func(), err error) {
	f, size, err := e.web.Get(ctx, url)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return nil, step.Infra(fmt.Errorf("read a download: %w", err))
	}
	r.Sources = []string{"zip", hex.EncodeToString(h.Sum(nil))}
	scratch, err := atomicfile.NewScratch("agent-env-context")
	if err != nil {
		return nil, step.Infra(err)
	}
	var root *os.Root
	done := func() {
		if root != nil {
			_ = root.Close()
		}
		_ = scratch.Remove()
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	if root, err = os.OpenRoot(scratch.Dir); err != nil {
		return nil, step.Infra(err)
	}
	if _, err := archive.UnpackZip(ctx, f, size, root, archive.Options{}); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, step.Errorf("ValueError", "docker_context_url: what is there can't be unpacked: %w", err)
	}
	var ignored artifact.Ignore
	text, err := root.ReadFile(artifact.IgnoreFile)
	switch {
	case err == nil:
		if ignored, err = ignore(text, r.Dockerfile); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, step.Infra(err)
	}
	if info, err := root.Stat(r.Dockerfile); err != nil || info.IsDir() {
		return nil, noDockerfile(r.Dockerfile, "what was downloaded")
	}
	r.Context = func(ctx context.Context, to io.Writer) error {
		_, err := archive.Pack(ctx, to, root, archive.PackOptions{Skip: func(name string, dir bool) bool { return !dir && ignored.Match(name) }})
		return err
	}
	return done, nil
}
