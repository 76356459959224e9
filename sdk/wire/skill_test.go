package wire_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

func TestParseEnvSkill(t *testing.T) {
	body := func(name, files string) string {
		return `{"name":"` + name + `","description":"d","files":[` + files + `],"x":1}`
	}
	const one = `{"path":"SKILL.md","bytes":"aGk=","y":2}`
	s, err := wire.ParseEnvSkill([]byte(body("a", `{"path":"b/c.sh","bytes":""},`+one)))
	if err != nil || len(s.Files) != 2 || string(s.Files[1].Bytes) != "hi" || s.Files[0].Path != "b/c.sh" {
		t.Errorf("%+v %v", s, err)
	}
	for in, want := range map[string]string{
		`[]`:                                 "skill: want a JSON object",
		body("", one):                        "skill.name",
		body("../a", one):                    "skill.name",
		body("a/b", one):                     "skill.name",
		body(".a", one):                      "skill.name",
		body("é", one):                       "skill.name",
		body(strings.Repeat("a", 129), one):  "skill.name",
		`{"name":"a","files":[` + one + `]}`: "skill.description: it is missing",
		body("a", ""):                        `there is no SKILL.md`,
		body("a", one+","+one):               `"SKILL.md" is there twice`,
		body("a", one+`,{"path":"../x","bytes":""}`):                        "[1]: path",
		body("a", one+`,{"path":"/x","bytes":""}`):                          "[1]: path",
		body("a", one+`,{"path":"a\\b","bytes":""}`):                        "skill.files",
		body("a", one+`,{"path":"x"}`):                                      "[1]: bytes: it is missing",
		body("a", one+`,{"path":"x","bytes":"?"}`):                          "want base64",
		body("a", one+`,{"path":"x","bytes":1}`):                            "bytes: want a string",
		body("a", one+`,{"bytes":""}`):                                      "path: it is missing",
		body("a", one+`,{"path":"x/y","bytes":""},{"path":"x","bytes":""}`): `"x" is a file and a folder`,
	} {
		if _, err := wire.ParseEnvSkill([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// FuzzEnvSkill: what reads as a skill is written so that it reads the same.
func FuzzEnvSkill(f *testing.F) {
	f.Add([]byte(`{"name":"a","description":"d","files":[{"path":"SKILL.md","bytes":"aGk="},{"path":"b/c","bytes":""}]}`))
	f.Add([]byte(`{"name":"a","description":"d","files":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := wire.ParseEnvSkill(b)
		if err != nil {
			return
		}
		once, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.ParseEnvSkill(once)
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%+v\n%+v\n%v", s, again, err)
		}
	})
}
