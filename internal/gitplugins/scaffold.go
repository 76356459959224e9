package gitplugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/subprocess"
)

// Scaffold writes the files of a new plugin or plugin bundle into a folder that isn't there yet: all of them, or no folder. A text that begins with #!
// can be executed.
func (p *Plugins) Scaffold(dir string, files map[string]string) error {
	dir = p.abs(dir)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; choose another name or --dir", dir)
	} else if err != nil {
		return err
	}
	for name, text := range files {
		file, mode := filepath.Join(dir, filepath.FromSlash(name)), os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		if err := atomicfile.CreateBytes(file, mode, []byte(text)); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return nil
}

// gitTime bounds each git that makes a repository of a new folder.
const gitTime = time.Minute

// Repository makes a folder that Scaffold wrote a git repository with one commit, by whom git says that the person is. committed is false where git
// doesn't know: then everything is only added. The folder's files stay, whatever goes wrong.
func (p *Plugins) Repository(ctx context.Context, dir, message string) (committed bool, err error) {
	dir = p.abs(dir)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}} {
		if err := p.git(ctx, dir, args...); err != nil {
			return false, err
		}
	}
	if err := p.git(ctx, dir, "var", "GIT_COMMITTER_IDENT"); err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return false, nil
	}
	return true, p.git(ctx, dir, "commit", "-q", "-m", message)
}

// git runs git in a folder as the person's own, but for hooks and templates, and asks nothing.
func (p *Plugins) git(ctx context.Context, dir string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "init.templateDir=", "-c", "commit.gpgSign=false", "-c", "user.useConfigOnly=true"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(subprocess.Environment(p.o.Env), "GIT_TERMINAL_PROMPT=0")
	for _, name := range []string{"XDG_CONFIG_HOME", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"} {
		if v, ok := p.o.Env(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	subprocess.Own(cmd)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return errors.New("there is no git here, which --git needs")
		}
		return fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, diag.Clean(strings.TrimSpace(said.String())))
	}
	return nil
}
