package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"agentenv.internal/agentenv/sdk/wire"
)

const (
	skillPath = "/ext/skill-config"
	skillFile = "SKILL.md"
)

// Skill is one that was added: a folder that holds SKILL.md and whatever belongs to it.
type Skill struct {
	Name        string
	Description string
	Dir         string
}

// skillSet is what the agent can do by itself, and what was added.
type skillSet struct {
	served bool
	root   string // "" until one is made
	made   bool   // root is ours to remove
	hook   func(context.Context, Skill) error
	own    []wire.AgentSkill

	mu       sync.Mutex
	added    []Skill
	reserved map[string]bool // being added
}

// WithSkills lets callers add skills. Each becomes the folder of its name below dir, whole or not at all; dir "" is a temporary folder, which
// Close removes. f is told of each before its caller is answered, and may refuse it; it may be nil.
func WithSkills(dir string, f func(ctx context.Context, s Skill) error) Option {
	return func(a *Agent) { a.skills.served, a.skills.root, a.skills.hook = true, dir, f }
}

func (a *Agent) skillExtension() (extension, bool, error) {
	if !a.skills.served {
		return extension{}, false, nil
	}
	return newExtension(wire.URNSkillConfig, "Adds skills to the agent.", skillPath,
		operation{
			name: "add", verb: http.MethodPost, path: skillPath, response: `{"required":["name"]}`,
			request: `{"required":["name","description"],"oneOf":[{"required":["skill_md"]},{"required":["skill_bundle"]}]}`, serve: a.addSkill,
		},
		operation{name: "list", verb: http.MethodGet, path: skillPath, response: `{"required":["skills"]}`, serve: a.listSkills})
}

// skillRequest is what adds a skill: text, or files.
type skillRequest struct {
	name, description, text string
	files                   []skillObject
}

type skillObject struct {
	path   string
	object wire.ReadObject
}

func decodeSkill(body []byte) (skillRequest, error) {
	var s skillRequest
	f, err := readFields(body, "name", "description", "skill_md", "skill_bundle")
	if err != nil {
		return s, err
	}
	if s.name = f.text("name", true); s.name != "" && !wire.SkillName(s.name) {
		f.fail("name", "want a letter or digit, then at most 127 letters, digits, dots, underscores and dashes")
	}
	s.description = f.text("description", true)
	if f.has("skill_md") == f.has("skill_bundle") {
		f.fail("skill_md", "want either it or skill_bundle")
	}
	s.text = f.text("skill_md", false)
	s.files = member(f, "skill_bundle", false, decodeBundle)
	return s, f.err()
}

func decodeBundle(raw []byte) ([]skillObject, error) {
	f, err := readFields(raw, "max_total_bytes", "files")
	if err != nil {
		return nil, err
	}
	total := f.integer("max_total_bytes", 1, 1<<62, 0)
	if !f.has("max_total_bytes") {
		f.fail("max_total_bytes", "it is missing")
	}
	var out []skillObject
	seen := map[string]bool{}
	for i, raw := range f.list("files", true) {
		o, err := decodeSkillObject(raw)
		switch {
		case err != nil:
			f.fail(fmt.Sprintf("files[%d]", i), "%v", err)
		case seen[o.path]:
			f.fail(fmt.Sprintf("files[%d]", i), "its path is there twice")
		}
		seen[o.path] = true
		if total -= min(o.object.MaxBytes, total+1); total < 0 {
			f.fail("files", "their max_bytes exceed max_total_bytes")
			break
		}
		out = append(out, o)
	}
	if !seen[skillFile] {
		f.fail("files", "there is no %s", skillFile)
	}
	return out, f.err()
}

func decodeSkillObject(raw []byte) (skillObject, error) {
	f, err := readFields(raw, "path", "object")
	if err != nil {
		return skillObject{}, err
	}
	o := skillObject{path: f.text("path", true)}
	if o.path != "" {
		if err := wire.CheckPath(o.path); err != nil {
			f.fail("path", "%v", err)
		}
	}
	o.object = member(f, "object", true, func(b []byte) (wire.ReadObject, error) { return wire.ParseReadObject(b) })
	return o, f.err()
}

func (a *Agent) addSkill(ctx context.Context, body []byte) (any, error) {
	in, err := decodeSkill(body)
	if err != nil {
		return nil, err
	}
	s := a.skills
	if err := s.reserve(in.name); err != nil {
		return nil, err
	}
	skill, err := a.installSkill(ctx, in)
	if err == nil && s.hook != nil {
		if err = s.hook(ctx, skill); err != nil {
			err = errors.Join(err, os.RemoveAll(skill.Dir))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, in.name)
	if err != nil {
		return nil, err
	}
	s.added = append(s.added, skill)
	return map[string]string{"name": skill.Name}, nil
}

func (s *skillSet) reserve(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.reserved[name] || slices.ContainsFunc(s.added, func(x Skill) bool { return x.Name == name }) ||
		slices.ContainsFunc(s.own, func(x wire.AgentSkill) bool { return x.Name == name })
	if taken {
		return Refuse(http.StatusConflict, "a skill named %q is there already", name)
	}
	if s.reserved == nil {
		s.reserved = map[string]bool{}
	}
	s.reserved[name] = true
	return nil
}

// folder is where skills go.
func (s *skillSet) folder() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" {
		dir, err := os.MkdirTemp("", "agent-skills-")
		if err != nil {
			return "", err
		}
		s.root, s.made = dir, true
	}
	return s.root, os.MkdirAll(s.root, 0o755)
}

// installSkill writes a skill beside its place and renames it.
func (a *Agent) installSkill(ctx context.Context, in skillRequest) (_ Skill, err error) {
	root, err := a.skills.folder()
	if err != nil {
		return Skill{}, fmt.Errorf("make the folder of skills: %w", err)
	}
	tmp, err := os.MkdirTemp(root, ".adding-")
	if err != nil {
		return Skill{}, fmt.Errorf("add a skill: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	r, err := os.OpenRoot(tmp)
	if err != nil {
		return Skill{}, fmt.Errorf("add a skill: %w", err)
	}
	defer r.Close()
	if in.files == nil {
		err = r.WriteFile(skillFile, []byte(in.text), 0o644)
	}
	for _, f := range in.files {
		if err = a.fetchSkillFile(ctx, r, f); err != nil {
			break
		}
	}
	if err != nil {
		return Skill{}, err
	}
	dir := filepath.Join(root, in.name)
	if _, err := os.Lstat(dir); err == nil {
		return Skill{}, Refuse(http.StatusConflict, "a skill named %q is there already", in.name)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Skill{}, fmt.Errorf("add a skill: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return Skill{}, fmt.Errorf("add a skill: %w", err)
	}
	return Skill{in.name, in.description, dir}, nil
}

func (a *Agent) fetchSkillFile(ctx context.Context, r *os.Root, f skillObject) error {
	path := filepath.FromSlash(f.path)
	if err := r.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return invalid("skill_bundle: the path %q conflicts with another", f.path)
	}
	file, err := r.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return invalid("skill_bundle: the path %q conflicts with another", f.path)
	}
	_, err = a.transfers.Get(ctx, f.object, func() (io.Writer, error) {
		if err := file.Truncate(0); err != nil {
			return nil, err
		}
		_, err := file.Seek(0, io.SeekStart)
		return file, err
	})
	return errors.Join(err, file.Close())
}

func (a *Agent) listSkills(context.Context, []byte) (any, error) {
	type shown struct {
		Description string `json:"description"`
	}
	out := map[string]shown{}
	for _, s := range a.skills.own {
		out[s.Name] = shown{s.Description}
	}
	for _, s := range a.skills.list() {
		out[s.Name] = shown{s.Description}
	}
	return map[string]any{"skills": out}, nil
}

func (s *skillSet) list() []Skill {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.added)
}

// card is the skills as the card lists them.
func (s *skillSet) card() []wire.AgentSkill {
	out := append([]wire.AgentSkill{}, s.own...)
	for _, x := range s.list() {
		out = append(out, wire.AgentSkill{ID: "skill-" + x.Name, Name: x.Name, Description: x.Description, Tags: []string{"skill"}})
	}
	return out
}

func (s *skillSet) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		return nil
	}
	s.made = false
	return os.RemoveAll(s.root)
}
