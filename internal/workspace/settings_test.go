package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

func editable(t *testing.T, config, secrets string) folder.Folder {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, folder.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	f := folder.At(root)
	for name, text := range map[string]string{folder.Config: config, folder.Secrets: secrets} {
		if err := os.WriteFile(f.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func edited(t *testing.T, f folder.Folder, change func(*Settings) error) (config, secrets string, err error) {
	t.Helper()
	err = f.Change(t.Context(), func(tx *folder.Tx) error { return EditSettings(tx, change) })
	for name, to := range map[string]*string{folder.Config: &config, folder.Secrets: &secrets} {
		b, readErr := f.Read(name)
		if readErr != nil {
			t.Fatal(readErr)
		}
		*to = string(b)
	}
	return config, secrets, err
}

// TestPurgeBundle is row 91: what a bundle gave goes, what was edited since or was the operator's stays.
func TestPurgeBundle(t *testing.T) {
	t.Parallel()
	f := editable(t, `# mine
[mcp]
enabled = true

[[mcp.servers]]
name = "mine"
url = "https://example.com/mine"

[[mcp.servers]]
name = "given"
transport = "http"
url = "https://example.com/given"

[[mcp.servers]] # edited
name = "edited"
transport = "http"
url = "https://example.org/other"
`, `[bundles.pm]
token = "t"
[bundles.other]
token = "o"
[mcp.given]
headers-X = "h"
`)
	row := git.BundleRow{ID: "pm"}
	for _, name := range []string{"given", "edited"} {
		v := map[string]any{"name": name, "transport": "http", "url": "https://example.com/" + name}
		row.Seeded = append(row.Seeded, git.Seeded{File: inConfig, Key: "mcp.servers." + name, SHA256: ref.DigestOf(doc.Canonical(doc.Build(v))).Hex()})
	}
	var servers []string
	var hidden bool
	config, secrets, err := edited(t, f, func(s *Settings) (err error) {
		servers, hidden, err = s.PurgeBundle(row)
		return err
	})
	if err != nil || !slices.Equal(servers, []string{"given"}) || !hidden {
		t.Fatalf("purged %q, secrets %v, %v", servers, hidden, err)
	}
	for _, want := range []string{"# mine", "https://example.com/mine", "# edited", "https://example.org/other"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lost %q:\n%s", want, config)
		}
	}
	if strings.Contains(config, "example.com/given") || strings.Contains(secrets, "pm") || strings.Contains(secrets, "headers-X") || !strings.Contains(secrets, "[bundles.other]") {
		t.Errorf("after the purge:\n%s\n%s", config, secrets)
	}
}

// TestPurgeKeepsCoreSections is row 14: a plugin whose id is a section of the program's has no settings there.
func TestPurgeKeepsCoreSections(t *testing.T) {
	t.Parallel()
	const text = "[model]\ndefault = \"x\"\n"
	f := editable(t, text, text)
	config, secrets, err := edited(t, f, func(s *Settings) error {
		settings, hidden, err := s.Purge("model")
		if settings || hidden {
			t.Error("purging says that it removed something")
		}
		return err
	})
	if err != nil || config != text || secrets != text {
		t.Errorf("%v\n%s\n%s", err, config, secrets)
	}
}

// TestEditSettingsRefuses: a file that can't be read is told without what is in it, and nothing changes.
func TestEditSettingsRefuses(t *testing.T) {
	t.Parallel()
	f := editable(t, "a = 1\n", "token = \"hunter2\nx\n")
	config, _, err := edited(t, f, func(s *Settings) error { _, err := s.Enable("board"); return err })
	if err == nil || strings.Contains(err.Error(), "hunter2") || config != "a = 1\n" {
		t.Errorf("%v\n%s", err, config)
	}
}
