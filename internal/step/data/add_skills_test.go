package data

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// Pieces of a card: an extension that serves a skill at a path, and a child.
const (
	skillAt   = `{"uri":"urn:agentenv:skill/v1","params":{"methods":{"get":{"method":"GET","endpoint":"PATH"}}}}`
	servesOne = `{"name":"{name}","url":"/agentenv","capabilities":{"extensions":[EXT]},"children_environments":CHILDREN}`
)

func card(own, children string) string {
	return strings.ReplaceAll(strings.ReplaceAll(servesOne, "EXT", own), "CHILDREN", children)
}

func served(name string) string {
	return `{"name":"` + name + `","description":"About ` + name + `.","files":[{"path":"SKILL.md","bytes":"` + base64.StdEncoding.EncodeToString([]byte("about it")) +
		`"},{"path":"more/x.md","bytes":"` + base64.StdEncoding.EncodeToString([]byte("more")) + `"}]}`
}

// learner is an agent that speaks A2A and tells which skills it was given, by name and text.
type learner struct {
	mu   sync.Mutex
	told []string
}

func (l *learner) skills() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

func (l *learner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/.well-known/agent.json":
		_, _ = io.WriteString(w, `{"name":"a","description":"d","version":"1","url":"/a2a","protocolVersion":"0.3.0","defaultInputModes":["text"],"defaultOutputModes":["text"],"skills":[],
"capabilities":{"extensions":[{"uri":"urn:agentenv:skill-config/v1","params":{"endpoint":"/ext/skill-config","methods":{"add":{"method":"POST"}}}}]}}`)
	case "/ext/skill-config":
		l.mu.Lock()
		l.told = append(l.told, string(b))
		l.mu.Unlock()
		_, _ = io.WriteString(w, `{"name":"x"}`)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

// TestSkillsOfEnvironments (A18, A44): a server's own skill and those of its children are added, servers without one are left out, and nothing is added
// when two have one name, one has a name that is no folder's, or an answer is no skill.
func TestSkillsOfEnvironments(t *testing.T) {
	own := strings.ReplaceAll(skillAt, "PATH", "/agentenv/ext/skill/get")
	child := func(name, path string) string {
		return `{"name":"` + name + `","url":"/svc/` + name + `/agentenv","capabilities":{"extensions":[` + strings.ReplaceAll(skillAt, "PATH", path) + `]}}`
	}
	for name, tt := range map[string]struct {
		card  string
		gets  map[string]string
		more  string
		want  []string
		fails string
	}{
		"none": {card: card("", "null")},
		"each server's, and its children's": {
			card: card(own, `[`+child("notes", "/svc/notes/agentenv/ext/skill/get")+`,{"name":"clock","capabilities":{"extensions":[]}}]`),
			gets: map[string]string{"/agentenv/ext/skill/get": served("{name}"), "/svc/notes/agentenv/ext/skill/get": served("notes-{name}")},
			more: `,"skills":[{"name":"written","description":"d","body":"b"}]`,
			want: []string{"written", "mail", "notes-mail", "calendar", "notes-calendar"},
		},
		"of one name":      {card: card(own, "null"), gets: map[string]string{"/agentenv/ext/skill/get": served("same")}, fails: "several skills are called 'same'; none was added"},
		"of a written one": {card: card(own, "null"), gets: map[string]string{"/agentenv/ext/skill/get": served("{name}")}, more: `,"skills":[{"name":"mail","description":"d","body":"b"}]`, fails: "several skills are called 'mail'"},
		"a bad name":       {card: card("", "null"), more: `,"skills":[{"name":"ok","description":"d","body":"b"},{"name":"../../etc","description":"d","body":"b"}]`, fails: "no skill can be called '../../etc'"},
		"a name elsewhere": {card: card(own, "null"), gets: map[string]string{"/agentenv/ext/skill/get": strings.ReplaceAll(served("x"), `"x"`, `"../x"`)}, fails: "environment '@local/office': the skill of 'mail': skill.name: want a letter"},
		"no skill":         {card: card(own, "null"), gets: map[string]string{"/agentenv/ext/skill/get": "<html>"}, fails: "the skill of 'mail': skill: "},
		"not served":       {card: card(own, "null"), fails: "the skill of 'mail': it answered HTTP 405"},
		"a path outside":   {card: card(own, "null"), gets: map[string]string{"/agentenv/ext/skill/get": strings.ReplaceAll(served("x"), "more/x.md", "../x.md")}, fails: "the path must be relative"},
		"elsewhere":        {card: card(strings.ReplaceAll(skillAt, "PATH", "http://elsewhere.example/x"), "null"), fails: "it answered HTTP 404"},
		"no method":        {card: card(`{"uri":"urn:agentenv:skill/v1","params":{}}`, "null"), fails: "'get' is not advertised"},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := &steptest.EnvServer{Card: tt.card, Gets: tt.gets}, &learner{}
			r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{
				"server": s.Program(),
				"agent": func(ctx context.Context, p *fake.Proc) guest.Exit {
					return steptest.AgentProgram(func(context.Context, *fake.Proc, *http.Client) (http.Handler, func()) { return l, nil })(ctx, p)
				},
			}})
			officeOf(r)
			r.PutAgent("@local/a", `command = ["agent"]`)
			if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent, ID: "@local/a"}); err != nil {
				t.Fatal(err)
			}
			err := r.Do(NewAddSkills(r.Store, r.Agents, r.Envs), `{"id":"k","type":"add_skills","env_id":"@local/office"`+tt.more+`}`)
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v, want %q", err, tt.fails)
			}
			if step.IsInfra(err) {
				t.Error("it is said to be the machinery's fault")
			}
			var got []string
			for _, told := range l.skills() {
				for _, n := range tt.want {
					if strings.Contains(told, `"name":"`+n+`"`) && (n == "written" || strings.Contains(told, `"skill_md":"about it"`)) {
						got = append(got, n)
					}
				}
			}
			if !slices.Equal(got, tt.want) || len(l.skills()) != len(tt.want) {
				t.Errorf("it was told %q, want %q", l.skills(), tt.want)
			}
			if len(tt.want) > 0 {
				if b, err := r.Fake.Machines()[2].Files.ReadFile("/root/skills/mail/more/x.md"); err != nil || string(b) != "more" {
					t.Errorf("%q %v", b, err)
				}
			}
			if _, err := r.Deploy.Down(t.Context(), steptest.Run); err != nil {
				t.Error(err)
			}
		})
	}
}
