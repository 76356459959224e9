package dist

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

func FuzzEntryPoints(f *testing.F) {
	f.Add([]byte("[agent_env.task_steps]\na = m:C\n# note\nb=m:D [x]\n"))
	f.Add([]byte("[g]\r\na = b\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		points, err := parseEntryPoints(b)
		if err != nil {
			if diag.Clean(err.Error()) != err.Error() {
				t.Errorf("the error moves the cursor: %q", err)
			}
			return
		}
		var again strings.Builder
		for _, p := range points {
			if p.Group == "" || p.Name == "" || p.Value == "" || diag.Clean(p.Group+p.Name+p.Value) != p.Group+p.Name+p.Value {
				t.Fatalf("%q", p)
			}
			again.WriteString("[" + p.Group + "]\n" + p.Name + " = " + p.Value + "\n")
		}
		back, err := parseEntryPoints([]byte(again.String()))
		if err != nil || len(back) != len(points) {
			t.Fatalf("%q reads again as %q, %v", points, back, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: b;\n  extra == 'c'\n\ntext")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHeader(strings.NewReader(text))
		if err == nil && h.name == "" {
			t.Error("a header without a name")
		}
		for _, r := range h.requires {
			if strings.ContainsAny(r, "\n\r") && !strings.Contains(text, "\r") {
				t.Errorf("a requirement of two lines: %q", r)
			}
		}
	})
}
