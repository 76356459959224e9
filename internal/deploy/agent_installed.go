package deploy

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// Install says that an agent is installed into AgentRequest.Sandbox by the commands of its card, in place of having a sandbox of its own.
type Install struct {
	Port      int    // where it serves; 0: as its card says
	Workspace string // folder in which it works, for commands that ask for it; "" is none
	Container string // the name of the container that Sandbox is; "" is none
}

// installMaker installs a stored agent into a sandbox of the run.
type installMaker struct{ serverMaker }

// Check tells of agents that can't be read for their commands: those have to run once in a sandbox of their own.
func (m installMaker) Check(ctx context.Context, chain []string, isolation string, r AgentRequest) error {
	if len(m.stored.Part.Source.Files) == 0 {
		return unsupported("the agent %s is an image of a registry: there are no files of it to install", diag.Repr(r.ID))
	}
	return m.serverMaker.Check(ctx, chain, isolation, r)
}

// installation is what a card says of how its agent is installed: on a machine, and into a container by a machine with an engine.
type installation struct {
	Commands []string `json:"install_commands_host"`
	Params   []string `json:"required_params_host"`
	Port     int      `json:"a2a_port"`

	Engine       []string `json:"install_commands"`
	EngineParams []string `json:"required_params"`
}

// Start reads the agent's card, runs its commands in the sandbox and waits until it answers there.
func (m installMaker) Start(ctx context.Context, a *Agent, r AgentRequest) (Runner, error) {
	i, err := m.read(ctx, a, r)
	if err != nil {
		return nil, err
	}
	if r.Install.Port > 0 {
		i.Port = r.Install.Port
	}
	box, err := a.Box(ctx)
	if err != nil {
		return nil, err
	}
	folder := "/tmp/install-agent-" + a.Instance
	if err := m.put(ctx, box, folder); err != nil {
		return nil, err
	}
	run := &a2aRunner{agent: a, box: box, model: m.stored.Model}
	if err := m.install(ctx, run, i, folder, r); err != nil {
		return nil, errors.Join(err, run.Close())
	}
	a.Version, a.URL, a.Card = m.stored.Version, run.client.Base(), run.card.Raw
	return run, nil
}

func (m installMaker) install(ctx context.Context, run *a2aRunner, i installation, folder string, r AgentRequest) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(i.Port))
	if c, err := run.box.Dial(ctx, "tcp", address); err == nil { // it would be taken for the agent
		_ = c.Close()
		return fmt.Errorf("something in the sandbox serves at port %d already, where the agent is to serve; give it another port with a2a_port", i.Port)
	}
	if err := run.serveModel(ctx); err != nil {
		return err
	}
	name, bin := cmp.Or(r.Install.Container, "container"), ""
	if len(i.Commands) == 0 {
		bin = folder + "/bin"
		if err := engineShims(ctx, run.box, bin, name); err != nil {
			return err
		}
		i.Commands, i.Params = i.Engine, append(i.EngineParams, "container")
	}
	values := map[string]string{
		"container": name, "work_dir": folder, "agent_ctx_tar": folder + "/" + contextFile, "a2a_port": strconv.Itoa(i.Port), "agent_name": run.agent.Name,
		"litellm_base_url": "http://" + run.modelAt, "litellm_api_key": dummyKey, "litellm_extra_headers": "{}", "trust_env": "",
	}
	if r.Install.Workspace != "" {
		values["workspace_dir"] = r.Install.Workspace
	}
	for n, text := range i.Commands {
		command, err := fillIn(text, i.Params, values)
		if err != nil {
			return fmt.Errorf("install command %d: %w", n+1, err)
		}
		res, err := guest.Output(ctx, run.box, guest.Command{Argv: installArgv(bin, command), Timeout: installTime}, guest.Limits{Stdout: 1 << 10, Stderr: 4 << 10})
		switch {
		case err != nil:
			return step.Infra(fmt.Errorf("install command %d: %w", n+1, err))
		case res.Exit.TimedOut:
			return fmt.Errorf("install command %d took more than %s", n+1, installTime)
		case !res.Exit.OK():
			said := strings.TrimSpace(strings.ToValidUTF8(string(res.Stderr.Tail), "") + "\n" + strings.ToValidUTF8(string(res.Stderr.Head), ""))
			return fmt.Errorf("install command %d ended with exit code %d: %s", n+1, res.Exit.Status(), said)
		}
	}
	run.transport = &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return run.box.Dial(ctx, "tcp", address) },
		DisableCompression: true,
	}
	var err error
	if run.client, err = a2a.New("http://"+address, run.transport); err != nil {
		return err
	}
	return run.awaitInstalled(ctx)
}

// Limits of an installation.
const (
	installTime   = 20 * time.Minute // of one command
	installedTime = 300 * time.Second
	installedLook = 100 * time.Millisecond
)

// awaitInstalled waits for the card of a program that nobody here has started.
func (r *a2aRunner) awaitInstalled(ctx context.Context) error {
	wait, cancel := context.WithTimeoutCause(ctx, installedTime, fmt.Errorf("the installed agent did not answer its card within %s", installedTime))
	defer cancel()
	for {
		card, err := r.client.Card(wait)
		if err == nil {
			r.card = card
			return nil
		}
		t := time.NewTimer(installedLook)
		select {
		case <-t.C:
		case <-wait.Done():
			t.Stop()
			return context.Cause(wait)
		}
	}
}

// fillIn puts what a command declares that it needs into it, quoted for a shell. Braces that are doubled stand for themselves.
func fillIn(text string, declared []string, values map[string]string) (string, error) {
	var b strings.Builder
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		brace := text[i]
		if text = text[i+1:]; text != "" && text[0] == brace {
			b.WriteByte(brace)
			text = text[1:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if brace == '}' || end < 0 {
			return "", errors.New("it has a single brace; those that stand for themselves are doubled")
		}
		name := text[:end]
		v, ok := values[name]
		switch {
		case !slices.Contains(declared, name):
			return "", fmt.Errorf("it uses {%s}, which the card doesn't declare to be required", name)
		case !ok:
			return "", fmt.Errorf("nothing says what {%s} is; known are %s, and workspace_dir where the step sets it", name, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		b.WriteString(shellWord(v))
		text = text[end+1:]
	}
	return b.String() + text, nil
}

// read starts the agent once, in a sandbox of its own that is gone afterwards, for what its card says.
func (m installMaker) read(ctx context.Context, a *Agent, r AgentRequest) (i installation, err error) {
	r.Sandbox, r.Install, r.Name = "", nil, "the card of "+r.Name
	probe := &Agent{Name: r.Name, ID: r.ID, Run: r.Run, Step: r.Step, Instance: a.Instance + "-card", all: a.all, req: r}
	run, err := m.serverMaker.Start(ctx, probe, r)
	defer func() {
		if run != nil {
			err = errors.Join(err, run.Close())
		}
		if probe.OwnBox() != nil {
			_, rerr := a.all.boxes.Remove(context.WithoutCancel(ctx), r.Run, probe.boxName())
			err = errors.Join(err, rerr)
		}
	}()
	if err != nil {
		return i, fmt.Errorf("start the agent once, to read its card: %w", err)
	}
	card, err := wire.ParseAgentCard(probe.Card)
	if err != nil {
		return i, err
	}
	x := card.Extension(wire.URNInstall)
	if x == nil {
		return i, fmt.Errorf("%s %w", wire.URNInstall, ErrNotServed)
	}
	if err := json.Unmarshal(x.Params, &i); err != nil {
		return i, fmt.Errorf("what the card says of %s can't be read: %w", wire.URNInstall, err)
	}
	if len(i.Commands) == 0 && len(i.Engine) == 0 {
		return i, fmt.Errorf("install commands, which its card doesn't have, are what the agent is installed by: %s %w", wire.URNInstall, ErrNotServed)
	}
	if i.Port == 0 && a.req.Install.Port == 0 {
		return i, errors.New("neither the step nor the card says at which port the agent serves (a2a_port)")
	}
	return i, nil
}

// contextFile is the agent's folder, packed, where its commands find it.
const contextFile = "agent-ctx.tar.gz"

// put packs the agent's files into a folder of the sandbox.
func (m installMaker) put(ctx context.Context, box guest.Box, folder string) error {
	var packed bytes.Buffer
	if err := pack(ctx, m.maker.store, m.stored.Part.Source.Files, &packed); err != nil {
		return step.Infra(fmt.Errorf("pack the agent's folder: %w", err))
	}
	if err := guest.Put(ctx, box, folder, []guest.PutFile{guest.PutBytes(contextFile, 0o600, packed.Bytes())}); err != nil {
		return step.Infra(fmt.Errorf("put the agent's folder into the sandbox: %w", err))
	}
	return nil
}

// maxContext bounds an agent's folder, in bytes.
const maxContext = 512 << 20

func pack(ctx context.Context, s envstore.Reader, files []artifact.Bytes, to io.Writer) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	var size int64
	for _, f := range files {
		h := &tar.Header{Name: f.Path, Mode: int64(f.Mode), Typeflag: tar.TypeReg, Size: f.Size}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, f.Link, 0, 0o777
		case f.Folder:
			h.Typeflag, h.Size, h.Mode = tar.TypeDir, 0, 0o755
		}
		if size += h.Size; size > maxContext {
			return fmt.Errorf("it holds more than %d MiB", maxContext>>20)
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		r, _, err := store.OpenVerified(ctx, s, f.Digest)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), z.Close())
}

var _ Maker = installMaker{}
