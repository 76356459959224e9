package env

import (
	"strings"
	"testing"
)

func TestProcessOf(t *testing.T) {
	for src, want := range map[string]string{
		"FROM python:3.11-slim\nWORKDIR /app\nCOPY requirements.txt .\nRUN pip install --no-cache-dir -r requirements.txt\nCOPY . .\nENV MCP_PORT=9000 COLOUR='light blue'\n" +
			"# end\nEXPOSE 9000\nCMD [\"python\", \"server.py\"]\n": "command = [\"python3\", \"server.py\"]\npython = \"requirements.txt\"\nport = 9000\n\n[env]\nCOLOUR = \"light blue\"\n",
		"from scratch\nCOPY --chown=1:1 server /app/server\nWORKDIR /app\nENTRYPOINT [\"./server\"]\nCMD [\"--fast\"]":      "command = [\"./server\", \"--fast\"]\n",
		"FROM a\nRUN useradd --create-home app\nUSER app\nRUN pip3 install \\\n  -q -r \\\n  r.txt\nENV A b c\nCMD [\"x\"]": "command = [\"x\"]\npython = \"r.txt\"\n\n[env]\nA = \"b c\"\n",
	} {
		got, l := ProcessOf("Dockerfile", []byte(src))
		if l.HasErrors() || got != want {
			t.Errorf("%s\n got %s %v\nwant %s", src, got, l, want)
		}
	}
	for src, want := range map[string]string{
		"":                             "no CMD or ENTRYPOINT",
		"FROM a\nCMD python server.py": "CMD must be a list",
		"FROM a\nFROM b\nCMD [\"x\"]":  "a second FROM",
		"FROM a\nRUN apt-get install curl\nCMD [\"x\"]":    "RUN apt-get install curl",
		"FROM a\nRUN useradd x && make\nCMD [\"x\"]":       "RUN useradd x && make",
		"FROM a\nRUN pip install mcp\nCMD [\"x\"]":         "RUN installs mcp",
		"FROM a\nCOPY --from=b /x /y\nCMD [\"x\"]":         "copies from elsewhere",
		"FROM a\nCOPY src /srv/other\nCMD [\"x\"]":         "puts src elsewhere",
		"FROM a\nADD https://x/y .\nCMD [\"x\"]":           "puts https://x/y elsewhere",
		"FROM a\nARG X\nCMD [\"x\"]":                       "ARG",
		"FROM a\nENV A=$B\nCMD [\"x\"]":                    "ENV is written",
		"FROM a\nVOLUME /data\nCMD [\"x\"]":                "VOLUME",
		"FROM a\nRUN pip install -r ../r.txt\nCMD [\"x\"]": "must be a file of the folder",
	} {
		_, l := ProcessOf("Dockerfile", []byte(src))
		if err := l.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", src, err, want)
		}
	}
}

func FuzzProcessOf(f *testing.F) {
	f.Add("FROM a\nCOPY . .\nENV A=\"b\\\nc\" D=e\nRUN pip install -r r.txt\nCMD [\"x\", \"\\u0000\"]")
	f.Add("ENTRYPOINT [\"a\"]\nCMD [\"\x7f\"]")
	f.Fuzz(func(t *testing.T, src string) {
		text, l := ProcessOf("Dockerfile", []byte(src))
		if l.HasErrors() {
			return
		}
		if _, l := ReadProcess("p", []byte(text)); l.HasErrors() {
			t.Errorf("%q gives %q: %v", src, text, l)
		}
	})
}

func TestCopiesSelf(t *testing.T) {
	for text, want := range map[string]bool{
		"FROM scratch\nCOPY agent-env /agent-env\n":                      true,
		"FROM scratch\ncopy --chown=1:1 --chmod=755 ./agent-env \\\n /x": true,
		"FROM scratch\nCOPY [\"a\", \"agent-env\", \"/bin/\"]\n":         true,
		"FROM scratch\nADD agent-env /x":                                 true,
		"FROM scratch\nCOPY . /agent-env\n":                              false,
		"FROM scratch\nCOPY --from=build agent-env /agent-env\n":         false,
		"FROM scratch\n# COPY agent-env /agent-env\n":                    false,
		"FROM scratch\nCOPY bin/agent-env /agent-env\nCOPY":              false,
	} {
		if got := CopiesSelf([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzCopiesSelf(f *testing.F) {
	f.Add([]byte("FROM scratch\nCOPY --from=x agent-env /agent-env\n"))
	f.Fuzz(func(t *testing.T, b []byte) { CopiesSelf(b) })
}
