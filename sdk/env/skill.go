package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"agentenv.internal/agentenv/sdk/wire"
)

// MaxSkill is how many bytes the files of a skill may have together.
const MaxSkill = 8 << 20

// ServeSkill serves a folder as the environment's skill: what agents should know to use it. name is a folder's name, description says when the skill
// is of use; folder holds SKILL.md and whatever belongs to it, plain files only, and is read now. A second call is an error of Handler.
func (e *Env) ServeSkill(name, description string, folder fs.FS) {
	for _, x := range e.extensions {
		if x.uri == wire.URNSkill {
			e.problem("an environment has one skill")
			return
		}
	}
	s, err := readSkill(folder)
	s.Name, s.Description = name, description
	switch {
	case err != nil:
		e.problem("skill %s: %w", name, err)
		return
	case !wire.SkillName(name):
		e.problem("skill %q: its name must be a letter or digit, then at most 127 letters, digits, dots, underscores and dashes", name)
		return
	case description == "":
		e.problem("skill %s: it needs a description", name)
		return
	}
	AddExtension(e, wire.URNSkill, "get", func(context.Context, struct{}) (wire.EnvSkill, error) { return s, nil },
		Op(), Verb(http.MethodGet), ExtensionDescription("Tells agents how to use the environment."))
}

// readSkill reads the files of a skill, SKILL.md first.
func readSkill(folder fs.FS) (wire.EnvSkill, error) {
	var s wire.EnvSkill
	total := int64(0)
	err := fs.WalkDir(folder, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder", p)
		}
		if err := wire.CheckPath(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		if total += i.Size(); total > MaxSkill {
			return fmt.Errorf("its files have more than %d MiB", MaxSkill>>20)
		}
		b, err := fs.ReadFile(folder, p)
		if err != nil {
			return err
		}
		f := wire.EnvSkillFile{Path: p, Bytes: b}
		if p == wire.SkillFile {
			s.Files = append([]wire.EnvSkillFile{f}, s.Files...)
		} else {
			s.Files = append(s.Files, f)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if len(s.Files) == 0 || s.Files[0].Path != wire.SkillFile {
		return s, errors.New("there is no " + wire.SkillFile)
	}
	return s, nil
}
