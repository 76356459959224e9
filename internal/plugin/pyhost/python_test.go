package pyhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tests of the Python modules, which stand beside them in python/tests.
func TestPython(t *testing.T) {
	t.Parallel()
	generation(t) // a machine without Python is told of there
	base, _ := basePython()
	dir, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), base, "-m", "unittest", "discover", "-t", dir, "-s", filepath.Join(dir, "tests"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + shared}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nOK") {
		t.Errorf("%v\n%s", err, out)
	}
}
