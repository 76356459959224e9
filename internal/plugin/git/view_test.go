package git

import "testing"

// TestViewPage: a view is a file of the plugin's own tree, or nothing.
func TestViewPage(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][2]string{
		"/plugins/a/ui/x.html":         {"ui/x.html", "ui/x.html"},
		"/plugins/a/ui/x.html?q=1#top": {"ui/x.html", "ui/x.html?q=1#top"},
		"/plugins/a/":                  {"index.html", "index.html"},
		"/plugins/a/ui/":               {"ui/index.html", "ui/index.html"},
		"/plugins/a/%3cb":              {"<b", "%3Cb"},
		"/plugins/a/a b:c.html":        {"a b:c.html", "a%20b:c.html"},
		"/plugins/a":                   {}, "/plugins/b/x.html": {}, "/api/plugins/a/x": {}, "/plugins/a/../b/x": {}, "/plugins/a/%2e%2e/x": {}, "/plugins/a//x": {}, "x.html": {}, "": {},
		"https://evil.example/plugins/a/x": {}, "//evil.example/plugins/a/x": {}, "javascript:x": {}, "/plugins/a/\\x": {}, "/plugins/a/%2525": {},
	} {
		file, address := View{Path: path}.Page("a")
		if file != want[0] || address != want[1] {
			t.Errorf("%q: %q, %q, want %q", path, file, address, want)
		}
	}
}
