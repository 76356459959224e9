package env_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// TestServeSkill: a folder is served as the card says, SKILL.md first, and reads as it was.
func TestServeSkill(t *testing.T) {
	e := env.New("notes")
	e.ServeSkill("notes", "How notes are kept.", fstest.MapFS{"A.md": file("a"), "SKILL.md": file("---\nname: notes\n---\nbody"), "scripts/x.sh": file("\x00\xff")})
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	web := httptest.NewServer(h)
	defer web.Close()
	card := e.Card()
	x := card.Extension(wire.URNSkill)
	if x == nil {
		t.Fatal("the card has no skill")
	}
	calls, err := x.Calls()
	if err != nil || len(calls) != 1 || calls[0].Name != "get" || calls[0].Verb != http.MethodGet || calls[0].Path != wire.SkillPath {
		t.Fatalf("%+v %v", calls, err)
	}
	resp, err := http.Get(web.URL + calls[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	s, err := wire.ParseEnvSkill(b)
	if err != nil || s.Name != "notes" || s.Description != "How notes are kept." || len(s.Files) != 3 || s.Files[0].Path != "SKILL.md" || string(s.Files[2].Bytes) != "\x00\xff" {
		t.Errorf("%+v %v in %s", s, err, b)
	}
}

// TestNoSkill: an environment without one doesn't declare it, and a folder that is none is told of before anything is served.
func TestNoSkill(t *testing.T) {
	e := env.New("notes")
	if _, err := e.Handler(); err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	if card := e.Card(); card.Extension(wire.URNSkill) != nil {
		t.Error("a skill is declared")
	}
	good := fstest.MapFS{"SKILL.md": file("x")}
	for want, add := range map[string]func(*env.Env){
		"there is no SKILL.md": func(e *env.Env) { e.ServeSkill("a", "d", fstest.MapFS{"skill.md": file("x")}) },
		"its name must be":     func(e *env.Env) { e.ServeSkill("../a", "d", good) },
		"needs a description":  func(e *env.Env) { e.ServeSkill("a", "", good) },
		"has one skill":        func(e *env.Env) { e.ServeSkill("a", "d", good); e.ServeSkill("b", "d", good) },
		"more than 8 MiB": func(e *env.Env) {
			e.ServeSkill("a", "d", fstest.MapFS{"SKILL.md": file(strings.Repeat("x", env.MaxSkill+1))})
		},
		"neither a file nor": func(e *env.Env) {
			e.ServeSkill("a", "d", fstest.MapFS{"SKILL.md": file("x"), "l": {Mode: fs.ModeSymlink}})
		},
		"skill a: open .: file does": func(e *env.Env) { e.ServeSkill("a", "d", gone{}) },
	} {
		e := env.New("notes")
		add(e)
		if _, err := e.Handler(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

type gone struct{}

func (gone) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
