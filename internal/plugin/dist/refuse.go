package dist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/requirement"
)

// refuse finds what is wrong with a change before anything is looked at.
func (m *Manager) refuse(c Change) error {
	var errs []error
	for _, s := range c.Add {
		errs = append(errs, checkSpec(s))
	}
	for _, s := range c.Remove {
		switch {
		case !validName(s):
			errs = append(errs, fmt.Errorf("%s is no name of a package", diag.Repr(s)))
		case requirement.IsCore(requirement.Canonical(s)):
			errs = append(errs, fmt.Errorf("%s is agent-env itself; uninstall it with the installer that installed it", s))
		}
	}
	for _, v := range append([]string{c.IndexURL}, c.FindLinks...) {
		if strings.HasPrefix(v, "-") || !requirement.Printable(v) {
			errs = append(errs, fmt.Errorf("%s is neither a URL nor a folder", diag.Repr(v)))
		}
	}
	return errors.Join(errs...)
}

// checkSpec refuses what must never reach an installer, and what would change agent-env itself.
func checkSpec(s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return errors.New("an empty text is no package")
	case !requirement.Printable(s):
		return fmt.Errorf("%s holds a character that can't be printed", diag.Repr(s))
	case strings.HasPrefix(strings.TrimSpace(s), "-"):
		return fmt.Errorf("%s is an option and no package", diag.Repr(s))
	}
	if name := specName(s); requirement.IsCore(name) {
		return fmt.Errorf("%s is agent-env itself; upgrade agent-env with the installer that installed it", name)
	}
	if IsFile(s) {
		if _, err := os.Stat(s); err != nil {
			return fmt.Errorf("there is no file %s", diag.Repr(s))
		}
		return nil
	}
	if strings.Contains(s, "://") {
		return nil // a URL, or `name @ URL`, which the installer reads
	}
	if _, err := requirement.Parse(s); err != nil {
		return fmt.Errorf("%s %w", diag.Repr(s), err)
	}
	return nil
}

// IsFile tells whether a text names a file or folder of this machine and not a package of an index.
func IsFile(s string) bool {
	return !strings.Contains(s, "://") && (strings.HasPrefix(s, ".") || filepath.IsAbs(s) || strings.HasSuffix(s, ".whl") || strings.HasSuffix(s, ".tar.gz") || strings.HasSuffix(s, ".zip"))
}

// IsFolder tells whether a place to look for packages is a folder of this machine and no page.
func IsFolder(s string) bool {
	return s != "" && !strings.Contains(s, "://") && !strings.HasPrefix(s, "-")
}

// specName is the canonical name of what a text installs, from a requirement, a URL requirement, or the name of a file or URL of a wheel or
// source archive; "" when the text doesn't tell.
func specName(s string) string {
	s = strings.TrimSpace(s)
	if r, err := requirement.Parse(s); err == nil {
		return r.Canonical()
	}
	if head, _, ok := strings.Cut(s, "@"); ok {
		head, _, _ = strings.Cut(head, "[")
		if head = strings.TrimSpace(head); validName(head) {
			return requirement.Canonical(head)
		}
	}
	s, _, _ = strings.Cut(s, "#")
	s, _, _ = strings.Cut(s, "?")
	file := s[strings.LastIndexAny(s, `/\`)+1:]
	for _, suffix := range []string{".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz"} {
		stem, ok := strings.CutSuffix(file, suffix)
		if !ok {
			continue
		}
		if suffix == ".whl" {
			stem, _, _ = strings.Cut(stem, "-")
		} else if i := strings.LastIndex(stem, "-"); i > 0 {
			stem = stem[:i]
		}
		if validName(stem) {
			return requirement.Canonical(stem)
		}
	}
	return ""
}

// removable refuses names that aren't plugins of the environment, all at once.
func (w *work) removable(context.Context) error {
	all, _ := w.old.Distributions()
	var errs []error
	for _, name := range w.change.Remove {
		i, found := search(all, requirement.Canonical(name))
		switch {
		case !found:
			errs = append(errs, fmt.Errorf("%s is not installed", name))
		case !all[i].Plugin():
			errs = append(errs, fmt.Errorf("%s declares no agent_env entry point, so it is no plugin", all[i].Name))
		}
	}
	return errors.Join(errs...)
}
