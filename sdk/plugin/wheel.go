package plugin

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Wheel is a package of Python's kind that installs a program and says what it adds: what `agent-env plugin add` installs. program is the executable's bytes;
// goos and goarch are what it runs on, as Go calls them. It answers the file's name and content, the same bytes for the same program.
func (p *Plugin) Wheel(distribution string, program []byte, goos, goarch string) (name string, content []byte, err error) {
	if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`).MatchString(distribution) {
		return "", nil, fmt.Errorf("%q can't be the name of a distribution: write letters, digits and - . _, none of these at an end", distribution)
	}
	if !regexp.MustCompile(`^[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?$`).MatchString(p.Version) {
		return "", nil, fmt.Errorf("the version %q is none of Python's kind: write it as 1.2.0 or 1.2.0rc1", p.Version)
	}
	tag, ok := map[string]string{
		"linux/amd64": "linux_x86_64", "linux/arm64": "linux_aarch64", "darwin/amd64": "macosx_11_0_x86_64", "darwin/arm64": "macosx_11_0_arm64",
	}[goos+"/"+goarch]
	if !ok {
		return "", nil, fmt.Errorf("wheels for %s on %s aren't known here", goos, goarch)
	}
	manifest, err := p.Manifest()
	if err != nil {
		return "", nil, err
	}
	stem := strings.ToLower(regexp.MustCompile(`[-_.]+`).ReplaceAllString(distribution, "_")) + "-" + p.Version
	info := stem + ".dist-info/"
	tag = "py3-none-" + tag
	files := []struct {
		name string
		mode fs.FileMode
		text []byte
	}{
		{stem + ".data/scripts/" + p.Name, 0o755, program},
		{info + "METADATA", 0o644, fmt.Appendf(nil, "Metadata-Version: 2.1\nName: %s\nVersion: %s\n", distribution, p.Version)},
		{info + "WHEEL", 0o644, fmt.Appendf(nil, "Wheel-Version: 1.0\nGenerator: agent-env-sdk\nRoot-Is-Purelib: false\nTag: %s\n", tag)},
		{info + "entry_points.txt", 0o644, fmt.Appendf(nil, "[%s]\n%s = %s\n", GroupExec, p.Name, p.Name)},
		{info + ManifestName, 0o644, manifest},
	}
	var out, record bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name string, mode fs.FileMode, text []byte) error {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	for _, f := range files {
		if err := add(f.name, f.mode, f.text); err != nil {
			return "", nil, err
		}
		sum := sha256.Sum256(f.text)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := add(info+"RECORD", 0o644, record.Bytes()); err != nil {
		return "", nil, err
	}
	if err := z.Close(); err != nil {
		return "", nil, err
	}
	return stem + "-" + tag + ".whl", out.Bytes(), nil
}

// writeWheel writes the wheel of the program that is running into a folder and answers its path.
func (p *Plugin) writeWheel(distribution, dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	name, content, err := p.Wheel(distribution, program, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, content, 0o644) //nolint:forbidigo // a product, no state
}
