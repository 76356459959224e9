package gitplugins

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Activation is what people say to what a plugin bundle asks, where what is installed is turned on at once.
type Activation struct {
	Typed   map[string]string // of inputs and of MCP servers' inputs, by key
	Secrets map[string]string // of the bundle, by key
}

// Activated is what turning on and seeding did.
type Activated struct {
	Enabled  []string // ids that were turned on now
	Servers  []string // MCP servers that were added
	Off      []string // those of them that lack a required value, and are off
	Written  []string // keys of settings that were written
	Warnings []string
	// Err is why nothing of this was done: what was installed stays, and settings and secrets are what they were.
	Err error
}

// Unanswered is the error of a plugin bundle that has to be told something first. Nothing was changed.
type Unanswered struct {
	Problems  []string
	Questions []workspace.Question // all that it asks
}

func (e *Unanswered) Error() string { return strings.Join(e.Problems, "\n") }

// answers reads what people said, and refuses what is missing or wrong, all at once.
func (p *Plugins) answers(ctx context.Context, s *git.Store, k *pack.Pack, a Activation) (workspace.Answers, error) {
	m, err := p.open(s, k)
	if err != nil {
		return workspace.Answers{}, err
	}
	return p.answersTo(ctx, m, a)
}

// answersTo is answers for what a manifest asks.
func (p *Plugins) answersTo(ctx context.Context, m *pack.Manifest, a Activation) (workspace.Answers, error) {
	delegates, err := p.o.Delegates(ctx)
	if err != nil {
		return workspace.Answers{}, err
	}
	names := sorted(delegates)
	got, l := workspace.ReadAnswers(m, a.Typed)
	l.Add(workspace.Gate(m, got, names)...)
	var problems []string
	for _, x := range l.Of(diag.Error) {
		if x.Code == "workspace.required" {
			x.Fix = "" // it names a flag
		}
		x.Where = strings.TrimPrefix(x.Where, "--input")
		problems = append(problems, x.String())
	}
	for _, key := range sorted(a.Secrets) {
		if !slices.ContainsFunc(m.Secrets, func(s pack.Secret) bool { return s.Key == key }) {
			problems = append(problems, diag.Repr(key)+" is no secret of the bundle "+m.ID)
		}
	}
	if len(problems) > 0 {
		return workspace.Answers{}, &Unanswered{problems, workspace.Questions(m, names)}
	}
	got.Secrets, got.Delegates = a.Secrets, delegates
	return got, nil
}

// open is a pack's manifest in which nothing is required that has a value already.
func (p *Plugins) open(s *git.Store, k *pack.Pack) (*pack.Manifest, error) {
	var f workspace.Files
	var err error
	if f.Config, err = s.Folder().Read(folder.Config); err != nil {
		return nil, err
	}
	if f.Secrets, err = s.Folder().Read(folder.Secrets); err != nil {
		return nil, err
	}
	return workspace.Open(k, f, p.set), nil
}

func (p *Plugins) set(path []string) bool { return p.o.Set(path...) }

// activatePlugin turns a plugin on inside of a change of the workspace.
func (p *Plugins) activatePlugin(tx *folder.Tx, s *git.Store, i *git.Item, out *Activated) {
	if why := s.TooNew(i.Manifest); why != "" {
		out.Err = fmt.Errorf("%s: %s", i.ID(), why)
		return
	}
	var turned bool
	out.Err = workspace.EditSettings(tx, func(e *workspace.Settings) (err error) {
		turned, err = e.Enable(i.ID())
		return err
	})
	if out.Err == nil && turned {
		out.Enabled = []string{i.ID()}
	}
}

// activatePack seeds what a plugin bundle gives inside of a change of the workspace, and answers what it gave, now and earlier.
func (p *Plugins) activatePack(tx *folder.Tx, l *git.Lock, k *pack.Pack, a workspace.Answers, out *Activated) []git.Seeded {
	var earlier []git.Seeded
	if row := l.Bundle(k.Manifest.ID); row != nil {
		earlier = row.Seeded
	}
	done, err := workspace.Install(tx, l, workspace.Seeding{
		Pack: k.Manifest, Sections: workspace.Sections(k), Known: k.Known(p.builtins()), Answers: a, Env: p.o.Granted,
		Set: p.set,
		Check: func(f workspace.Files) error {
			if p.o.Check == nil {
				return nil
			}
			return p.o.Check(f.Config).Err()
		},
	})
	if err != nil {
		out.Err = err
		return earlier
	}
	out.Enabled, out.Servers, out.Off, out.Written = done.Enabled, done.Servers, done.Off, done.Written
	for _, w := range done.Warnings.Of(diag.Warning) {
		out.Warnings = append(out.Warnings, w.String())
	}
	return done.Rows
}
