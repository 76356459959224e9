package appserve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// Variables of hooks.
const (
	partsVariable = "AGENTENV_PARTS" // folder with what to load
	outVariable   = "AGENTENV_OUT"   // folder for what is exported
)

// maxSaid is how many bytes of what a hook says last its error holds.
const maxSaid = 2000

// hooks are the programs of a folder in place of the default data plane.
type hooks struct {
	app     *appdir.App
	folder  string
	home    string // links resolved
	environ []string
}

// call runs a hook, and tells with what it said last when it fails.
func (h *hooks) call(ctx context.Context, argv []string, vars ...string) error {
	cmd, err := command(ctx, h.folder, argv, append(slices.Clip(h.environ), vars...))
	if err != nil {
		return err
	}
	said := &subprocess.Tail{Max: maxSaid}
	cmd.Stderr = said
	err = run(ctx, cmd)
	if text := strings.TrimSpace(strings.ToValidUTF8(said.Text(), "\uFFFD")); err != nil && text != "" && ctx.Err() == nil {
		return errors.New(text)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%s ended: %w", argv[0], exit)
	}
	return err
}

// scratch makes a folder for one call, in the home's own place for that.
func (h *hooks) scratch() (*atomicfile.Scratch, error) {
	dir := filepath.Join(h.home, home.Private, "tmp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(h.home, real); err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("%s leads out of the home by a link", home.Private+"/tmp")
	}
	return atomicfile.NewScratchIn(real, "hook-"+h.app.Name)
}

func (h *hooks) add(ctx context.Context, parts []*app.Part) (err error) {
	s, err := h.scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Remove()) }()
	if err := writeParts(ctx, s.Dir, parts); err != nil {
		return err
	}
	return h.call(ctx, h.app.Hooks.Add, partsVariable+"="+s.Dir)
}

func (h *hooks) reset(ctx context.Context) error { return h.call(ctx, h.app.Hooks.Reset) }

func (h *hooks) get(ctx context.Context, to *env.Namespace) (parts []wire.Part, err error) {
	s, err := h.scratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Remove()) }()
	if err := h.call(ctx, h.app.Hooks.Get, outVariable+"="+s.Dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var top []string
	for _, e := range entries {
		if e.Name() == partsFile {
			return readParts(ctx, s.Dir, to)
		}
		top = append(top, e.Name())
	}
	out := home.NewAnswer(to)
	err = out.Read(ctx, s.Dir, top, nil)
	return out.Parts(), err
}
