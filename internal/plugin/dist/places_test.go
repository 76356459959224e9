package dist

import (
	"slices"
	"strings"
	"testing"
)

// What holds a password is handed to installers by variables, and never by argv, which every user of the machine can read.
func TestPasswordsOfPlacesAreInNoArgv(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for name, c := range map[string]Change{
		"index": {Add: []string{"acme"}, IndexURL: "https://me:hunter2@index.example/simple"},
		"links": {Add: []string{"acme"}, FindLinks: []string{"/srv/my wheels,old", "https://me:hunter2@links.example/"}},
		"token": {Add: []string{"acme"}, IndexURL: "https://hunter2@index.example/simple"},
		"wrong": {Add: []string{"acme"}, IndexURL: "https://me:hunter2@index.example:port/simple"},
	} {
		for _, tool := range []installer{&uvTool{path: "uv"}, &pipTool{}} {
			if argv := tool.addition("/gen", c, asked{}); strings.Contains(strings.Join(argv, " "), secret) || !slices.Contains(argv, "acme") {
				t.Errorf("%s, %s: %q", name, tool.name(), argv)
			}
			if !c.hides() || !strings.Contains(strings.Join(tool.variables(c), " "), secret) {
				t.Errorf("%s, %s: the installer isn't told of the place: %q", name, tool.name(), tool.variables(c))
			}
		}
	}
	for _, want := range []struct {
		tool installer
		is   []string
	}{
		{&uvTool{}, []string{"UV_DEFAULT_INDEX=https://me@i.example", "UV_INDEX_URL=https://me@i.example", "UV_FIND_LINKS=file:///a%2Cb,/c d"}},
		{&pipTool{}, []string{"PIP_INDEX_URL=https://me@i.example", "PIP_FIND_LINKS=/a,b file:///c%20d"}},
	} {
		if got := want.tool.variables(Change{IndexURL: "https://me@i.example", FindLinks: []string{"/a,b", "/c d"}}); !slices.Equal(got, want.is) {
			t.Errorf("%s: %q", want.tool.name(), got)
		}
	}
	open := Change{Add: []string{"acme"}, IndexURL: "https://index.example/simple", FindLinks: []string{"/srv/wheels"}}
	if open.hides() {
		t.Error("a place without a password is hidden")
	}
	if argv := (&uvTool{path: "uv"}).addition("/gen", open, asked{}); !slices.Contains(argv, "https://index.example/simple") {
		t.Errorf("what is shown doesn't say where from: %q", argv)
	}
}
