package pyhost_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

// shared is a folder with our own modules, which environments of tests have on their path.
var shared string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pyhost-")
	if err != nil {
		panic(err)
	}
	shared = dir
	if err := pyhost.Modules(shared); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// basePython is the interpreter of this machine, behind whatever shims, and the name of its library folder. Our own modules are compiled for
// it, as they are in an environment of the program.
var basePython = sync.OnceValues(func() (string, string) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys._base_executable); print('python%d.%d' % sys.version_info[:2])").Output()
	path, lib, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || !ok {
		return "", ""
	}
	_ = exec.Command(path, "-m", "compileall", "-q", shared).Run()
	return path, lib
})

// generation makes a virtual environment with our own modules and plugins of testdata/plugins, and answers its interpreter.
func generation(t testing.TB, plugins ...string) string {
	t.Helper()
	base, lib := basePython()
	if base == "" {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("no python3")
		}
		t.Skip("no python3 on this machine")
	}
	dir := t.TempDir()
	site := filepath.Join(dir, "lib", lib, "site-packages")
	python := filepath.Join(dir, "bin", "python")
	for _, d := range []string{site, filepath.Dir(python)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(base, python); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pyvenv.cfg"), "home = "+filepath.Dir(base)+"\ninclude-system-site-packages = false\n")
	write(t, filepath.Join(site, "ours.pth"), shared+"\n")
	for _, p := range plugins {
		if err := os.CopyFS(site, os.DirFS(filepath.Join("testdata", "plugins", p))); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return python
}

// install writes modules into the environment of an interpreter, by name.
func install(t testing.TB, python string, modules map[string]string) {
	t.Helper()
	_, lib := basePython()
	for name, text := range modules {
		write(t, filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", lib, "site-packages", name), text)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
}
