package pack

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Types of inputs.
const (
	String   = "string"
	Path     = "path"     // of a folder or file of this machine
	Delegate = "delegate" // an agent that work may be handed to, by its name
	Boolean  = "boolean"
)

// Input is a question whose answer is a setting of a member.
type Input struct {
	Key         string // dotted: the section, then the way to the setting
	Label, Help string
	Type        string
	Required    bool
	Default     doc.Node // absent without one
	Project     bool     // of a path: the folder is one that the agent works on
	Pos         diag.Pos
}

// Section is the first part of the key, Setting the others.
func (i Input) Section() string { return strings.SplitN(i.Key, ".", 2)[0] }

// Setting is the way from the section to the setting.
func (i Input) Setting() []string { return strings.Split(i.Key, ".")[1:] }

var inputKey = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)+$`)

func (r *reader) inputs() []Input {
	var out []Input
	for where, n := range r.objects("config_inputs") {
		before := len(r.l.Of(diag.Error))
		in := Input{
			Key: n.Get("key").Text(), Label: strings.TrimSpace(r.textOf(n, "label", where+".label")), Help: r.textOf(n, "help", where+".help"),
			Type: r.textOf(n, "type", where+".type"), Required: r.flagOf(n, "required", where+".required"),
			Project: r.flagOf(n, "project", where+".project"), Default: n.Get("default"), Pos: n.Pos(),
		}
		if in.Type == "" {
			in.Type = String
		}
		if in.Default.IsNull() {
			in.Default = doc.Node{}
		}
		key := n.Get("key")
		switch {
		case !inputKey().MatchString(in.Key):
			r.fault(n, where+".key", diag.Clean(doc.Show(key))+" is no key of a setting", "write the section, a dot and the setting: board.repo")
		case slices.Contains(git.CoreSections(), strings.ToLower(in.Section())):
			r.fault(key, where+".key", diag.Repr(in.Section())+" is a section of the program's own, which no bundle may ask for", "name a member's section")
		case slices.ContainsFunc(out, func(o Input) bool { return clash(o.Key, in.Key) }):
			r.fault(key, where+".key", diag.Repr(in.Key)+" is asked for twice, or is inside of another", "remove one")
		}
		if in.Label == "" {
			r.fault(n, where+".label", "is missing", "write what a person is asked")
		}
		if !slices.Contains(inputTypes(), in.Type) {
			r.fault(n.Get("type"), where+".type", diag.Repr(in.Type)+" is no type of an input", "write "+strings.Join(inputTypes(), ", "))
		} else if in.Default.Exists() {
			if _, err := in.Read(doc.Show(in.Default)); in.Type == Boolean && err != nil {
				r.fault(in.Default, where+".default", err.Error(), "")
			} else if _, ok := scalar(in.Default); !ok && in.Type != Boolean {
				r.fault(in.Default, where+".default", fmt.Sprintf("is %s and no text", in.Default.Kind()), "write a text")
			}
		}
		if in.Project && in.Type != Path {
			r.fault(n.Get("project"), where+".project", "is of paths alone", "write type: path, or remove it")
		}
		r.unknown(n, where+".", "key", "label", "type", "required", "default", "project", "help")
		if len(r.l.Of(diag.Error)) == before {
			out = append(out, in)
		}
	}
	return out
}

func inputTypes() []string { return []string{String, Path, Delegate, Boolean} }

// clash tells whether one key is the other, or inside of it.
func clash(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

// Read turns what a person typed into the value of the setting: nil where that is blank or, of a boolean, no word for one.
func (i Input) Read(text string) (any, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	switch i.Type {
	case Boolean:
		switch strings.ToLower(strings.Trim(text, `"`)) {
		case "1", "true", "yes", "on":
			return true, nil
		case "0", "false", "no", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%s is no boolean; write yes or no", diag.Repr(text))
	case Path:
		if i.Project && !path.IsAbs(filepath.ToSlash(text)) {
			return nil, fmt.Errorf("%s is a relative path; a project's folder is named by its absolute path", diag.Repr(text))
		}
	}
	return text, nil
}

// Value is the default as the setting's value; nil without one.
func (i Input) Value() any {
	if !i.Default.Exists() {
		return nil
	}
	if b, ok := i.Default.Bool(); ok && i.Type == Boolean {
		return b
	}
	v, _ := i.Read(i.Default.Text()) // checked when the manifest was read
	return v
}
