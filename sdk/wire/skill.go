package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// SkillFile is the file that every skill has.
const SkillFile = "SKILL.md"

// SkillPath is where an environment serves its skill, unless its card says otherwise.
const SkillPath = ExtensionPath + "skill/get"

// EnvSkill is what an environment's skill/v1 answers: what an agent has to know to use the environment.
type EnvSkill struct {
	Name, Description string
	Files             []EnvSkillFile // SKILL.md first
}

// EnvSkillFile is a file of a skill.
type EnvSkillFile struct {
	Path  string // relative and normalized
	Bytes []byte
}

// SkillName tells whether a skill may be called so: a letter or digit, then at most 127 letters, digits, dots, underscores and dashes. It is a folder's
// name everywhere.
func SkillName(s string) bool {
	if s == "" || len(s) > 128 || strings.ContainsRune("._-", rune(s[0])) {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ParseEnvSkill reads an answer of skill/v1. Its name is one that SkillName allows, its paths are relative, normalized and there once, and one of them
// is SKILL.md; unknown members are ignored.
func ParseEnvSkill(b []byte) (EnvSkill, error) {
	var s EnvSkill
	ms, err := parseObject(b)
	if err != nil {
		return s, at("skill", err)
	}
	for _, m := range ms {
		switch m.name {
		case "name":
			err = readInto(m.value, &s.Name)
		case "description":
			err = readInto(m.value, &s.Description)
		case "files":
			s.Files, err = parseSkillFiles(m.value)
		}
		if err != nil {
			return s, at("skill."+m.name, err)
		}
	}
	switch {
	case !SkillName(s.Name):
		return s, errors.New("skill.name: want a letter or digit, then at most 127 letters, digits, dots, underscores and dashes")
	case strings.TrimSpace(s.Description) == "":
		return s, errors.New("skill.description: it is missing")
	}
	for _, f := range s.Files {
		if f.Path == SkillFile {
			return s, nil
		}
	}
	return s, fmt.Errorf("skill.files: there is no %s", SkillFile)
}

func parseSkillFiles(raw json.RawMessage) ([]EnvSkillFile, error) {
	var list []json.RawMessage
	if err := readInto(raw, &list); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	out := make([]EnvSkillFile, 0, len(list))
	for i, raw := range list {
		f, err := parseSkillFile(raw)
		switch {
		case err != nil:
			return nil, at(fmt.Sprintf("[%d]", i), err)
		case seen[f.Path]:
			return nil, fmt.Errorf("[%d].path: %q is there twice", i, f.Path)
		}
		seen[f.Path] = true
		out = append(out, f)
	}
	for i, f := range out {
		for dir := parent(f.Path); dir != ""; dir = parent(dir) {
			if seen[dir] {
				return nil, fmt.Errorf("[%d].path: %q is a file and a folder", i, dir)
			}
		}
	}
	return out, nil
}

func parent(p string) string {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return ""
	}
	return p[:i]
}

func parseSkillFile(raw json.RawMessage) (EnvSkillFile, error) {
	var f EnvSkillFile
	ms, err := parseObject(raw)
	if err != nil {
		return f, err
	}
	has := false
	for _, m := range ms {
		switch m.name {
		case "path":
			if err = readInto(m.value, &f.Path); err == nil {
				err = CheckPath(f.Path)
			}
		case "bytes":
			var text string
			if err = readInto(m.value, &text); err == nil && !isNull(m.value) {
				has = true
				if f.Bytes, err = base64.StdEncoding.DecodeString(text); err != nil {
					err = errors.New("want base64")
				}
			}
		}
		if err != nil {
			return f, at(m.name, err)
		}
	}
	switch {
	case f.Path == "":
		return f, errors.New("path: it is missing")
	case !has:
		return f, errors.New("bytes: it is missing")
	}
	return f, nil
}

// MarshalJSON writes an answer of skill/v1.
func (s EnvSkill) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("name", s.Name)
	w.put("description", s.Description)
	files := s.Files
	if files == nil {
		files = []EnvSkillFile{}
	}
	w.put("files", files)
	return w.bytes()
}

// MarshalJSON writes a file with its bytes in base64.
func (f EnvSkillFile) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("path", f.Path)
	w.put("bytes", base64.StdEncoding.EncodeToString(f.Bytes))
	return w.bytes()
}
