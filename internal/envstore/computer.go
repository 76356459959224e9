package envstore

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// Computer is what a Part that is a computer has beside its files and its command.
type Computer struct {
	// Apps are the environment names of its apps, in order.
	Apps []string
	// Image is the artifact that Root is read from; the zero Pin for none.
	Image Pin
	// Needs are what its apps need of the system that they run in.
	Needs []appdir.Need
	// Root is the image that the desktop runs in; the zero Source is the machine's own programs.
	Root Source
}

// HasRoot tells whether the desktop runs in an image.
func (c *Computer) HasRoot() bool { return c.Root.Reference != "" || c.Root.Dockerfile != "" }

// ComputerKey is the Key of a Part that is a computer.
const ComputerKey = "computer"

// ComputerHome is the home of a computer's user, ComputerFolder the folder of its box that holds what it is composed of.
const (
	ComputerHome   = "/home/user"
	ComputerFolder = "/app"
)

// desktop is what the documents of computers, apps and drivers say.
type desktop struct {
	Driver    *Pin            `json:"driver"`
	Apps      []Pin           `json:"apps"`
	Files     *Pin            `json:"files"`
	Paths     json.RawMessage `json:"data_paths"`
	Display   json.RawMessage `json:"display"`
	Settings  json.RawMessage `json:"settings"`
	Skill     string          `json:"skill"`
	Module    string          `json:"module"`
	Command   []string        `json:"command"`
	Python    string          `json:"python"`
	RootImage *Pin            `json:"docker_image_artifact"`
	// Declaration is an app's app.toml.
	Declaration struct {
		Linux struct {
			Needs []appdir.Need `json:"needs"`
		} `json:"linux"`
	} `json:"declaration"`
}

func readDesktop(d store.Doc) (desktop, error) {
	var x desktop
	if err := json.Unmarshal(d.Body, &x); err != nil {
		return x, fmt.Errorf("environment %s version %d: %w", diag.Repr(d.ID), d.Version, store.ErrCorrupt)
	}
	return x, nil
}

// computer is the one part of a computer. An app alone, or a driver alone, is a computer of that app or with that driver, which has its name.
func (r *reading) computer(ctx context.Context, out *Env, d store.Doc) error {
	x, err := readDesktop(d)
	if err != nil {
		return err
	}
	pin := Pin{d.ID, d.Version, d.Type}
	if out.Name == "" {
		out.Name = ref.Last(d.ID)
	}
	c := composing{reading: r, process: env.Process{Port: env.DefaultPort}, parts: Computer{}}
	size, largest := env.Size(nodeOf(x.Display))
	c.process.Command = []string{env.Self, "computer", "session", "--home", ComputerHome, "--size", size, "--max-size", largest}
	if s := env.Settings(nodeOf(x.Settings), nodeOf(x.Paths)); s != "" {
		c.process.Env = append(c.process.Env, "AGENTENV_COMPUTER_SETTINGS="+s)
	}
	switch d.Type {
	case env.ComputerApp:
		err = c.app(ctx, out.Name, x)
	case env.ComputerDriver:
		err = c.driver(ctx, x)
	default:
		err = c.whole(ctx, x)
	}
	if err != nil {
		return err
	}
	p := Part{Env: pin, Name: out.Name, Key: ComputerKey, Computer: &c.parts}
	p.Source = Source{Files: c.files, Digest: artifact.SourceDigest("", "", c.files), Process: &c.process}
	out.Parts = []Part{p}
	return nil
}

// composing gathers what a computer is made of.
type composing struct {
	*reading
	files   []artifact.Bytes
	process env.Process
	parts   Computer
}

func (c *composing) whole(ctx context.Context, x desktop) error {
	if x.Driver != nil {
		d, err := c.doc(ctx, *x.Driver, env.ComputerDriver)
		if err != nil {
			return err
		}
		y, err := readDesktop(d)
		if err != nil {
			return err
		}
		if err := c.driver(ctx, y); err != nil {
			return fmt.Errorf("the driver %s: %w", diag.Repr(d.ID), err)
		}
	}
	for _, pin := range x.Apps {
		d, err := c.doc(ctx, pin, env.ComputerApp)
		if err != nil {
			return err
		}
		of, _, err := header(d)
		if err != nil {
			return err
		}
		y, err := readDesktop(d)
		if err != nil {
			return err
		}
		if of.Name == "" {
			of.Name = ref.Last(d.ID)
		}
		if err := c.app(ctx, of.Name, y); err != nil {
			return fmt.Errorf("the app %s: %w", diag.Repr(d.ID), err)
		}
	}
	if x.Skill != "" {
		if err := c.add(ctx, "computer", x.Files); err != nil {
			return err
		}
		c.process.Command = append(c.process.Command, "--skill", path.Join(ComputerFolder, "computer", x.Skill))
	}
	if x.RootImage == nil {
		return nil
	}
	c.parts.Image = *x.RootImage
	var err error
	c.parts.Root, err = c.source(ctx, *x.RootImage, "image")
	return err
}

// doc is a version of an environment that a computer names.
func (c *composing) doc(ctx context.Context, p Pin, typ string) (store.Doc, error) {
	d, ok := c.planned.doc(ref.Env, p.ID, p.Version)
	if !ok {
		var err error
		if d, err = c.store.Get(ctx, store.Env, p.ID, p.Version); err != nil {
			return d, err
		}
	}
	if d.Type != typ {
		return d, fmt.Errorf("it names %s, which is of type %s and no %s", diag.Repr(p.ID), d.Type, typ)
	}
	return d, nil
}

func (c *composing) app(ctx context.Context, name string, x desktop) error {
	if !wire.IsAppName(name) || slices.Contains(c.parts.Apps, name) {
		return fmt.Errorf("no app of it can be called %s", diag.Repr(name))
	}
	at := path.Join("apps", name)
	if err := c.add(ctx, at, x.Files); err != nil {
		return err
	}
	c.parts.Apps = append(c.parts.Apps, name)
	c.parts.Needs = append(c.parts.Needs, x.Declaration.Linux.Needs...)
	c.process.Command = append(c.process.Command, "--app", name+"="+path.Join(ComputerFolder, at))
	if x.Skill != "" { // of its env.toml, which is none of the files
		c.process.Command = append(c.process.Command, "--app-skill", name+"="+x.Skill)
	}
	return nil
}

// serveModule is how a class of a Python file is served as a driver.
const serveModule = `import importlib.util as u, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
s = u.spec_from_file_location("computer_driver_module", sys.argv[1])
m = u.module_from_spec(s)
sys.modules[s.name] = m
s.loader.exec_module(m)
getattr(m, sys.argv[2])().serve()
`

func (c *composing) driver(ctx context.Context, x desktop) error {
	if err := c.add(ctx, "driver", x.Files); err != nil {
		return err
	}
	dir := path.Join(ComputerFolder, "driver")
	argv := slices.Clone(x.Command)
	if file, class, ok := env.Module(x.Module); ok {
		argv = []string{"python3", "-B", "-c", serveModule, path.Join(dir, file), class}
	}
	if len(argv) == 0 {
		return fmt.Errorf("it says nothing of how it is served: %w", store.ErrCorrupt)
	}
	if strings.Contains(argv[0], "/") && !path.IsAbs(argv[0]) {
		argv[0] = path.Join(dir, argv[0])
	}
	for _, word := range argv {
		c.process.Command = append(c.process.Command, "--driver", word)
	}
	if x.Python != "" {
		c.process.Python = path.Join("driver", x.Python)
	}
	return nil
}

// add puts the files of a stored universe below a folder.
func (c *composing) add(ctx context.Context, at string, pin *Pin) error {
	if pin == nil {
		return fmt.Errorf("it names no files: %w", store.ErrCorrupt)
	}
	if w, ok := c.planned.find(ref.Artifact, pin.ID, pin.Version); ok {
		for _, p := range w.Paths {
			c.files = append(c.files, artifact.Bytes{Path: path.Join(at, p)})
		}
		return nil
	}
	d, err := c.store.Get(ctx, store.Artifact, pin.ID, pin.Version)
	if err != nil {
		return err
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return fmt.Errorf("its files %s: %w", diag.Repr(pin.ID), err)
	}
	for _, f := range files {
		f.Path = path.Join(at, f.Path)
		c.files = append(c.files, f)
	}
	return nil
}

// nodeOf is a member of a document as a tree; absent for nil.
func nodeOf(raw json.RawMessage) doc.Node {
	if raw == nil {
		return doc.Node{}
	}
	t, _ := doc.ParseJSON("", raw) // a part of what was read as JSON
	return t.Root()
}
