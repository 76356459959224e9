package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/cli/verb"
)

func newAddSkill(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "add-skill INSTANCE SKILL",
		Short: "Give a deployed agent a skill",
		Long: `Gives a deployed agent a skill in the Agent Skills format: a stored one (@local/…, or with :VERSION), a folder with a SKILL.md, or a SKILL.md. It has the skill from its
next prompt on.`,
		Example: "  agent-env agent add-skill loop ./skills/tidy\n  agent-env agent add-skill loop @local/desk/tidy:2",
		Args:    verb.Args("INSTANCE", "SKILL"), ValidArgsFunction: completeDeployed(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return addSkill(cmd.Context(), p, args[0], args[1], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// skillAdded is what --json prints.
type skillAdded struct {
	verb.Format
	Instance string `json:"instance_id"`
	Name     string `json:"name"`
}

func addSkill(ctx context.Context, p *verb.Program, text, skill string, asJSON bool) error {
	s, err := readSkill(skill)
	if err != nil {
		return err
	}
	c, r, err := client(ctx, p, text)
	if err != nil {
		return err
	}
	defer c.Close()
	name, err := c.AddSkill(ctx, s)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(skillAdded{verb.V1(), r.Instance, name})
	}
	p.Streams.Printf("%s has the skill %s\n", r.Instance, name)
	return nil
}

const skillFile = "SKILL.md"

// maxSkill bounds what a skill of a folder may hold.
const maxSkill = 32 << 20

// readSkill is a skill as people name it.
func readSkill(text string) (agentowner.Skill, error) {
	if strings.HasPrefix(text, "@") {
		id, version, err := verb.Reference(text)
		return agentowner.Skill{Artifact: id, Version: version}, err
	}
	info, err := os.Stat(text)
	if err != nil {
		return agentowner.Skill{}, err
	}
	s := agentowner.Skill{Files: map[string][]byte{}}
	if info.IsDir() {
		err = readFolder(text, s.Files)
	} else {
		s.Files[skillFile], err = os.ReadFile(text)
	}
	if err != nil {
		return s, err
	}
	md, ok := s.Files[skillFile]
	if !ok {
		return s, fmt.Errorf("%s has no %s", text, skillFile)
	}
	abs, err := filepath.Abs(text)
	if err != nil {
		return s, err
	}
	label := filepath.Join(text, skillFile)
	if !info.IsDir() {
		label, abs = text, ""
	}
	front, l := artifact.ReadSkill(label, md, skillName(abs, md))
	s.Name, s.Description = front.Name, front.Description
	return s, l.Err()
}

// skillName is what a skill must be called: its folder's name, or for a file alone whatever it says itself.
func skillName(folder string, md []byte) string {
	if folder != "" {
		return filepath.Base(folder)
	}
	front, _ := artifact.ReadSkill(skillFile, md, "")
	return front.Name
}

func readFolder(folder string, files map[string][]byte) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	size := 0
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s: a skill holds files and folders alone", filepath.Join(folder, path))
		}
		b, err := fs.ReadFile(root.FS(), path)
		if err != nil {
			return err
		}
		if size += len(b); size > maxSkill {
			return errors.New("the skill is larger than 32 MiB; store it with agent-env artifact skill put")
		}
		files[path] = b
		return nil
	})
}
