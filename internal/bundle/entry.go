package bundle

import (
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/task"
)

// Group is one of the six folders of a bundle, in bundle order.
type Group uint8

const (
	Envs Group = iota
	Agents
	Artifacts
	Skills
	Tasks
	Evals
)

var groups = [...]struct {
	folder, one string
	store       ref.Kind
	config      string // the toml in an entry's folder; for tasks and evals the suffix of the file
}{
	Envs:      {"envs", "env", ref.Env, "env.toml"},
	Agents:    {"agents", "agent", ref.Agent, "agent.toml"},
	Artifacts: {"artifacts", "artifact", ref.Artifact, "artifact.toml"},
	Skills:    {"skills", "skill", ref.Artifact, ""},
	Tasks:     {"tasks", "task", ref.Task, ".json"},
	Evals:     {"evals", "eval", ref.Eval, ".toml"},
}

// String is the folder's name.
func (g Group) String() string { return groups[g].folder }

// One is what one entry of the folder is called.
func (g Group) One() string { return groups[g].one }

// Kind is the collection that the folder's entries are stored in.
func (g Group) Kind() ref.Kind { return groups[g].store }

// Bundle is a parsed bundle.
type Bundle struct {
	Source
	Description string
	Entries     []*Entry // in bundle order: by group, then by name
	Ignored     []string // what the bundle holds that is no part of it, by path
	// Requires is the list of bundle.toml; HasManifest tells whether there is one.
	Requires    []string
	HasManifest bool

	requirements []*requirement.Requirement // of Requires

	options Options
	tree    tree
	prefix  string    // of labels: "<distribution>/<name>:" of a bundle that entities are pulled from
	faults  diag.List // of such a bundle, found by parsing it
	pulls   *pulls
	aliases map[ref.Kind]map[string]*Entry
	loose   map[Group]map[string]bool // ignored files of groups of folders: a reference to one is a mistake
	names   map[ref.Kind]*index
	outputs []*output // that steps write
}

// Entry is one entity of a bundle.
type Entry struct {
	Group Group
	Name  string // in composed form
	ID    string
	Label string // "artifacts/greeting", "tasks/hello.json"
	Type  string // canonical
	// Config is its toml or its task's JSON: as authored, and once resolved with ids for names. Absent without a file.
	Config doc.Node
	// Refs are what it references, once resolved. Of an environment universe they are in the order of its document.
	Refs []*Reference

	bundle  *Bundle  // that it stands in: not the plan's where it is pulled from an installed one
	tied    bool     // its references are resolved
	typed   bool     // its type is declared
	ownID   bool     // its id is declared
	path    string   // of its folder or file in the file system
	items   []item   // what its folder holds
	images  []*image // that it is, or is made with and that its folder or config names
	task    *task.Task
	outputs []*output
	layout  *layout // of an environment universe, once read
}

// Reference is one resolved reference of an entry.
type Reference struct {
	Where   string // "file", "tasks[0]", "step 'x': env_id"
	Pos     diag.Pos
	Kind    ref.Kind
	Type    string // that it must have; "" for any
	ID      string
	Version int     // a pin; 0 for none
	Entry   *Entry  // in this bundle; nil for the store's
	Output  *output // of a step; nil for everything else

	node    doc.Node // the name as authored
	builtin bool     // it comes with the program
	prefix  string   // what stands before the name there
	alias   string   // the id that an installed bundle gives this name, unless the store has an entity of that name
	pulled  *Entry   // that alias means, where an installed bundle has it
}

// Store is the collection that the entry is stored in.
func (e *Entry) Store() ref.Kind { return e.Group.Kind() }

// configLabel is the file that a problem of the entry's config is in.
func (e *Entry) configLabel() string {
	if e.Group == Tasks || e.Group == Evals {
		return e.Label
	}
	return e.Label + "/" + groups[e.Group].config
}

// problem is one about the entry itself, at the line of n where n has one.
func (e *Entry) problem(n doc.Node, where, code, format string, args ...any) diag.Problem {
	return diag.Problem{
		Pos:      diag.Pos{File: e.Label, Line: line(n)},
		Where:    where,
		Code:     code,
		Summary:  fmt.Sprintf(format, args...),
		Prefixed: true,
	}
}

// line is where a value stands; that of its name where it has one.
func line(n doc.Node) int { return n.KeyPos().Line }

// output is an entity that a step of a task writes while it runs.
type output struct {
	name string // as steps call it
	id   string // "<task id>/<name>"
	kind ref.Kind
	typ  string
	task *Entry
	step int // that writes it
}

// image is a docker image that an entry is, or is made with.
type image struct {
	role       string // "image", "backend_image", "frontend_image"; "" for an artifact that is one
	id         string
	dockerfile string // relative to the entry's folder
	ref        string // of a registry; then nothing is built
}
