// Package appdir holds what the folder of a computer app may say: its app.toml, the programs that it names and its skill. It is pure: it reads a file
// system and starts nothing.
//
// The words: an app's paths are where it keeps its data, relative to the home of the session's user; a hook is a program of the folder that does one
// method of the data plane in place of the default; an app's own server is a program that serves the protocol itself.
package appdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/sdk/wire"
)

// File is the file of an app's folder that says what the app is.
const File = "app.toml"

// MaxFile is the largest app.toml, and the largest SKILL.md, in bytes.
const MaxFile = 1 << 20

// DefaultTimeout is how long a data call may take unless app.toml says otherwise, MaxTimeout the most that it may say.
const (
	DefaultTimeout = 300 * time.Second
	MaxTimeout     = time.Hour
)

// App is what an app.toml says. Commands are argv: a first word with a slash that isn't absolute is a file of the folder, any other is looked for in PATH.
type App struct {
	Name    string        // that of the environment
	Timeout time.Duration // of a data call
	Skill   string        // folder of the app's folder that holds SKILL.md; "" for none
	Front   artifact.SkillFront
	Paths   []string // relative to the home; nil: none are declared
	Install []string
	Launch  []string // nil: an app without a process
	Needs   []Need
	Hooks   Hooks
	Server  []string // nil: the server is ours
}

// Need is something that an app needs of the system that it runs in.
type Need struct {
	// Find are the places of which one has to be there: names of programs, and patterns of absolute paths.
	Find []string `json:"find"`
	// Package is what is to be installed where none is.
	Package string `json:"package"`
}

// Met tells whether a system has what is needed. program finds a program by its name, files those that a pattern matches.
func (n Need) Met(program func(name string) (string, error), files func(pattern string) ([]string, error)) bool {
	return slices.ContainsFunc(n.Find, func(what string) bool {
		if path.IsAbs(what) {
			found, err := files(what)
			return err == nil && len(found) > 0
		}
		_, err := program(what)
		return err == nil
	})
}

// Hooks are the programs that replace methods of the data plane; nil for those that stay.
type Hooks struct{ Add, Get, Reset []string }

// Schema is the strict schema of an app.toml.
func Schema() *doc.Schema {
	word := doc.Type{Kinds: []doc.Kind{doc.String}, Check: noNUL}
	argv := doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &word, Check: isArgv}
	what := doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: isNeeded}
	need := doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: []doc.Field{
		{Name: "find", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &what}, Required: true, Doc: "programs, or patterns of absolute paths, of which one has to be there"},
		{Name: "package", Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: noNUL}, Required: true, Doc: "what is to be installed otherwise"},
	}}}
	place := doc.Type{Kinds: []doc.Kind{doc.String}, Check: isPlace}
	table := func(fields ...doc.Field) doc.Type {
		return doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: fields}}
	}
	least, most := 0.001, MaxTimeout.Seconds()
	return &doc.Schema{Fields: []doc.Field{
		{Name: "data_timeout_s", Type: doc.Type{Kinds: []doc.Kind{doc.Float}, Min: &least, Max: &most}, Default: int(DefaultTimeout.Seconds()), Doc: "seconds that a data call may take"},
		{Name: "skill", Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: isFolder}, Doc: "folder that holds SKILL.md"},
		{Name: "linux", Type: table(
			doc.Field{Name: "paths", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &place, Check: apart}, Doc: "where the app keeps its data, relative to the home"},
			doc.Field{Name: "install", Type: argv, Doc: "program that is run once when the computer is made"},
			doc.Field{Name: "launch", Type: argv, Doc: "program that is the app"},
			doc.Field{Name: "needs", Type: doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &need}, Doc: "what the app needs of the system"},
		), Doc: "the app on Linux"},
		{Name: "hooks", Type: table(
			doc.Field{Name: "add_data", Type: argv, Doc: "program that loads data"},
			doc.Field{Name: "get_data", Type: argv, Doc: "program that exports the data"},
			doc.Field{Name: "reset_data", Type: argv, Doc: "program that makes the data as installed"},
		), Doc: "programs in place of the default data plane"},
		{Name: "server", Type: table(
			doc.Field{Name: "command", Type: argv, Required: true, Doc: "program that serves the app at AGENTENV_APP_SOCKET"},
		), Doc: "a server of the app's own"},
	}}
}

// Read reads the folder of an app: app.toml, that the programs which it names are there and can be executed, its skill. label is what problems call the
// folder, "" for nothing; name is the environment's. With errors in the list the App is not to be used.
func Read(folder fs.FS, label, name string) (*App, diag.List) {
	file := path.Join(label, File)
	src, err := readFile(folder, File)
	if err != nil {
		p := diag.Problem{Pos: diag.Pos{File: file}, Code: "app.missing", Summary: "an app needs it", Fix: "write one, such as [linux] with paths = [\"Notes\"]"}
		if !errors.Is(err, fs.ErrNotExist) {
			p.Summary, p.Fix = err.Error(), ""
		}
		return nil, diag.List{p}
	}
	tree, l := doc.ParseTOML(file, src)
	if l.HasErrors() {
		return nil, l
	}
	n := tree.Root()
	Schema().Check(n, "", &l)
	if !wire.IsAppName(name) {
		l.Errorf(diag.Pos{File: file}, "app.name", "%s can't be the name of an app: lower-case letters, digits, - and _, at most 63, a letter or digit first", diag.Repr(name))
	}
	if l.HasErrors() {
		return nil, l
	}
	return read(folder, label, name, n, l)
}

func read(folder fs.FS, label, name string, n doc.Node, l diag.List) (*App, diag.List) {
	a := &App{Name: name, Timeout: DefaultTimeout, Skill: path.Clean(n.Get("skill").Text())}
	if s, ok := n.Get("data_timeout_s").Float(); ok {
		a.Timeout = time.Duration(s * float64(time.Second))
	}
	linux, hooks := n.Get("linux"), n.Get("hooks")
	a.Paths = texts(linux.Get("paths"))
	for _, x := range linux.Get("needs").Items() {
		a.Needs = append(a.Needs, Need{texts(x.Get("find")), x.Get("package").Text()})
	}
	for _, c := range []struct {
		at string
		n  doc.Node
		to *[]string
	}{
		{"linux.install", linux.Get("install"), &a.Install},
		{"linux.launch", linux.Get("launch"), &a.Launch},
		{"hooks.add_data", hooks.Get("add_data"), &a.Hooks.Add},
		{"hooks.get_data", hooks.Get("get_data"), &a.Hooks.Get},
		{"hooks.reset_data", hooks.Get("reset_data"), &a.Hooks.Reset},
		{"server.command", n.Get("server").Get("command"), &a.Server},
	} {
		*c.to = texts(c.n)
		checkProgram(folder, c.at, c.n, &l)
	}
	if a.Server != nil {
		for _, c := range []struct {
			at string
			n  doc.Node
		}{{"hooks", hooks}, {"linux.launch", linux.Get("launch")}, {"skill", n.Get("skill")}} {
			if c.n.Exists() {
				l.Add(diag.Problem{Pos: c.n.KeyPos(), Where: c.at, Code: "app.server", Summary: "the app has a server of its own, which does that itself", Fix: "remove this or [server]"})
			}
		}
	}
	if !n.Get("skill").Exists() {
		a.Skill = ""
	} else if a.Server == nil {
		front, more := Skill(folder, label, a.Skill, n.Get("skill").Pos())
		a.Front = front
		l.Add(more...)
	}
	return a, l
}

// Skill reads the front matter of the SKILL.md in a folder of an environment's folder. at is where the folder is named.
func Skill(folder fs.FS, label, dir string, at diag.Pos) (artifact.SkillFront, diag.List) {
	name := path.Join(dir, wire.SkillFile)
	src, err := readFile(folder, name)
	if err != nil {
		return artifact.SkillFront{}, diag.List{{Pos: at, Where: "skill", Code: "app.skill", Summary: fmt.Sprintf("%s can't be read: %s", diag.Repr(name), plain(err)), Fix: "write it, with a name and a description in its front matter"}}
	}
	front, l := artifact.ReadSkill(path.Join(label, name), src, "")
	return front, l
}

// readFile reads a file of at most MaxFile bytes.
func readFile(folder fs.FS, name string) ([]byte, error) {
	st, err := fs.Stat(folder, name)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case st.Size() > MaxFile:
		return nil, fmt.Errorf("it has more than %d bytes", MaxFile)
	}
	return fs.ReadFile(folder, name)
}

func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func texts(n doc.Node) []string {
	var out []string
	for _, e := range n.Items() {
		out = append(out, e.Text())
	}
	return out
}

// Own is the file of the folder that a command's first word names, cleaned; "" for one that is looked for elsewhere.
func Own(program string) string {
	if !strings.Contains(program, "/") || path.IsAbs(program) {
		return ""
	}
	return path.Clean(program)
}

func checkProgram(folder fs.FS, where string, n doc.Node, l *diag.List) {
	own := Own(n.At(0).Text())
	if own == "" {
		return
	}
	p := diag.Problem{Pos: n.At(0).Pos(), Where: where, Code: "app.program"}
	st, err := fs.Stat(folder, own)
	switch {
	case !fs.ValidPath(own):
		p.Summary = fmt.Sprintf("%s is no file of the folder", diag.Repr(n.At(0).Text()))
	case err != nil:
		p.Summary, p.Fix = fmt.Sprintf("%s can't be executed: %s", diag.Repr(own), plain(err)), "write it"
	case !st.Mode().IsRegular():
		p.Summary = fmt.Sprintf("%s is no program", diag.Repr(own))
	case st.Mode()&0o111 == 0:
		p.Summary, p.Fix = fmt.Sprintf("%s isn't executable", diag.Repr(own)), "chmod +x "+diag.ShellWord(own)
	default:
		return
	}
	l.Add(p)
}
