package deploy

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
)

// zipOf is a zip of members: a name and its content, or a link with "->" and where it leads.
func zipOf(t testing.TB, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		h := &zip.FileHeader{Name: members[i]}
		h.SetMode(0o644)
		text, link := strings.CutPrefix(members[i+1], "->")
		if link {
			h.SetMode(0o777 | fs.ModeSymlink)
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A link to a file of a tree is a file of that content, as an export answers it; any other link, and what is no file, is told.
func TestLinksOfATree(t *testing.T) {
	for name, tt := range map[string]struct {
		members []string
		want    string // the files, or what is refused
	}{
		"a link beside its file":   {[]string{"Notes/a", "one", "Notes/b", "->a"}, "Notes/a=one Notes/b=one"},
		"a link of a link":         {[]string{"a", "->x/b", "x/b", "->../c", "c", "one"}, "a=one c=one x/b=one"},
		"a link out of the tree":   {[]string{"a", "->../../etc/passwd"}, "'a' in it is a link to '../../etc/passwd', which is no file of the tree, and a computer takes files alone"},
		"a link to the machine":    {[]string{"a", "->/etc/passwd", "etc/passwd", "x"}, "'a' in it is a link to '/etc/passwd', which is no file of the tree, and a computer takes files alone"},
		"a link to a folder":       {[]string{"a", "->x", "x/b", "one"}, "'a' in it is a link to 'x', which is no file of the tree, and a computer takes files alone"},
		"a link to itself":         {[]string{"a", "->b", "b", "->a"}, "'a' in it is a link that leads nowhere, and a computer takes files alone"},
		"a link that is too long":  {[]string{"a", "->" + strings.Repeat("b", maxTarget+1)}, "'a' in it is a link that can't be read, and a computer takes files alone"},
		"a place outside the home": {[]string{"../a", "one"}, "'../a' in it can't be a place in a home: "},
		"a file twice":             {[]string{"a", "one", "a", "two"}, "'a' is in it twice"},
	} {
		t.Run(name, func(t *testing.T) {
			parts, err := unpackTree(zipOf(t, tt.members...))
			var got []string
			for i := range parts {
				b, err := parts[i].File.Content()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s=%s", placeOf(&parts[i]), b))
			}
			if err != nil && !strings.HasPrefix(err.Error(), tt.want) || err == nil && strings.Join(got, " ") != tt.want {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}

func FuzzUnpackTree(f *testing.F) {
	f.Add(zipOf(f, "Notes/a", "one", "Notes/b", "->a"))
	f.Add(zipOf(f, "a", "->b", "b", "->a"))
	f.Add([]byte("PK\x05\x06"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := unpackTree(b)
		if err != nil {
			return
		}
		for i := range parts {
			if at := placeOf(&parts[i]); at == "" || strings.Contains(at, "..") && strings.Contains("/"+at+"/", "/../") {
				t.Errorf("%q", at)
			}
		}
	})
}
