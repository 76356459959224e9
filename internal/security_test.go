package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClaimsNameTests: every test that docs/security.md names exists, parts of lists included.
func TestClaimsNameTests(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "sandboxtest") {
			return err
		}
		b, err := os.ReadFile(name)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all, named := tests.String(), 0
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)(?:/([^`]+))?`").FindAllStringSubmatch(string(text), -1) {
		named++
		if !strings.Contains(all, "func "+m[1]+"(") {
			t.Errorf("docs/security.md names %s, which doesn't exist", m[1])
		}
		if part := strings.ReplaceAll(m[2], "_", " "); part != "" && !strings.Contains(all, `"`+part+`"`) {
			t.Errorf("docs/security.md names %s of %s, which doesn't exist", m[2], m[1])
		}
	}
	if named < 50 {
		t.Errorf("%d tests are named: is the pattern still right?", named)
	}
}
