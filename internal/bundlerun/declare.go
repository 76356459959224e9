package bundlerun

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
)

// Declaring is what is done about types of plugins that a bundle uses and bundle.toml doesn't declare.
type Declaring uint8

const (
	// DeclareWrite writes bundle.toml where a folder that was named by its path has none, and else gives the hint.
	DeclareWrite Declaring = iota
	// DeclareHint gives the hint and writes nothing.
	DeclareHint
	// DeclareSilent says nothing.
	DeclareSilent
)

// Declared is a bundle.toml that was written, or would be.
type Declared struct {
	DryRun   bool     `json:"dry_run,omitempty"`
	Requires []string `json:"requires"`

	line string
}

// String is the line that tells people of it.
func (d Declared) String() string {
	verb := "wrote "
	if d.DryRun {
		verb = "would write "
	}
	return verb + bundle.ManifestName + ": " + d.line
}

// declaringFor is what is done about a bundle: whoever runs an installed one, or puts a part of one, can't declare anything.
func declaringFor(r Request) Declaring {
	if !r.Source.ByPath || r.Source.Part {
		return DeclareSilent
	}
	return r.Declare
}

// declaring is what bundle.toml lacks, and what is done about it.
type declaring struct {
	bundle.Declaration
	how    Declaring
	source bundle.Source
	dryRun bool
}

// declaration finds what a bundle.toml lacks. Nothing is written.
func declaration(ctx context.Context, b *bundle.Bundle, r Request) (d declaring, err error) {
	d = declaring{how: declaringFor(r), source: r.Source, dryRun: r.DryRun}
	if d.how != DeclareSilent {
		d.Declaration, err = b.Declaration(ctx)
	}
	return d, err
}

// write writes or hints at what bundle.toml lacks. It never touches a file that is there, and what keeps it from writing is no error: the hint says it.
func (d declaring) write() (*Declared, diag.List) {
	if d.how == DeclareSilent || len(d.Missing) == 0 {
		return nil, d.Hints
	}
	path := filepath.Join(d.source.Dir, bundle.ManifestName)
	why := ""
	switch {
	case d.Exists:
		return nil, append(d.Hints, hint(d.Declaration, "it doesn't require what brings the "+d.Why))
	case d.how == DeclareHint:
		why = "there is none"
	case d.dryRun:
		if err := unix.Faccessat(unix.AT_FDCWD, d.source.Dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			why = cause(err)
		}
	default:
		err := atomicfile.CreateBytes(path, 0o644, []byte(d.Text()))
		if errors.Is(err, fs.ErrExist) { // somebody else declares
			return nil, d.Hints
		}
		if _, missing := os.Lstat(path); err != nil && missing != nil {
			why = cause(err)
		}
	}
	if why != "" {
		return nil, append(d.Hints, hint(d.Declaration, why+", and this bundle uses the "+d.Why))
	}
	return &Declared{DryRun: d.dryRun, Requires: d.Requires, line: d.Line()}, d.Hints
}

func hint(d bundle.Declaration, summary string) diag.Problem {
	return diag.Problem{
		Pos: diag.Pos{File: bundle.ManifestName}, Code: "bundle.undeclared", Severity: diag.Hint, Prefixed: true,
		Summary: summary, Fix: "declare it with: " + d.Line(),
	}
}

// cause is why the file can't be written, in a word.
func cause(err error) string {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return "it can't be written: " + diag.Clean(err.Error())
	}
	return "it can't be written (" + strings.ToLower(number.Error()) + ")"
}

// UnmetRequirements is the refusal of a bundle that requires what isn't installed.
type UnmetRequirements struct {
	// Refusal holds all that is wrong with the bundle.
	Refusal error
	// Install are the requirements that plugin add can meet, as declared, in the order of bundle.toml.
	Install []string
	// Only says that nothing else is wrong.
	Only bool
}

func (e *UnmetRequirements) Error() string { return e.Refusal.Error() }

func (e *UnmetRequirements) Unwrap() error { return e.Refusal }

// refused is the refusal of a walk.
func refused(err error, l diag.List, u bundle.Unmet) error {
	if len(u.List) == 0 {
		return err
	}
	out := &UnmetRequirements{Refusal: err, Install: u.Install(), Only: true}
	for _, p := range l.Of(diag.Error) {
		out.Only = out.Only && p.Code == bundle.CodeUnmet
	}
	return out
}
