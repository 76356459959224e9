package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Where the file was found, as reports spell it.
const (
	sourceEnv    = "env"
	sourceWalk   = "walk-up"
	sourceNone   = "none"
	sourceBroken = "error"
)

// Name is the file's place below a folder.
const Name = ".agentenv/config.toml"

const pathVariable = "AGENT_ENV_CONFIG"

// file is the configuration file as it was read.
type file struct {
	source string
	path   string
	root   string // the folder that holds .agentenv
	search string // the folder that the walk began in
	src    []byte // nil when there is no file or it can't be read
	owner  int    // user id
	doubt  string // why it is not trusted; "" when it is
}

// find reads the file that counts.
func find(o Options, l *diag.List) file {
	f := file{source: sourceNone, search: o.Dir}
	if p, ok := o.Env(pathVariable); ok && p != "" {
		f.source, f.path = sourceEnv, p
		if !filepath.IsAbs(p) {
			f.path = filepath.Join(o.Dir, p)
		}
		f.load(l, "AGENT_ENV_CONFIG names it: correct or unset the variable")
		return f
	}
	for dir := filepath.Clean(o.Dir); ; dir = filepath.Dir(dir) {
		p := filepath.Join(dir, Name)
		_, err := os.Stat(p)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !notDir(dir) {
			f.source, f.path = sourceWalk, p
			f.load(l, "make it a readable file, or remove it")
			return f
		}
		if dir == filepath.Dir(dir) {
			return f
		}
	}
}

// notDir tells that dir has something else than a folder where .agentenv would be.
func notDir(dir string) bool {
	fi, err := os.Stat(filepath.Join(dir, filepath.Dir(Name)))
	return err == nil && !fi.IsDir()
}

func (f *file) load(l *diag.List, fix string) {
	f.root = filepath.Dir(f.path)
	if filepath.Base(f.root) == filepath.Dir(Name) {
		f.root = filepath.Dir(f.root)
	}
	src, owner, err := readFile(f.path)
	if err != nil {
		f.source = sourceBroken
		l.Add(diag.Problem{Pos: diag.Pos{File: f.path}, Code: "config.file", Summary: "can't read the configuration: " + why(err), Fix: fix})
		return
	}
	f.src, f.owner = src, owner
}

var errNoFile = errors.New("it is not a file")

// readFile reads a file of at most doc.MaxConfig bytes and tells who owns it. It never waits for a fifo.
func readFile(path string) (src []byte, owner int, err error) {
	r, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	fi, err := r.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !fi.Mode().IsRegular() {
		return nil, 0, errNoFile
	}
	src, err = io.ReadAll(io.LimitReader(r, doc.MaxConfig+1))
	if err != nil {
		return nil, 0, err
	}
	if len(src) > doc.MaxConfig {
		return nil, 0, fmt.Errorf("it is larger than %d MiB", doc.MaxConfig>>20)
	}
	if src == nil {
		src = []byte{}
	}
	return src, ownerOf(fi), nil
}

// why is the cause of a file's failure without the path, which the problem names.
func why(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// home is $HOME when it is an absolute folder that exists and is not the root, else the user list's.
func home(o Options) string {
	h, _ := o.Env("HOME")
	if usableHome(h) {
		return filepath.Clean(h)
	}
	passwd := o.Passwd
	if passwd == nil {
		passwd = systemHome
	}
	if h = passwd(); usableHome(h) {
		return filepath.Clean(h)
	}
	return ""
}

func usableHome(h string) bool {
	if !filepath.IsAbs(h) || filepath.Clean(h) == "/" {
		return false
	}
	fi, err := os.Stat(h)
	return err == nil && fi.IsDir()
}

func systemHome() string {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// StateRoot is the folder that holds all state of the program, for who needs it before a configuration is read; "" when it can't be told.
func StateRoot(env func(string) (string, bool)) string {
	var l diag.List
	return stateRoot(env, home(Options{Env: env}), &l)
}

// stateRoot is $XDG_STATE_HOME/agentenv when that variable is absolute, else ~/.local/state/agentenv.
func stateRoot(env func(string) (string, bool), home string, l *diag.List) string {
	if x, ok := env("XDG_STATE_HOME"); ok && x != "" {
		if filepath.IsAbs(x) {
			return filepath.Join(x, "agentenv")
		}
		l.Add(diag.Problem{
			Pos: diag.Pos{File: "XDG_STATE_HOME"}, Code: "config.state", Severity: diag.Warning,
			Summary: "it is no absolute path and is ignored", Fix: "set it to an absolute path or unset it",
		})
	}
	if home == "" {
		l.Add(diag.Problem{Code: "config.state", Summary: "there is no place for state: this user has no home folder", Fix: "set HOME or XDG_STATE_HOME to an absolute path"})
		return ""
	}
	return filepath.Join(home, ".local", "state", "agentenv")
}
