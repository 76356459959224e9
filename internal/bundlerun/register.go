package bundlerun

import (
	"context"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
)

// Register walks a bundle as far as its write: everything that it holds is stored, also what no task needs, and nothing runs. What could not run
// here is a warning, since another machine may run it. Errors are as Run's.
func (e *Engine) Register(ctx context.Context, r Request, rep WriteReporter) (Summary, error) {
	s := newSummary(r)
	r.Selection = bundle.Selection{All: true}
	_, _, err := e.write(ctx, r, rep, &s, func(ctx context.Context, p *bundle.Plan, r Request) diag.List {
		l := e.preflight(ctx, p, r)
		for i := range l {
			l[i].Severity = max(l[i].Severity, diag.Warning)
		}
		return l
	})
	return s, err
}

func newSummary(r Request) Summary {
	return Summary{Bundle: r.Source.Root, IDRoot: r.Source.IDRoot, DryRun: r.DryRun, Writes: []ledger.Line{}, Runs: []RunResult{}}
}

// write walks a bundle as far as its write. With errors nothing was written.
func (e *Engine) write(
	ctx context.Context, r Request, rep WriteReporter, s *Summary, preflight func(context.Context, *bundle.Plan, Request) diag.List,
) (*bundle.Plan, ledger.Result, error) {
	w, err := e.plan(ctx, r, ledger.View(e.Store))
	if err != nil {
		return nil, ledger.Result{}, err
	}
	p, l := w.plan, w.problems
	if !l.HasErrors() {
		l = append(l, e.checkTypes(ctx, p)...)
	}
	if !l.HasErrors() {
		l = append(l, preflight(ctx, p, r)...)
	}
	if err := l.Err(); err != nil {
		return nil, ledger.Result{}, refused(err, l, w.unmet)
	}
	lacks, err := declaration(ctx, w.bundle, r)
	if err != nil {
		return nil, ledger.Result{}, err
	}
	if len(l) > 0 {
		rep.Problems(l)
	}
	// The stores come first: what a registry refuses leaves the bundle's folder as it was, too.
	wrote, err := ledger.Write(ctx, e.Store, p, ledger.Options{DryRun: r.DryRun, Waiting: rep.Waiting, Make: e.MakeArtifact, Pin: e.Pin})
	if err != nil {
		return nil, ledger.Result{}, err
	}
	declared, hints := lacks.write()
	if len(hints) > 0 {
		rep.Problems(hints)
	}
	if declared != nil {
		s.Declared = declared
		rep.Declared(*declared)
	}
	for _, line := range wrote.Lines {
		s.Writes = append(s.Writes, line)
		rep.Wrote(line)
	}
	return p, wrote, nil
}

// checkTypes asks plugins what is wrong with what is of their types.
func (e *Engine) checkTypes(ctx context.Context, p *bundle.Plan) diag.List {
	var l diag.List
	for _, w := range p.Writes {
		if w.Plugin && e.CheckType != nil {
			l = append(l, p.InConfig(w, e.CheckType(ctx, w))...)
		}
	}
	return l
}
