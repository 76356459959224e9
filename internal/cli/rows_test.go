package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	script   = regexp.MustCompile(`^[a-z0-9_]+$`)
)

// held checks a table of rows: each names tests and scripts that are there, below folders of the module, or, behind "-", why no test can hold it.
func held(t *testing.T, rows []row, dirs ...string) {
	t.Helper()
	there := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(dir)), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if name, ok := strings.CutSuffix(e.Name(), ".txtar"); ok {
				there[name] = true
			}
			if !strings.HasSuffix(path, "_test.go") {
				return nil
			}
			b, err := os.ReadFile(path)
			for _, m := range testFunc.FindAllSubmatch(b, -1) {
				there[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rows {
		why, reason := strings.CutPrefix(r.held, "- ")
		switch {
		case reason && len(why) < 20, r.held == "":
			t.Errorf("row %s has no test and no reason", r.name)
		case reason:
			continue
		}
		for name := range strings.FieldsSeq(r.held) {
			if !there[name] || !strings.HasPrefix(name, "Test") && !script.MatchString(name) {
				t.Errorf("row %s names %s, which isn't there", r.name, name)
			}
		}
	}
}

// row is one that has to hold, and what holds it.
type row struct{ name, held string }
