package pack

import (
	"testing"
	"testing/fstest"

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
	f.Add("My Desk!", "says: \"hi\" # no comment")
	f.Add("x", "a\nb\t\x00\u2028é")
	f.Add("---", "")
	f.Fuzz(func(t *testing.T, name, summary string) {
		files, id, err := NewPlugin(name, summary)
		if err != nil {
			return
		}
		fsys := fstest.MapFS{}
		for n, text := range files {
			fsys[n] = &fstest.MapFile{Data: []byte(text)}
		}
		m, l := git.ReadManifest(fsys)
		if m == nil || m.ID != id || len(m.Skills) != 1 {
			t.Errorf("%q, %q: %v\n%s", name, summary, l.Err(), files[git.PluginFile])
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
