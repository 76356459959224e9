package cli_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rowID = regexp.MustCompile(`\b([ECOSV])([0-9]{1,2})(?:-[ECOSV]?([0-9]{1,2}))?\b`)

// TestRequirementRows: every row of what bundles require and of how plugins are installed is named by a test, or by a decision that says why it has none. The log
// is the table of them.
func TestRequirementRows(t *testing.T) {
	root := filepath.Join("..", "..")
	where := map[string]map[string]bool{}
	for _, dir := range []string{ // those that are about these tables: others have rows of the same letters
		"internal/requirement", "internal/bundle/requires_test.go", "internal/bundlerun/declare_test.go", "internal/plugin", "internal/cli/plugin",
		"internal/cli/testdata/requires", "internal/cli/testdata/engine/echo_plugin.txtar", "internal/cli/testdata/script/bundle_requires.txtar", "internal/cli/prompt_test.go", "internal/cli/user_test.go",
	} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".txtar") {
				return err
			}
			return rows(path, "", where)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := rows(filepath.Join(root, "docs", "decisions.md"), "## Requirements of bundles", where); err != nil {
		t.Fatal(err)
	}
	for _, table := range []struct {
		letter string
		n      int
	}{{"E", 34}, {"C", 5}, {"S", 28}, {"O", 21}, {"V", 67}} {
		for i := range table.n {
			id := table.letter + strconv.Itoa(i+1)
			if len(where[id]) == 0 {
				t.Errorf("no test and no decision names %s", id)
			}
			if table.letter != "V" {
				t.Logf("%-4s %s", id, strings.Join(slices.Sorted(maps.Keys(where[id])), ", "))
			}
		}
	}
}

// rows notes which rows a file names, from a heading on.
func rows(path, heading string, where map[string]map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(b)
	if heading != "" {
		_, after, ok := strings.Cut(text, heading)
		if !ok {
			return fmt.Errorf("%s has no %q", path, heading)
		}
		text = after
	}
	for _, m := range rowID.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[3] != "" {
			last, _ = strconv.Atoi(m[3])
		}
		for i := first; i <= last; i++ {
			id := m[1] + strconv.Itoa(i)
			if where[id] == nil {
				where[id] = map[string]bool{}
			}
			where[id][filepath.Base(path)] = true
		}
	}
	return nil
}
