package verb

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/ref"
)

// FolderPut is a folder to store as the next version of an entity, as a bundle with that folder would.
type FolderPut struct {
	Group  string // of a bundle: "envs"
	What   string // for messages: "an environment"
	ID     string
	Folder string
	// More are files beside those of the folder, which must not have them: Flags says what they were made of.
	More   map[string][]byte
	Flags  string
	DryRun bool
	JSON   bool
}

// stored is what --json prints.
type stored struct {
	Format
	ID       string        `json:"id"`
	DryRun   bool          `json:"dry_run,omitempty"`
	Writes   []ledger.Line `json:"writes"`
	Problems []Problem     `json:"problems"`
}

// CheckPut tells that an id can't be given to what is stored by hand.
func (f *FolderPut) CheckPut() error {
	if err := ref.CheckAuthored(f.ID); err != nil || path.Dir(f.ID) == "@local" {
		return Usagef("%q is no id for %s: write @local/<folder>/<name>", f.ID, f.What)
	}
	return nil
}

// PutFolder stores a folder and tells what was written.
func (p *Program) PutFolder(ctx context.Context, a *app.App, f FolderPut) error {
	if err := f.CheckPut(); err != nil {
		return err
	}
	dir, err := bundle.OpenDir(f.Folder)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Folder, err)
	}
	for name := range f.More {
		if _, err := fs.Stat(dir.FS, name); err == nil {
			dir.Close()
			return Usagef("the folder has %s: write there what %s would say, and leave the flags out", name, f.Flags)
		}
	}
	src := bundle.Nest(dir, f.Group+"/"+path.Base(f.ID), path.Dir(f.ID), f.More)
	defer src.Close()
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	rep := &reporter{p: p}
	sum, err := engine.Register(ctx, bundlerun.Request{Source: src, DryRun: f.DryRun}, rep)
	if err != nil {
		return err
	}
	if f.JSON {
		return p.Streams.JSON(stored{V1(), f.ID, f.DryRun, sum.Writes, Problems(rep.problems)})
	}
	for _, l := range sum.Writes {
		p.Streams.Printf("%s\n", strings.TrimPrefix(l.String(), f.Group+"/"))
	}
	if f.DryRun {
		p.Streams.Println("Dry run: nothing is written.")
	}
	return nil
}

// reporter tells people what a write says before it ends.
type reporter struct {
	p        *Program
	problems diag.List
}

func (r *reporter) Problems(l diag.List) {
	r.problems = append(r.problems, l...)
	for _, w := range l.Of(diag.Warning) {
		r.p.Streams.Problem("Warning: %s", w)
	}
}

func (r *reporter) Wrote(ledger.Line) {}

func (r *reporter) Declared(bundlerun.Declared) {} // a part of a bundle declares nothing

func (r *reporter) Waiting() {
	r.p.Streams.Note("waiting for another agent-env run to finish writing this id")
}
