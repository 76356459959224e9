package pyhost_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

func TestWheelsAreTheSameBytesAndComplete(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	wheels, err := pyhost.Wheels(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pyhost.Wheels(second); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range wheels {
		names = append(names, filepath.Base(w.Path))
		a, err := os.ReadFile(w.Path)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(filepath.Join(second, filepath.Base(w.Path))); !bytes.Equal(a, b) {
			t.Errorf("%s differs from one time to the next", w.Path)
		}
		checkRecord(t, a)
	}
	want := "agentenv_framework_protocol-0.1.379-py3-none-any.whl agentenv_framework-0.9.1375-py3-none-any.whl"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("wheels %s, want %s", got, want)
	}
}

// checkRecord holds a wheel to its RECORD, and to holding modules and metadata alone.
func checkRecord(t *testing.T, wheel []byte) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	var record, metadata string
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		switch {
		case strings.HasSuffix(f.Name, "/RECORD"):
			record = string(b)
			continue
		case strings.HasSuffix(f.Name, "/METADATA"):
			metadata = string(b)
		case !strings.HasSuffix(f.Name, ".py") && !strings.HasSuffix(f.Name, "/WHEEL"):
			t.Errorf("%s in the wheel", f.Name)
		}
		sum := sha256.Sum256(b)
		have[f.Name] = fmt.Sprintf("%s,sha256=%s,%d", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(b))
	}
	lines := strings.Split(strings.TrimSpace(record), "\n")
	if len(lines) != len(have)+1 {
		t.Errorf("RECORD has %d lines for %d files", len(lines), len(have))
	}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ",")
		if !strings.HasSuffix(name, "/RECORD") && have[name] != line {
			t.Errorf("RECORD says %q, and the file is %q", line, have[name])
		}
	}
	if !strings.Contains(metadata, "Requires-Python: >=3.9\n") || !strings.HasPrefix(metadata, "Metadata-Version: 2.1\nName: agentenv-framework") {
		t.Errorf("METADATA:\n%s", metadata)
	}
}

// The modules hold what decided names say: no module of tests, and packages with a text each.
func TestModules(t *testing.T) {
	dir := t.TempDir()
	if err := pyhost.Modules(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agent_env/__init__.py", "agent_env/_host.py", "agentenv_protocol/client.py", "agentenv_host/__main__.py"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	tops, err := os.ReadDir(dir)
	if err != nil || len(tops) != 3 {
		t.Errorf("%d packages: %v, %v", len(tops), tops, err)
	}
}
