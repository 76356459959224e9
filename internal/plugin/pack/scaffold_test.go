package pack

import (
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
)

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{"My Desk!": "my-desk", "a--b": "a-b", "  ": "plugin", "Ünï": "n", "x_1": "x-1", "-": "plugin"} {
		if got := Slug(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestReadMember: an @ of the URL is none of a ref's.
func TestReadMember(t *testing.T) {
	for text, want := range map[string]Member{
		"a=https://example.com/o/r":           {URL: "https://example.com/o/r"},
		"a=https://example.com/o/r@v1":        {URL: "https://example.com/o/r", Ref: "v1"},
		"a=https://example.com/o/r@feature/x": {URL: "https://example.com/o/r", Ref: "feature/x"},
		"a=git@example.com:o/r":               {URL: "git@example.com:o/r"},
		"a=git@example.com:o/r@v1":            {URL: "git@example.com:o/r", Ref: "v1"},
		"a=ssh://git@example.com/o/r@v1.2.3":  {URL: "ssh://git@example.com/o/r", Ref: "v1.2.3"},
		"a=/srv/r@main":                       {URL: "/srv/r", Ref: "main"},
	} {
		m, err := ReadMember(text)
		if err != nil || m.URL != want.URL || m.Ref != want.Ref || m.ID != "a" {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	for _, text := range []string{"a", "=https://example.com/r", "a=", "a=r", "install=https://example.com/r", "a=https://u:p@example.com/r@v1"} {
		if m, err := ReadMember(text); err == nil {
			t.Errorf("%s: %+v", text, m)
		}
	}
}

// FuzzNewPlugin: what is written for any name and summary is read back as it was said.
func FuzzNewPlugin(f *testing.F) {
	f.Add("My Desk!", "says: \"hi\" # no comment", uint8(0))
	f.Add("x", "a\nb\t\x00\u2028é", uint8(31))
	f.Add("<b>x</b>", "<script>", uint8(31))
	f.Add("---", "", uint8(8))
	f.Fuzz(func(t *testing.T, name, summary string, bits uint8) {
		parts := Parts{bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0, bits&16 > 0}
		files, id, err := NewPlugin(name, summary, parts)
		if err != nil {
			return
		}
		fsys := fstest.MapFS{}
		for n, text := range files {
			fsys[n] = &fstest.MapFile{Data: []byte(text)}
		}
		m, l := git.ReadManifest(fsys)
		count := func(b bool) int {
			if b {
				return 1
			}
			return 0
		}
		skill := parts.Skill || !parts.View && !parts.Workflow && !parts.Comms
		if m == nil || m.ID != id || len(l) > 0 || len(m.Skills) != count(skill) || len(m.Views) != count(parts.View) || len(m.Workflows) != count(parts.Workflow) || m.MCP.Len() != count(parts.Comms) {
			t.Fatalf("%q, %q, %+v: %v\n%s", name, summary, parts, l.Err(), files[git.PluginFile])
		}
		var faults diag.List
		if Servers(m.MCP, "mcp", &faults); len(faults) > 0 {
			t.Errorf("%v\n%s", faults.Err(), files[git.PluginFile])
		}
		files, id, err = NewBundle(name, summary, []Member{{ID: "board", URL: "/srv/board", Ref: "v1"}})
		if err != nil {
			return
		}
		if m, l := Parse(git.BundleFile, []byte(files[git.BundleFile])); l.HasErrors() || m.ID != id || len(m.Members) != 1 {
			t.Errorf("%q, %q: %v\n%s", name, summary, l.Err(), files[git.BundleFile])
		}
	})
}
