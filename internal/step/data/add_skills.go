package data

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// Agents is what the executors need of deployed agents.
type Agents interface {
	Agent(run, name string) (*deploy.Agent, error)
}

// AddSkills gives a deployed agent skills: written in the step, of the store, for files and commands that were loaded for it, and those that an
// environment serves.
type AddSkills struct {
	store  Store
	agents Agents
	envs   Environments
}

// NewAddSkills makes the executor.
func NewAddSkills(s Store, a Agents, v Environments) *AddSkills { return &AddSkills{s, a, v} }

var _ step.Preflighter = (*AddSkills)(nil)

// Preflight tells which sources can't be added here.
func (e *AddSkills) Preflight(_ context.Context, d doc.Node, _ step.Plan) diag.List {
	var l diag.List
	refuse := func(n doc.Node, field, summary string) {
		l.Add(diag.Problem{Pos: n.Pos(), Where: field, Code: "data.skill", Summary: summary, Fix: "leave it out"})
	}
	for i, s := range d.Get("skills").Items() {
		if n := s.Get("object_url"); !n.IsNull() {
			refuse(n, fmt.Sprintf("skills[%d].object_url", i), "skills can't be read from object stores by this version of agent-env")
		}
	}
	return l
}

// Run adds every skill, in order.
func (e *AddSkills) Run(ctx context.Context, c *step.Call) error {
	a, err := e.agents.Agent(c.Run, c.Doc.Get("agent_name").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	var all []deploy.Skill
	for i, n := range c.Doc.Get("skills").Items() {
		s, err := e.skill(ctx, n)
		if err != nil {
			return fmt.Errorf("skills[%d]: %w", i, err)
		}
		all = append(all, s)
	}
	for _, n := range c.Doc.Get("cli_artifact_ids").Items() {
		s, err := commandSkill(c, n.Text())
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	for _, n := range c.Doc.Get("file_artifact_universe_ids").Items() {
		s, err := filesSkill(c, n.Text())
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	if id := c.Doc.Get("env_id").Text(); id != "" {
		served, err := e.served(ctx, c.Run, id)
		if err != nil {
			return err
		}
		if len(served) == 0 {
			c.Log.Info("the environment serves no skill", "env", id)
		}
		all = append(all, served...)
	}
	if err := distinct(all); err != nil {
		return err
	}
	for _, s := range all {
		if err := a.Runner.AddSkill(ctx, s); err != nil {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case step.IsInfra(err):
				return err
			}
			return &step.Error{Type: "SkillError", Err: fmt.Errorf("skill %s: %w", diag.Repr(s.Name), err)}
		}
		c.Log.Info("skill added", "agent", a.Name, "skill", s.Name)
	}
	return nil
}

// served are the skills of a deployed environment.
func (e *AddSkills) served(ctx context.Context, run, id string) ([]deploy.Skill, error) {
	v, err := e.envs.Env(run, id, "")
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	out, err := v.Skills(ctx)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case step.IsInfra(err):
		return nil, err
	}
	return nil, &step.Error{Type: "SkillError", Err: fmt.Errorf("environment %s: %w", diag.Repr(id), err)}
}

// distinct holds the names of skills, each of which becomes a folder's, before any is added.
func distinct(all []deploy.Skill) error {
	var bad, twice []string
	seen := map[string]int{}
	for _, s := range all {
		if seen[s.Name]++; seen[s.Name] > 1 {
			if seen[s.Name] == 2 {
				twice = append(twice, diag.Repr(s.Name))
			}
			continue
		}
		if !wire.SkillName(s.Name) {
			bad = append(bad, diag.Repr(s.Name))
		}
	}
	switch {
	case bad != nil:
		return step.Errorf("ValueError", "no skill can be called %s: a name is a letter or digit, then at most 127 letters, digits, dots, underscores and dashes; none was added",
			strings.Join(bad, ", "))
	case twice != nil:
		return step.Errorf("ValueError", "several skills are called %s; none was added", strings.Join(twice, ", "))
	}
	return nil
}

// skill is one that a step names or writes out.
func (e *AddSkills) skill(ctx context.Context, n doc.Node) (deploy.Skill, error) {
	s := deploy.Skill{Name: n.Get("name").Text(), Description: n.Get("description").Text()}
	if id := n.Get("skill_artifact_id").Text(); id != "" {
		version, _ := n.Get("skill_artifact_version").Int()
		return e.stored(ctx, id, int(version), s)
	}
	s.Files = []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte(SkillText(s.Name, s.Description, n)))}
	return s, nil
}

// SkillText is a SKILL.md: the head that the format wants, of a table's fields, and its body.
func SkillText(name, description string, n doc.Node) string {
	body := n.Get("body").Text()
	if strings.HasPrefix(strings.TrimSpace(body), "---") {
		return body
	}
	var b strings.Builder
	line := func(key, v string) {
		if v != "" {
			q, _ := json.Marshal(v) // a string: it can't fail
			fmt.Fprintf(&b, "%s: %s\n", key, q)
		}
	}
	b.WriteString("---\n")
	line("name", name)
	line("description", description)
	line("license", n.Get("license").Text())
	line("compatibility", n.Get("compatibility").Text())
	line("allowed-tools", n.Get("allowed_tools").Text())
	if m := n.Get("metadata"); m.Len() > 0 {
		b.WriteString("metadata: " + string(doc.JSON(m)) + "\n")
	}
	b.WriteString("---\n\n" + body + "\n")
	return b.String()
}

// stored is a skill of the store; name and description are its own unless the step gives others.
func (e *AddSkills) stored(ctx context.Context, id string, version int, s deploy.Skill) (deploy.Skill, error) {
	own, err := deploy.StoredSkill(ctx, e.store, id, version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s, &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, deploy.ErrNoSkill):
		return s, &step.Error{Type: "ValueError", Err: err}
	case err != nil:
		return s, err
	}
	own.Name, own.Description = cmp.Or(s.Name, own.Name), cmp.Or(s.Description, own.Description)
	return own, nil
}

// filesSkill tells an agent of files that were loaded for it.
func filesSkill(c *step.Call, id string) (deploy.Skill, error) {
	for _, raw := range c.State.List(LoadedPath) {
		var l loaded
		if json.Unmarshal(raw, &l) != nil || l.ID != id {
			continue
		}
		name := "files-" + strings.ToLower(lastName(id))
		s := deploy.Skill{Name: name, Description: fmt.Sprintf("Files of %s, which lie in %s of your sandbox.", lastName(id), l.Destination)}
		var b strings.Builder
		fmt.Fprintf(&b, "---\nname: %s\ndescription: %s\n---\n\nThe files are in %s:\n\n", s.Name, s.Description, l.Destination)
		for _, f := range l.Files {
			fmt.Fprintf(&b, "- %s\n", f)
		}
		if l.Count > len(l.Files) {
			fmt.Fprintf(&b, "\nand %d more.\n", l.Count-len(l.Files))
		}
		s.Files = []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte(b.String()))}
		return s, nil
	}
	return deploy.Skill{}, step.Errorf("NotFoundError", "file_artifact_universe_ids: %s was not loaded before this step", diag.Repr(id))
}

// commandSkill tells an agent of a command that was installed for it.
func commandSkill(c *step.Call, id string) (deploy.Skill, error) {
	agent := c.Doc.Get("agent_name").Text()
	var at installed
	known, err := c.State.Get(step.Child(step.Child(InstalledPath, agent), id), &at)
	switch {
	case err != nil:
		return deploy.Skill{}, step.Errorf("ValueError", "what was recorded of %s can't be read: %w", diag.Repr(id), err)
	case !known:
		return deploy.Skill{}, step.Errorf("NotFoundError",
			"cli_artifact_ids: %s was not installed for agent %s before this step; a load_artifact step with its env_id and agent_name does that", diag.Repr(id), diag.Repr(agent))
	}
	s := deploy.Skill{Name: "cli-" + strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(at.Command))}
	s.Description = fmt.Sprintf("The command %s of your sandbox works on an environment from a shell: use it there, in scripts and pipes.", at.Command)
	text := fmt.Sprintf("---\nname: %s\ndescription: %q\n---\n\nThe command `%s` (%s) is on your PATH. `%s --help` tells what it can do.\n", s.Name, s.Description, at.Command, at.Path, at.Command)
	if at.Tools {
		text += fmt.Sprintf("\nEach tool of the environment is a subcommand: `%s TOOL --help` tells its parameters, which are flags, and a JSON object in their place\n"+
			"is taken too. It prints the text of the result, or with `%s --json TOOL` the whole result; the exit code is 1 when the tool failed.\n", at.Command, at.Command)
	}
	s.Files = []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte(text))}
	return s, nil
}

func lastName(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }
