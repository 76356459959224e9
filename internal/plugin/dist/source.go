package dist

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/requirement"
)

// errDryBuild: a dry run runs no code of packages.
var errDryBuild = errors.New("what is asked for doesn't all come as wheels: finding out what it needs runs build code of packages, and a dry run runs none")

// resolve plans an addition. Packages that come as source are built to be known, which runs their code: that is told, and asked, before it is done.
func (w *work) resolve(ctx context.Context, dir string) error {
	sources := w.sources()
	blind := len(sources) > 0 && w.tool.name() == "pip" // which builds what it is given as a path, whatever it is told
	if !blind {
		lines, said, err := w.plan(ctx, dir, true)
		if err == nil {
			w.out.Plan, w.wheels = lines, len(sources) == 0
			return nil
		}
		if !w.tool.needsSource(said) {
			return err
		}
		if w.change.DryRun {
			return fmt.Errorf("%w; %w", errDryBuild, err)
		}
	}
	if w.change.DryRun {
		return fmt.Errorf("%w: %s", errDryBuild, strings.Join(sources, ", "))
	}
	w.say("What is asked for doesn't all come as wheels. To tell what would be installed, the installer builds what comes as source: that runs code of it as you, outside of any sandbox.")
	if w.talk.Confirm != nil {
		if yes, err := w.talk.Confirm(ctx); err != nil || !yes {
			return errors.Join(err, declined(yes, err))
		}
	}
	lines, _, err := w.plan(ctx, dir, false)
	w.out.Plan = lines
	return err
}

// sources are, as messages show them, those of what is added that are given as folders, archives or addresses and aren't wheels.
func (w *work) sources() []string {
	var out []string
	for _, spec := range w.change.Add {
		at, _, _ := strings.Cut(spec, ";")
		if name, address, ok := strings.Cut(at, "@"); ok && !strings.ContainsAny(name, "/\\:") {
			at = address // NAME @ ADDRESS
		} else if !strings.ContainsAny(at, "/\\") && !archive(at) {
			continue // NAME and versions
		}
		if at, _, _ = strings.Cut(strings.TrimSpace(at), "#"); !strings.HasSuffix(strings.ToLower(at), ".whl") {
			out = append(out, requirement.Shown(spec))
		}
	}
	return out
}

// archive tells whether text is the name of a file that holds a package's source.
func archive(text string) bool {
	for _, end := range []string{".tar.gz", ".zip", ".tgz", ".tar.bz2", ".tar.xz"} {
		if strings.HasSuffix(strings.ToLower(strings.TrimSpace(text)), end) {
			return true
		}
	}
	return false
}
