package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/toolcmd"
)

// Where commands are installed in an agent's sandbox: their files in a folder of their own, and a link on every PATH.
const (
	commandRoot = "/opt/cli"
	commandLink = "/usr/local/bin"
)

// ErrCommand: a command can't be installed into an agent's sandbox.
var ErrCommand = errors.New("can't be installed")

// CLI is a command with its files.
type CLI struct {
	Name       string // on the PATH
	Entrypoint string // of Files
	Files      []guest.PutFile
}

// Install puts a command into the agent's sandbox, which is made for it where the agent has none yet, and opens a door to the environment there that is
// this agent's alone. It answers the entrypoint's path. A command that the agent has is put in place of itself. The error is ErrCommand, or the machinery's.
func (a *Agent) Install(ctx context.Context, v *Env, c CLI) (string, error) {
	box, err := a.boxWithSelf(ctx)
	if err != nil {
		if errors.Is(err, ErrNoBox) {
			return "", fmt.Errorf("%s %w: %w", diag.Repr(c.Name), ErrCommand, err)
		}
		return "", err
	}
	a.installing.Lock()
	defer a.installing.Unlock()
	ours := a.commands[c.Name]
	link := path.Join(commandLink, c.Name)
	switch _, err := box.Stat(ctx, link); {
	case err == nil && !ours:
		return "", fmt.Errorf("%s %w: there is a %s in the sandbox already", diag.Repr(c.Name), ErrCommand, link)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", step.Infra(fmt.Errorf("look at %s of the agent's sandbox: %w", link, err))
	}
	url, err := a.doorTo(ctx, box, v)
	if err != nil {
		return "", err
	}
	if a.commands == nil {
		a.commands = map[string]bool{}
	}
	a.commands[c.Name] = true
	root := path.Join(commandRoot, c.Name)
	entry := path.Join(root, c.Entrypoint)
	files := make([]guest.PutFile, 0, len(c.Files)+1)
	for _, f := range c.Files {
		if f.Path == c.Entrypoint {
			f.Mode |= 0o111
		}
		files = append(files, f)
	}
	files = append(files, guest.PutBytes(toolcmd.EnvFileBeside(c.Entrypoint), 0o644, toolcmd.EnvFileOf(url)))
	err = guest.Put(ctx, box, root, files)
	if err == nil {
		err = guest.Put(ctx, box, commandLink, []guest.PutFile{{Path: c.Name, Link: entry}})
	}
	if err != nil {
		return "", step.Infra(fmt.Errorf("install %s into the agent's sandbox: %w", diag.Repr(c.Name), err))
	}
	return entry, nil
}

// boxWithSelf is the agent's sandbox, with this program in it.
func (a *Agent) boxWithSelf(ctx context.Context) (guest.Box, error) {
	a.open.Lock()
	if a.box == nil && a.info == nil {
		a.req.Spec.Self = true // one that is made now is shown it, which costs nothing
	}
	a.open.Unlock()
	box, err := a.Box(ctx)
	if err != nil {
		return nil, err
	}
	_, err = box.Stat(ctx, sandbox.SelfPath)
	if err == nil {
		return box, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, step.Infra(fmt.Errorf("look for agent-env in the agent's sandbox: %w", err))
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(exe)
	if err != nil {
		return nil, err
	}
	self := guest.PutFile{
		Path: path.Base(sandbox.SelfPath), Mode: 0o755, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(exe) },
	}
	if err := guest.Put(ctx, box, path.Dir(sandbox.SelfPath), []guest.PutFile{self}); err != nil {
		return nil, step.Infra(fmt.Errorf("put agent-env into the agent's sandbox: %w", err))
	}
	return box, nil
}

// doorTo is the URL, in the agent's sandbox, of a door to an environment for what the agent starts there. It is called with installing held.
func (a *Agent) doorTo(ctx context.Context, box guest.Box, v *Env) (string, error) {
	if url, ok := a.doors[v]; ok {
		return url, nil
	}
	addr, err := a.served.open(ctx, box, "127.0.0.1:0", v.Gateway.Door(a.Principal()))
	if err != nil {
		return "", step.Infra(fmt.Errorf("open a door to %s in the agent's sandbox: %w", diag.Repr(v.ID), err))
	}
	at, ok := addr.(*net.TCPAddr)
	if !ok {
		return "", step.Infra(errors.New("the agent's sandbox doesn't tell the port of a door"))
	}
	if a.doors == nil {
		a.doors = map[*Env]string{}
	}
	a.doors[v] = fmt.Sprintf("http://127.0.0.1:%d", at.Port)
	return a.doors[v], nil
}

// closeDoors ends the doors that Install opened.
func (a *Agent) closeDoors() {
	a.installing.Lock() // one that is under way opens a door yet
	defer a.installing.Unlock()
	a.served.close()
}
