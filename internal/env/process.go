package env

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// ProcessFile is the file of an environment's folder, beside its Dockerfile, that says how its server runs without an image. Others that read the
// folder see just another file.
const ProcessFile = "process.toml"

// MaxProcess is the largest process.toml in bytes.
const MaxProcess = 1 << 20

// ProcessFileOf is the name of the process file for an image key: "process.toml" for an environment's one server, "process.backend.toml" and
// "process.frontend.toml" for the sides of a website, whose Dockerfiles are called likewise.
func ProcessFileOf(key string) string {
	if side, ok := strings.CutSuffix(key, "_image"); ok {
		return "process." + side + ".toml"
	}
	return ProcessFile
}

// DefaultPort is where a server listens unless its process.toml says otherwise.
const DefaultPort = 18765

// Self is the first word of a command that is this program itself.
const Self = "agent-env"

// Process is what a process.toml says.
type Process struct {
	// Command is the server's argv. It starts in the environment's folder; a first word of Self is this program.
	Command []string
	// Build is run once in a copy of the folder, and what it leaves is the folder that servers start in; nil: nothing to build.
	Build []string
	// Python is a file of requirements, relative to the folder; what it asks for is installed once, and is what python3 imports. "" for none.
	Python string
	// Env are variables of the command, NAME=VALUE, sorted.
	Env []string
	// Port is where the server listens on loopback.
	Port int
}

// ProcessSchema is the strict schema of a process.toml.
func ProcessSchema() *doc.Schema {
	text := doc.Type{Kinds: []doc.Kind{doc.String}, Check: noNUL}
	argv := doc.Type{Kinds: []doc.Kind{doc.Array}, NonEmpty: true, Elem: &text, Check: isArgv}
	low, high := 1.0, 65535.0
	return &doc.Schema{Fields: []doc.Field{
		{Name: "command", Type: argv, Required: true, Doc: "program and arguments that start the server"},
		{Name: "build", Type: argv, Doc: "program and arguments that are run once in the folder before"},
		{Name: "python", Type: doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true, Check: isInside}, Doc: "file of Python requirements to install"},
		{Name: "env", Type: doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &text, Check: areVariables}, Doc: "variables of the command"},
		{Name: "port", Type: doc.Type{Kinds: []doc.Kind{doc.Int}, Min: &low, Max: &high}, Default: DefaultPort, Doc: "port on which the server listens"},
	}}
}

// ReadProcess reads a process.toml. name is what problems call it. With errors in the list the Process is not to be used.
func ReadProcess(name string, src []byte) (Process, diag.List) {
	tree, l := doc.ParseTOML(name, src)
	if l.HasErrors() {
		return Process{}, l
	}
	n := tree.Root()
	ProcessSchema().Check(n, "", &l)
	if l.HasErrors() {
		return Process{}, l
	}
	p := Process{Command: texts(n.Get("command")), Build: texts(n.Get("build")), Port: DefaultPort}
	if s := n.Get("python").Text(); s != "" {
		p.Python = path.Clean(s)
	}
	if v, ok := n.Get("port").Int(); ok {
		p.Port = int(v)
	}
	vars := map[string]string{}
	for k, v := range n.Get("env").Members() {
		vars[k] = v.Text()
	}
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		p.Env = append(p.Env, k+"="+vars[k])
	}
	return p, l
}

func texts(n doc.Node) []string {
	var out []string
	for _, e := range n.Items() {
		out = append(out, e.Text())
	}
	return out
}

func noNUL(n doc.Node, l *diag.List) {
	if s, _ := n.Str(); strings.ContainsRune(s, 0) {
		fault(l, n, "", "process.text", "must hold no NUL character")
	}
}

func isArgv(n doc.Node, l *diag.List) {
	if n.At(0).Text() == "" {
		fault(l, n, "", "process.argv", "must begin with a program")
	}
}

func isInside(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if !inside(s) {
		fault(l, n, "", "process.python", "must be a file of the folder, such as requirements.txt, not %s", diag.Repr(s))
	}
}

// inside tells whether a path is of a file in the folder.
func inside(s string) bool {
	clean := path.Clean(s)
	return s != "" && clean != "." && clean != ".." && !path.IsAbs(clean) && !strings.HasPrefix(clean, "../") && !strings.ContainsAny(s, "\x00\\")
}

// Given are the variables that every server is started with; a process.toml can't set them.
func Given() []string {
	return []string{"DATABASE_URL", "ENVIRONMENT_NAME", "MCP_HOST", "MCP_PORT", "SERVICE_NAME"}
}

func areVariables(n doc.Node, l *diag.List) {
	for k, v := range n.Members() {
		switch {
		case slices.Contains(Given(), k):
			l.Add(diag.Problem{
				Pos: v.KeyPos(), Code: "process.env", Summary: fmt.Sprintf("%s is set by the deployment", k), Fix: "leave it out; port says where the server listens",
			})
		case k == "" || !identifier(k) || strings.ContainsFunc(k, func(r rune) bool { return r > 127 }):
			fault(l, v, "", "process.env", "%s is no name of an environment variable (letters, digits and _, no digit first)", diag.Repr(k))
		}
	}
}
