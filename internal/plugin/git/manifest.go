package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Names of manifests, at the root of a repository. The second of each pair is protoAgent's, read with the same meaning.
const (
	PluginFile     = "agentenv.plugin.yaml"
	PeerPluginFile = "protoagent.plugin.yaml"
	BundleFile     = "agentenv.bundle.yaml"
	PeerBundleFile = "protoagent.bundle.yaml"
)

// Manifest is what a git plugin says of itself.
type Manifest struct {
	File string // which of the two names it has
	Peer bool   // it is protoAgent's spelling

	ID, Name, Version, Description string
	Enabled                        bool // the author's wish to be on once installed; on by itself it turns nothing on
	Builtin                        bool // only what comes with the program may say so
	RequiresEnv                    []string
	Capabilities                   doc.Node // an object, shown and never enforced
	Entrypoint                     string   // Python's, which only protoAgent imports
	ConfigSection                  string   // the name that bundles' config uses for it
	Config                         doc.Node // an object: defaults of its settings
	Secrets                        []string // keys of Config that are secret
	Settings                       []Setting
	Tabs                           []Tab
	Test                           bool
	GuideURL                       string
	Views                          []View
	PublicPaths                    []string // what needs no token, its views included
	FederationPaths                []string
	Emits                          []Topic
	Subscribes                     []string
	Requires                       []Package
	Repository, Homepage           string
	MinVersion                     string // of agent-env, or of protoAgent in its spelling
	Supersedes                     []Source

	// Only agentenv.plugin.yaml has these.
	Command []string // argv of a program that speaks docs/plugin-protocol.md; agentenv_plugin.json beside the manifest lists its types
	MCP     doc.Node // a list of servers, as bundle manifests list them
	Bundles []string // folders with bundles

	// Found in the tree.
	Types     []plugin.Type // what Command serves, by agentenv_plugin.json beside the manifest
	Skills    []string      // names of folders in skills/ with a SKILL.md
	Workflows []string      // names of files in workflows/
	Python    []string      // what protoAgent would import into its process, and nothing here does
}

// Setting is a field of a plugin's settings form.
type Setting struct {
	Key, Label, Type, Description string
	Required                      bool
	Node                          doc.Node // all of it
}

// Tab is a tab of the settings.
type Tab struct{ ID, Label, Path string }

// View is a page of a plugin.
type View struct {
	ID, Label, Icon, Path, Slot string
	Node                        doc.Node // all of it
}

// Page is the file of the tree of the plugin id that a view shows, and its address below that tree, with what stands behind the path ("a/b.html?x=1#y").
// "" where the path isn't the plugin's own.
func (v View) Page(id string) (file, address string) {
	u, err := url.Parse(v.Path)
	if err != nil || u.IsAbs() || u.Host != "" || !ownPath(u.Path, id) {
		return "", ""
	}
	file, ok := strings.CutPrefix(u.Path, "/plugins/"+id+"/")
	if !ok {
		return "", ""
	}
	if file == "" || strings.HasSuffix(file, "/") {
		file += "index.html"
	}
	return file, (&url.URL{Path: "./" + file, RawQuery: u.RawQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}).String()[2:]
}

// Topic is an event that a plugin emits.
type Topic struct {
	Topic, Summary string
	Schema         doc.Node // absent without one
}

// Package is a Python package that a plugin needs; it is never installed by an install.
type Package struct {
	Spec     string
	Optional bool
	Scope    string // "runtime" or "host"
}

var (
	idForm   = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	nameForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

const maxID = 100

// reserved are ids that would be mistaken for verbs of the command line and routes of the API.
func reserved() []string {
	return []string{"install", "installed", "sync", "updates", "catalog", "enabled", "ack", "install-deps", "bundles", "new", "host"}
}

// CoreSections are names that no plugin's settings may have.
func CoreSections() []string {
	return []string{
		"model", "auth", "network", "security", "egress", "plugins", "filesystem", "projects", "onboarding", "delegates", "identity", "instance",
		"secrets", "mcp", "self_improvement", "git_plugins", "sandbox", "state", "stores", "agents", "envs", "runner", "explorer", "judge", "task_steps", "bundles",
	}
}

// CheckID says what is wrong with the id of a git plugin or a bundle.
func CheckID(id string) error {
	switch {
	case id == "":
		return errors.New("the id is empty")
	case len(id) > maxID:
		return fmt.Errorf("the id has more than %d characters", maxID)
	case !idForm().MatchString(id):
		return fmt.Errorf("the id %s has other characters than letters, digits, dashes and underscores, or begins with one of the last two", diag.Repr(id))
	case slices.Contains(reserved(), strings.ToLower(id)):
		return fmt.Errorf("the id %s is reserved", diag.Repr(id))
	default:
		return nil
	}
}

// safeName tells a text that can be one part of a path.
func safeName(s string) bool {
	return len(s) <= maxID && nameForm().MatchString(s) && !strings.Contains(s, "..")
}

// Kind is what a repository holds.
type Kind int

const (
	Plugin Kind = iota + 1
	Bundle
)

func (k Kind) String() string {
	switch k {
	case Plugin:
		return "plugin"
	case Bundle:
		return "bundle"
	default:
		return "nothing"
	}
}

// Detect tells what a repository holds, and in which file it says so. Both kinds at once, or both spellings of one, are ambiguous.
func Detect(fsys fs.FS) (Kind, string, error) {
	var found []string
	kind := Kind(0)
	for _, f := range []struct {
		name string
		kind Kind
	}{{PluginFile, Plugin}, {PeerPluginFile, Plugin}, {BundleFile, Bundle}, {PeerBundleFile, Bundle}} {
		fi, err := fs.Stat(fsys, f.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, "", err
		}
		if !fi.Mode().IsRegular() {
			return 0, "", fmt.Errorf("%s is no file", f.name)
		}
		// Both spellings of one manifest serve both programs: ours counts here.
		if kind == f.kind {
			continue
		}
		found, kind = append(found, f.name), f.kind
	}
	switch len(found) {
	case 0:
		return 0, "", fmt.Errorf("it is no plugin and no bundle: its root has neither %s nor %s (nor %s, %s)", PluginFile, BundleFile, PeerPluginFile, PeerBundleFile)
	case 1:
		return kind, found[0], nil
	default:
		return 0, "", fmt.Errorf("it is ambiguous: its root has both %s and %s; remove one of them", found[0], found[1])
	}
}

// ReadManifest reads the plugin manifest at the root of a tree. The manifest is nil when the list has errors. In protoAgent's spelling a value
// of a wrong type is left out with a warning, as there; in ours it is an error.
func ReadManifest(fsys fs.FS) (*Manifest, diag.List) {
	var l diag.List
	name := PluginFile
	src, err := readBounded(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		name = PeerPluginFile
		src, err = readBounded(fsys, name)
	}
	if err != nil {
		l.Add(diag.Problem{Pos: diag.Pos{File: name}, Code: "manifest.file", Summary: "can't be read: " + cause(err)})
		return nil, l
	}
	t, l := doc.ParseYAML(name, src)
	if l.HasErrors() {
		return nil, l
	}
	if t.Root().Kind() != doc.Object {
		l.Add(diag.Problem{Pos: diag.Pos{File: name, Line: 1}, Code: "manifest.kind", Summary: "is no mapping", Fix: "write id and name, a line each"})
		return nil, l
	}
	r := &reader{n: t.Root(), l: &l, lenient: name == PeerPluginFile, fsys: fsys}
	m := r.manifest(name)
	m.look(fsys)
	m.readTypes(fsys, &l)
	if l.HasErrors() {
		return nil, l
	}
	return m, l
}

const maxManifest = 256 << 10

func readBounded(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("it has more than %d KiB", maxManifest>>10)
	}
	return b, err
}

func cause(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// look finds what a tree brings without its manifest naming it.
func (m *Manifest) look(fsys fs.FS) {
	for _, e := range readDir(fsys, "skills") {
		if fi, err := fs.Stat(fsys, path.Join("skills", e.Name(), "SKILL.md")); err == nil && fi.Mode().IsRegular() {
			m.Skills = append(m.Skills, e.Name())
		}
	}
	for _, e := range readDir(fsys, "workflows") {
		if e.Type().IsRegular() {
			m.Workflows = append(m.Workflows, e.Name())
		}
	}
	for _, name := range []string{m.Entrypoint, "__init__.py", "plugin.py"} {
		if name == "" || !fs.ValidPath(name) || len(m.Python) > 0 {
			continue
		}
		if fi, err := fs.Stat(fsys, name); err == nil && fi.Mode().IsRegular() {
			m.Python = append(m.Python, name)
		}
	}
}

// readTypes reads what the plugin's program serves. A list that can't be used is a warning: all else of the plugin works.
func (m *Manifest) readTypes(fsys fs.FS, l *diag.List) {
	fault := func(why, fix string) {
		l.Add(diag.Problem{Pos: diag.Pos{File: plugin.ManifestName}, Code: "manifest.types", Severity: diag.Warning, Summary: why, Fix: fix})
	}
	b, err := readBounded(fsys, plugin.ManifestName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if len(m.Command) > 0 {
			fault("is missing, so that nothing tells which types the program serves", "write it, as docs/plugin-protocol.md says")
		}
		return
	case err != nil:
		fault("can't be read: "+cause(err), "")
		return
	case len(m.Command) == 0:
		fault("lists types, and the manifest names no command that serves them", "name the program in command of "+PluginFile)
		return
	}
	p, err := plugin.ParseManifest(b)
	if err != nil {
		fault("can't be used: "+strings.TrimPrefix(err.Error(), plugin.ManifestName+": "), "")
		return
	}
	m.Types = p.Types
}

func readDir(fsys fs.FS, name string) []fs.DirEntry {
	es, _ := fs.ReadDir(fsys, name) // a folder that is not there brings nothing
	return es
}
