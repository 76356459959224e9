package artifact

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// exe is a file that its owner may execute.
func exe(path, text string) Bytes {
	b := file(path, text)
	b.Mode = 0o750
	return b
}

// The digests are what the peer records for the same folders.
func TestSourceDigest(t *testing.T) {
	plain := []Bytes{
		file("Dockerfile", "FROM scratch\n"),
		{Path: "dl", Link: "sub"},
		{Path: "lnk", Link: "sub/ü"},
		{Path: "sub/empty", Folder: true},
		exe("sub/ü", "x"),
		file(".dockerignore", "junk\n"), file(".git/x", ""),
	}
	odd := []Bytes{
		file("Dockerfile", "FROM scratch\n"), file("a/b", ""), file("a-b", ""), file("a.b", ""), exe("a0", ""), file("q\x7f\"\\\n\x01z", ""), file("é€😀", ""),
		{Path: "n/m/o", Folder: true},
	}
	odd[3].Mode = 0o611
	for _, tc := range []struct {
		platform string
		files    []Bytes
		want     ref.Digest
	}{
		{"", plain, "sha256:58bdae42cd3d1bf8fd4abb7889e2fa73d24ddfc65d46656bef9ef6aa78b1988e"},
		{"linux/amd64", plain, "sha256:2c7b5a8ec8666b124fc2fb2f9f42a37fe42706c55a219992638523c32ae9cd53"},
		{"", odd, "sha256:9c02d3989c439a74835133ff652a0b4216d2b599ed54781e9cef75f4ab16b5bd"},
		{"linux/amd64", odd, "sha256:761960c6c1c75809c857369e40802142709ea6188a3d736b20e1a35592cccc1d"},
	} {
		if got := SourceDigest("Dockerfile", tc.platform, tc.files); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.platform, got, tc.want)
		}
		back := slices.Clone(tc.files)
		slices.Reverse(back)
		if got := SourceDigest("Dockerfile", tc.platform, back); got != tc.want {
			t.Errorf("%q: the order of files counts", tc.platform)
		}
	}
}

// The image of the ledger's goldens has the name and digest that the peer gave it.
func TestImageDocument(t *testing.T) {
	toml, err := os.ReadFile("../ledger/testdata/b/agents/bot/agent.toml")
	if err != nil {
		t.Skip("the ledger's bundle has moved")
	}
	d := NewImage(Pin{"@local/~/b/bot__agent_image", 1}, "Dockerfile", "built from agents/bot/Dockerfile",
		[]Bytes{file("Dockerfile", "FROM scratch\n"), file("agent.toml", string(toml))})
	got := decoded(t, d)
	if got["source_digest"] != "sha256:eb5f10961027e3261aca627747ac8c575c595f2c5495e9c40177d1ee38bae417" ||
		got["image_name"] != "local/b-bot-agent-image-2963b025a0ce:eb5f10961027e326" || got["image_digest"] != nil || got["platform"] != nil {
		t.Errorf("%v", got)
	}
}

func TestImagesAreRead(t *testing.T) {
	files := []Bytes{file("Dockerfile", "x"), {Path: "empty", Folder: true}, {Path: "l", Link: "Dockerfile"}, exe("run", "y")}
	d := NewImage(Pin{"@local/i", 1}, "Dockerfile", "", files)
	got, err := ReadImage(d.Body(time.Now()))
	if err != nil || !reflect.DeepEqual(got.Files, files) || got.Dockerfile != "Dockerfile" || !strings.HasPrefix(got.Name, "local/i-") {
		t.Errorf("%+v, %v", got, err)
	}
	digest := ref.DigestOf([]byte("x"))
	d = NewImageOf(Pin{"@local/r", 1}, "registry.example/x:1", digest, "about")
	got, err = ReadImage(d.Body(time.Now()))
	if err != nil || got.Name != "registry.example/x:1@"+string(digest) || got.Dockerfile != "" || len(got.Files) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ReadImage([]byte(`{"build_context":{"../x":{}}}`)); err == nil {
		t.Error("a file outside is read")
	}
}

// What each pattern leaves out is what the peer leaves out of a build context.
func TestIgnore(t *testing.T) {
	b, err := os.ReadFile("testdata/dockerignore.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Files   []string            `json:"files"`
		LeftOut map[string][]string `json:"left_out"`
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for src, want := range golden.LeftOut {
		ig, l := ParseIgnore(IgnoreFile, []byte(src), "Dockerfile")
		if len(l) > 0 {
			t.Errorf("%q: %v", src, l)
		}
		got := []string{}
		for _, f := range golden.Files {
			if ig.Match(f) {
				got = append(got, f)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q leaves out %q, want %q", src, got, want)
		}
	}
}

func TestIgnoreRefuses(t *testing.T) {
	_, l := ParseIgnore("c/.dockerignore", []byte("ok\nd/[\n\n!x\\\n[z-a]\n"), "Dockerfile")
	want := "c/.dockerignore:2: 'd/[' is no pattern: its [ has no set and no ]\n" +
		"c/.dockerignore:4: '!x\\' is no pattern: it ends with a backslash\n" +
		"c/.dockerignore:5: '[z-a]' is no pattern: it can't be read"
	if err := l.Err(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	// A backslash takes what follows as it is, and what leads out of the folder names nothing in it.
	ig, _ := ParseIgnore("", []byte("\\a\n../b\n[!x]1\n\\*\n"), "sub/Dockerfile")
	for name, want := range map[string]bool{"a": true, "b": false, "y1": true, "x1": false, "*": true, "c": false, "sub/Dockerfile": false} {
		if got := ig.Match(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func FuzzIgnore(f *testing.F) {
	for _, s := range []string{"*\n!a/**/b", "**/**/**", "[a-", "\xff", "!/..", "#x", "[[:alpha:]]", "[]]"} {
		f.Add(s, "a/b/c")
	}
	f.Fuzz(func(t *testing.T, src, name string) {
		ig, l := ParseIgnore("f", []byte(src), "Dockerfile")
		if ig.Match(name) && len(ig.patterns) == 0 {
			t.Error("no pattern, and a match")
		}
		for _, p := range l {
			if s := p.String(); diag.Clean(s) != s {
				t.Errorf("%q", s)
			}
		}
		if all, _ := ParseIgnore("", []byte(src+"\n**"), "Dockerfile"); name != "Dockerfile" && name != IgnoreFile && name != "." && name != "/" && !all.Match(name) {
			t.Errorf("** doesn't match %q", name)
		}
	})
}
