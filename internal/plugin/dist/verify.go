package dist

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/requirement"
)

const verifyTime = 300 * time.Second

// verify looks at the candidate: what is new must work, and what worked must go on working.
func (w *work) verify(ctx context.Context) error {
	if w.change.Plain {
		return w.settled()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, fmt.Errorf("loading the plugins takes longer than %s", verifyTime))
	defer cancel()
	o := w.report(w.after)
	after, err := w.after.Report(ctx, o)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("check the new plugin environment: %w", err)
	}
	changed := func(name string) bool {
		return slices.ContainsFunc(w.out.Diff, func(d Difference) bool {
			return requirement.Canonical(d.Name) == requirement.Canonical(name) && d.After != ""
		})
	}
	var worse []Contribution // of what the change didn't touch
	for _, p := range after.Plugins {
		ours := p.Git == "" && changed(p.Name) // a git plugin may have the name of a distribution
		for _, c := range p.Contributions {
			bad := c.Status != Active && c.Status != Replaced && !(c.Status == Unloaded && o.Loader == nil)
			if ours {
				w.out.Plugins = append(w.out.Plugins, c)
				w.tell(c)
			}
			switch {
			case bad && ours:
				w.problem("%s: %s is %s (%s)", p.Name, c.Name, c.Status, c.Reason)
			case bad:
				worse = append(worse, c)
			}
		}
	}
	for name, t := range after.Discovery {
		if changed(name) {
			w.problem("%s: %s", name, t.Reason)
		}
	}
	if err := w.worse(ctx, worse); err != nil {
		return err
	}
	w.vanished()
	if len(w.change.Add) > 0 && len(w.out.Plugins) == 0 && len(w.out.Problems) == 0 {
		w.problem("none of the packages that were installed declares an agent_env entry point: this is no plugin of agent-env")
	}
	return w.settled()
}

// settled ends a look at the candidate.
func (w *work) settled() error {
	w.core()
	slices.Sort(w.out.Problems)
	for _, p := range w.out.Problems {
		w.say("problem: %s", p)
	}
	return nil
}

// contained refuses packages that list files outside of the generation as theirs: whoever uninstalls them would remove those. It is no problem that can be
// kept.
func (w *work) contained() error {
	all, _ := w.after.Distributions()
	var errs []error
	for _, d := range all {
		if d.Dir == "" || !slices.ContainsFunc(w.out.Diff, func(x Difference) bool { return x.Name == d.Name && x.After != "" }) {
			continue
		}
		b, err := readBounded(filepath.Join(d.Dir, "RECORD"), maxRecord)
		if err != nil {
			errs = append(errs, fmt.Errorf("the RECORD of %s can't be read: %s", d.Name, reason(err)))
		} else if path := outside(string(b), filepath.Dir(d.Dir), w.after.root); path != "" {
			errs = append(errs, fmt.Errorf("%s %s can't be installed: its RECORD names %s, which is outside of the plugin environment", d.Name, d.Version, diag.Repr(path)))
		}
	}
	return errors.Join(errs...)
}

// outside is the first path of a RECORD, relative to site, that leads out of root; "" when none does.
func outside(record, site, root string) string {
	for line := range strings.Lines(record) {
		path := strings.TrimSpace(line)
		if quoted, ok := strings.CutPrefix(path, `"`); ok {
			path, _, _ = strings.Cut(quoted, `",`)
		} else {
			path, _, _ = strings.Cut(path, ",")
		}
		full := path
		if !filepath.IsAbs(full) {
			full = filepath.Join(site, full)
		}
		if rel, err := filepath.Rel(root, filepath.Clean(full)); path != "" && (err != nil || !filepath.IsLocal(rel)) {
			return path
		}
	}
	return ""
}

func (w *work) problem(format string, args ...any) {
	w.out.Problems = append(w.out.Problems, fmt.Sprintf(format, args...))
}

// tell says what became of a contribution: "agentenv-acme: task_steps acme_check active".
func (w *work) tell(c Contribution) {
	line := fmt.Sprintf("  %s: %s %s %s", c.Package, strings.TrimPrefix(c.Group, "agent_env."), c.Name, c.Status)
	if c.Reason != "" {
		line += " (" + c.Reason + ")"
	}
	w.say("%s", line)
}

// worse finds what worked before and doesn't now. The old generation is only looked at when something is amiss.
func (w *work) worse(ctx context.Context, bad []Contribution) error {
	if len(bad) == 0 {
		return nil
	}
	before, err := w.old.Report(ctx, w.report(w.old))
	if err != nil {
		return fmt.Errorf("check the plugin environment as it is: %w", err)
	}
	for _, c := range bad {
		same := slices.ContainsFunc(before.Plugins, func(p Plugin) bool {
			return p.Git == c.Git && p.Canonical() == requirement.Canonical(c.Package) &&
				slices.ContainsFunc(p.Contributions, func(o Contribution) bool { return o.EntryPoint == c.EntryPoint && o.Status == c.Status })
		})
		if !same {
			w.problem("%s: %s would be %s (%s)", c.Package, c.Name, c.Status, c.Reason)
		}
	}
	return nil
}

// vanished finds plugins that a change removes without having been asked to.
func (w *work) vanished() {
	before, _ := w.old.Distributions()
	for _, d := range w.out.Diff {
		if d.After != "" || slices.ContainsFunc(w.change.Remove, func(s string) bool { return requirement.Canonical(s) == requirement.Canonical(d.Name) }) {
			continue
		}
		if slices.ContainsFunc(before, func(o Distribution) bool { return o.Name == d.Name && o.Plugin() }) {
			w.problem("the plugin %s %s would go", d.Name, d.Before)
		}
	}
}

// core makes sure that the program's own distributions are the ones that it brought.
func (w *work) core() {
	if w.base == nil {
		return
	}
	all, _ := Scan(sitePackages(w.after.root))
	for _, own := range w.o.Own {
		i, found := search(all, requirement.Canonical(own.Name))
		if !found || all[i].Version != own.Version || !strings.HasPrefix(filepath.Clean(all[i].Dir), w.after.root) {
			w.problem("the installer changed %s, which is agent-env's own", own.Name)
		}
	}
}
