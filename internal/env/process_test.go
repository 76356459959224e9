package env

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestReadProcess(t *testing.T) {
	p, l := ReadProcess("process.toml", []byte(`
command = ["python3", "server.py"]
build = ["sh", "build.sh"]
python = "./requirements.txt"
port = 9000
[env]
B = "2"
A = ""
`))
	want := Process{Command: []string{"python3", "server.py"}, Build: []string{"sh", "build.sh"}, Python: "requirements.txt", Env: []string{"A=", "B=2"}, Port: 9000}
	if l.HasErrors() || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v %v", p, l)
	}
	if p, l := ReadProcess("p", []byte(`command = ["agent-env", "serve"]`)); l.HasErrors() || p.Port != DefaultPort || p.Build != nil || p.Python != "" {
		t.Errorf("%+v %v", p, l)
	}
}

func TestReadProcessRefuses(t *testing.T) {
	for src, want := range map[string]string{
		``:                                         "command is missing",
		`command = "server"`:                       "command: must be a list",
		`command = []`:                             "command: must not be empty",
		`command = [""]`:                           "command: must begin with a program",
		`command = ["a\u0000b"]`:                   "command[0]: must hold no NUL character",
		`command = ["x", 3]`:                       "command[1]: must be a string",
		"command = [\"x\"]\nimage = 'y'":           "unknown key 'image'",
		"command = [\"x\"]\nport = 0":              "port: must be from 1 to 65535",
		"command = [\"x\"]\nport = 65536":          "port: must be from 1 to 65535",
		"command = [\"x\"]\nport = '1'":            "port: must be an integer",
		"command = [\"x\"]\npython = '../r'":       "python: must be a file of the folder",
		"command = [\"x\"]\npython = '/r'":         "python: must be a file of the folder",
		"command = [\"x\"]\npython = '.'":          "python: must be a file of the folder",
		"command = [\"x\"]\npython = true":         "python: must be a string",
		"command = [\"x\"]\n[env]\nA-B = '1'":      "env: 'A-B' is no name of an environment variable",
		"command = [\"x\"]\n[env]\nA = 1":          "env.A: must be a string",
		"command = [\"x\"]\n[env]\nMCP_PORT = '1'": "env: MCP_PORT is set by the deployment",
		`command = `:                               "",
	} {
		_, l := ReadProcess("process.toml", []byte(src))
		var got []string
		for _, p := range l {
			got = append(got, strings.TrimPrefix(p.Where+": "+p.Summary, ": "))
		}
		if !l.HasErrors() || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%q:\n got %q\nwant %s", src, got, want)
		}
	}
}

func FuzzReadProcess(f *testing.F) {
	f.Add(`command = ["python3", "server.py"]`)
	f.Add("command = [\"x\"]\npython = 'a/../b'\n[env]\nA = '1'\nport = 3")
	f.Fuzz(func(t *testing.T, src string) {
		p, l := ReadProcess("process.toml", []byte(src))
		if l.HasErrors() {
			return
		}
		if len(p.Command) == 0 || p.Command[0] == "" || p.Port < 1 || p.Port > 65535 || p.Python != "" && !inside(p.Python) {
			t.Errorf("%q gives %+v", src, p)
		}
		for _, text := range slices.Concat(p.Command, p.Build, p.Env) {
			if strings.ContainsRune(text, 0) {
				t.Errorf("%q gives %q", src, text)
			}
		}
		if again, _ := ReadProcess("process.toml", []byte(src)); fmt.Sprint(again) != fmt.Sprint(p) {
			t.Errorf("%q reads in two ways", src)
		}
	})
}
