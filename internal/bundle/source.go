package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
)

// Source is where a bundle is read from. The zero value of what it lacks is legal but for FS and IDRoot.
type Source struct {
	// FS holds the bundle at its root. Links are followed where it is an fs.ReadLinkFS; opening a file must not block.
	FS     fs.FS
	Name   string // the bundle's name
	Root   string // as shown to people: an absolute path, or "<distribution>/<name>"
	Dir    string // the folder's real path; empty when the bundle is no folder of this machine
	IDRoot string // "@local/~/b": ids are made of it
	Part   bool   // a part of a bundle, which need not hold anything to run
	ByPath bool   // a folder of this machine that a person named by its path

	close func() error
}

// Close releases the folder. Files of plans made from the source can't be opened any more.
func (s Source) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// Options are what reading a bundle depends on besides the bundle.
type Options struct {
	// Kinds are the known step types.
	Kinds *catalog.Set[*step.Kind]
	// EnvTypes and ArtifactTypes are those of plugins; nil: there are none.
	EnvTypes, ArtifactTypes *catalog.Set[*Type]
	// TypeAliases are other spellings of artifact types, from configuration.
	TypeAliases map[string]string
	// EnvProviders are the environment providers besides the built-in ones.
	EnvProviders []string
	// AllowUnknownFields turns the refusal of unknown step fields into a warning.
	AllowUnknownFields bool
	// Aliases are names of installed agents and environments that steps may use, by kind. A bundle's own entries come first.
	Aliases map[ref.Kind]map[string]string
	// MoreAliases are those that take some finding, asked for what Aliases lacks. It may be nil.
	MoreAliases func() map[ref.Kind]map[string]string
	// Installed finds the installed bundle whose ids id is under; false when there is none. Entities of it that a bundle names become part of the
	// plan. Sources that it answers stay open as long as plans are used; who hands it in closes them. It may be nil.
	Installed func(id string) (Source, bool, error)
	// Plugins is what is installed beside the program. It may be nil: then no requirement is held against anything.
	Plugins Plugins
}

// Alias is the id that a name of an agent or environment stands for; "" for none.
func (o Options) Alias(k ref.Kind, name string) string {
	if id, ok := o.Aliases[k][name]; ok || o.MoreAliases == nil || k != ref.Agent && k != ref.Env || strings.HasPrefix(name, "@") {
		return id
	}
	return o.MoreAliases()[k][name]
}

// OpenFolder makes a source of a folder of this machine. Links in path are resolved, so that ids don't depend on the way there; home is the
// user's home folder, or empty. The error is a diag.Refusal. The caller closes the source.
func OpenFolder(path, home string) (Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Source{}, refuse(path, "bundle.path", "can't be found: "+err.Error(), "")
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return Source{}, refuse(abs, "bundle.path", reason(err, "no such folder"), "")
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return Source{}, refuse(abs, "bundle.path", reason(err, "no such folder"), "")
	case !info.IsDir():
		return Source{}, refuse(abs, "bundle.path", "this is neither a folder nor an installed bundle", "name the bundle's folder")
	}
	if h, err := filepath.EvalSymlinks(home); home != "" && filepath.IsAbs(home) && err == nil {
		home = h
	} else {
		home = ""
	}
	if l := badNames(real, home); len(l) > 0 {
		return Source{}, l.Err()
	}
	root, err := ref.RootOf(filepath.ToSlash(real), filepath.ToSlash(home))
	if err != nil {
		return Source{}, refuse(real, "bundle.root", err.Error(), "")
	}
	f, err := openFolder(real)
	if err != nil {
		return Source{}, refuse(abs, "bundle.path", reason(err, "no such folder"), "")
	}
	return Source{FS: f, Name: ref.NFC(filepath.Base(real)), Root: real, Dir: real, IDRoot: root, ByPath: true, close: f.Close}, nil
}

// badNames are the folders on the way to a bundle, from the home folder or the root on, whose names no id holds.
func badNames(dir, home string) diag.List {
	rest, below := strings.CutPrefix(dir, strings.TrimRight(home, "/")+"/")
	if home == "" || !below {
		rest = dir[1:]
	}
	at := strings.TrimSuffix(dir, rest)
	var l diag.List
	for name := range strings.SplitSeq(rest, "/") {
		at += name
		if err := ref.CheckSegment(ref.NFC(name)); name != "" && err != nil {
			l.Add(diag.Problem{
				Pos: diag.Pos{File: diag.Clean(at)}, Code: "bundle.root", Prefixed: true, Summary: "move the bundle, or rename this folder: " + err.Error(),
			})
		}
		at += "/"
	}
	return l
}

func refuse(file, code, summary, fix string) error {
	return diag.List{{Pos: diag.Pos{File: diag.Clean(file)}, Code: code, Summary: diag.Clean(summary), Fix: fix, Prefixed: true}}.Err()
}

// reason is why a path can't be read, in words, without the path; missing is the word for one that doesn't exist.
func reason(err error, missing string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case errors.Is(err, fs.ErrPermission):
		return "can't be read: permission denied"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return "can't be read: " + err.Error()
}
