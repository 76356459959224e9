// Package secrets resolves `secret:` references: from the environment, from a table of the config, from a flat file.
//
// It only reads, and it never puts a value into an error, a problem or a log.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/store"
)

// maxFile is the largest secrets file that is read, in bytes.
const maxFile = 1 << 20

// Config says where to look. The order is: environment, Values, File.
type Config struct {
	Values map[string]string
	// File is a YAML file, or JSON where its name ends in .json, of keys and values without nesting; or a TOML file where its name ends in .toml,
	// whose tables make dotted keys: token in [bundles.desk] is bundles.desk.token. "" for none. One that isn't there holds nothing if it is TOML.
	File string
	// UseEnv looks for an environment variable of the key's name first. One that is empty counts as missing.
	UseEnv bool
	// LookupEnv is the environment; nil is os.LookupEnv.
	LookupEnv func(string) (string, bool)
}

// Secrets is a store.Secrets. Its methods may be called from several goroutines.
type Secrets struct {
	c    Config
	file func() (map[string]string, diag.List)
}

// New reads nothing yet: the file is read once, at the first key that isn't found before it.
func New(c Config) *Secrets {
	if c.LookupEnv == nil {
		c.LookupEnv = os.LookupEnv
	}
	s := &Secrets{c: c}
	s.file = sync.OnceValues(func() (map[string]string, diag.List) { return read(c.File) })
	return s
}

// Secret is a value by key. A file that can't be read is an error even when it may not hold the key: nobody can tell.
func (s *Secrets) Secret(ctx context.Context, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if key == "" {
		return "", errors.New("a secret without a key")
	}
	if s.c.UseEnv {
		if v, ok := s.c.LookupEnv(key); ok && v != "" {
			return v, nil
		}
	}
	if v, ok := s.c.Values[key]; ok {
		return v, nil
	}
	if s.c.File == "" {
		return "", s.notFound(key)
	}
	values, problems := s.file()
	if err := problems.Err(); err != nil {
		return "", fmt.Errorf("secret %s: %w", diag.Repr(key), err)
	}
	if v, ok := values[key]; ok {
		return v, nil
	}
	return "", s.notFound(key)
}

func (s *Secrets) notFound(key string) error {
	var looked []string
	if s.c.UseEnv {
		looked = append(looked, "the environment")
	}
	if len(s.c.Values) > 0 {
		looked = append(looked, "the config's values")
	}
	if s.c.File != "" {
		looked = append(looked, s.c.File)
	}
	where := "no place to look is configured"
	if len(looked) > 0 {
		where = "looked in " + strings.Join(looked, ", ")
	}
	return fmt.Errorf("secret %s: %w (%s)", diag.Repr(key), store.ErrNotFound, where)
}

// Check reads the file and answers what is wrong with it: errors, and a warning when others may read it.
func (s *Secrets) Check() diag.List {
	if s.c.File == "" {
		return nil
	}
	_, problems := s.file()
	return problems
}

func read(path string) (map[string]string, diag.List) {
	var l diag.List
	pos := diag.Pos{File: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && strings.EqualFold(filepath.Ext(path), ".toml") {
		return nil, nil // a workspace's, made with its first secret
	}
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		l.Errorf(pos, "secrets.file", "the secrets file can't be read: %v", err)
		return nil, l
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	var src []byte
	if err == nil {
		src, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	if err == nil && len(src) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if err != nil {
		l.Errorf(pos, "secrets.file", "the secrets file can't be read: %v", err)
		return nil, l
	}
	if mode := fi.Mode().Perm(); mode&0o077 != 0 {
		l.Add(diag.Problem{
			Pos: pos, Code: "secrets.mode", Severity: diag.Warning,
			Summary: fmt.Sprintf("the secrets file has mode %04o: other users may reach it", mode), Fix: "run chmod 600 on it",
		})
	}
	values, problems := parse(path, src)
	return values, append(l, problems...)
}

// parse reads a flat file. The parser's own words are left out, since they may quote a value: the place must do.
func parse(path string, src []byte) (map[string]string, diag.List) {
	var l diag.List
	readAs, name := doc.ParseYAML, "YAML"
	toml := strings.EqualFold(filepath.Ext(path), ".toml")
	switch {
	case toml:
		readAs, name = doc.ParseTOML, "TOML"
	case strings.EqualFold(filepath.Ext(path), ".json"):
		readAs, name = doc.ParseJSON, "JSON"
	}
	tree, problems := readAs(path, src)
	for _, p := range problems.Of(diag.Error) {
		l.Errorf(p.Pos, "secrets.syntax", "the secrets file is no plain %s from here on; it holds keys with one value each", name)
	}
	if l.HasErrors() {
		return nil, l
	}
	root := tree.Root()
	if root.IsNull() {
		return nil, nil
	}
	if root.Kind() != doc.Object {
		l.Errorf(root.Pos(), "secrets.shape", "the secrets file holds %s instead of keys with a value each", root.Kind())
		return nil, l
	}
	values := make(map[string]string, root.Len())
	flatten(values, "", root, toml, &l)
	return values, l
}

// flatten adds the values of n by their keys, those of tables behind the tables' names.
func flatten(values map[string]string, at string, n doc.Node, tables bool, l *diag.List) {
	for key, v := range n.Members() {
		key = at + key
		switch v.Kind() {
		case doc.Object:
			if tables {
				flatten(values, key+".", v, tables, l)
				continue
			}
			fallthrough
		case doc.Array, doc.Null:
			l.Errorf(v.KeyPos(), "secrets.shape", "secret %s is %s; the secrets file holds keys with one value each, without nesting", diag.Repr(key), v.Kind())
		default:
			values[key] = v.Text()
		}
	}
}

var _ store.Secrets = (*Secrets)(nil)
