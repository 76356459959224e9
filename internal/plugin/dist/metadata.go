package dist

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
)

// No real file of metadata comes near these; what is larger is not read.
const (
	maxHeader = 1 << 20 // the fields of METADATA, without the description after them
	maxPoints = 4 << 20
)

// header are the fields of a METADATA or PKG-INFO that count here.
type header struct {
	name, version string
	requires      []string
}

func readHeader(path string) (header, error) {
	f, err := openPlain(path)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	if err := regular(f); err != nil {
		return header{}, err
	}
	return parseHeader(f)
}

// openPlain opens a file to read it, and never waits for whoever writes to a pipe of that name.
func openPlain(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// regular refuses what a read could hang on.
func regular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file")
	}
	return err
}

// parseHeader reads fields as e-mails have them, up to the empty line before the description.
func parseHeader(r io.Reader) (header, error) {
	var h header
	s := bufio.NewScanner(io.LimitReader(r, maxHeader))
	s.Buffer(make([]byte, 0, 4<<10), maxHeader)
	var last *string // the value that a line that begins with a blank goes on with
	for s.Scan() {
		line := strings.TrimSuffix(s.Text(), "\r")
		if line == "" {
			break
		}
		if !utf8.ValidString(line) {
			return h, errors.New("it is not UTF-8")
		}
		if line[0] == ' ' || line[0] == '\t' {
			if last != nil {
				*last += " " + strings.TrimSpace(line)
			}
			continue
		}
		field, value, ok := strings.Cut(line, ":")
		if !ok {
			break // a description without the line before it
		}
		value, last = strings.TrimSpace(value), nil
		switch strings.ToLower(field) {
		case "name":
			if h.name == "" {
				h.name, last = value, &h.name
			}
		case "version":
			if h.version == "" {
				h.version, last = value, &h.version
			}
		case "requires-dist":
			h.requires = append(h.requires, value)
			last = &h.requires[len(h.requires)-1]
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return h, errors.New("a line of it is too long")
	}
	if s.Err() != nil {
		return h, s.Err()
	}
	if h.name == "" {
		return h, errors.New("it names no distribution")
	}
	return h, nil
}

// readBounded is a small file; nil when there is none.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := openPlain(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := regular(f); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it is larger than %d MB", most>>20)
	}
	return b, err
}

func readEntryPoints(path string) ([]EntryPoint, error) {
	b, err := readBounded(path, maxPoints)
	if err != nil || b == nil {
		return nil, err
	}
	return parseEntryPoints(b)
}

// parseEntryPoints reads the INI dialect of entry_points.txt: sections are groups, lines are `name = value`, `#` and `;` begin a line that is
// no line. One (group, name, value) counts once. Whatever doesn't fit makes the whole file unreadable: half of it would be a guess.
func parseEntryPoints(b []byte) ([]EntryPoint, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("it is not UTF-8")
	}
	var out []EntryPoint
	group, number := "", 0
	for line := range bytes.Lines(b) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		if text[0] == '[' {
			if !strings.HasSuffix(text, "]") || len(text) < 3 {
				return nil, fmt.Errorf("line %d is no section", number)
			}
			group = strings.TrimSpace(text[1 : len(text)-1])
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("line %d is not `name = value`", number)
		}
		if group == "" {
			return nil, fmt.Errorf("line %d stands in no section", number)
		}
		if diag.Clean(name+value+group) != name+value+group {
			return nil, fmt.Errorf("line %d holds a character that can't be printed", number)
		}
		out = append(out, EntryPoint{group, name, value})
	}
	slices.SortFunc(out, compareEntries)
	return slices.Compact(out), nil
}

func compareEntries(a, b EntryPoint) int {
	if c := strings.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Value, b.Value)
}

// readRequiresTxt reads the older form of Requires-Dist: sections `[extra]`, `[extra:marker]` and `[:marker]` over plain requirements.
func readRequiresTxt(path string) []string {
	b, err := readBounded(path, maxPoints)
	if err != nil || !utf8.Valid(b) {
		return nil
	}
	var out []string
	condition := ""
	for line := range strings.Lines(string(b)) {
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		if section, ok := strings.CutPrefix(text, "["); ok {
			extra, marker, _ := strings.Cut(strings.TrimSuffix(section, "]"), ":")
			condition = marker
			if extra != "" && marker != "" {
				condition = fmt.Sprintf("(%s) and extra == %q", marker, extra)
			} else if extra != "" {
				condition = fmt.Sprintf("extra == %q", extra)
			}
			continue
		}
		if condition != "" {
			text += " ; " + condition
		}
		out = append(out, text)
	}
	return out
}

// Manifest is the file beside METADATA that says what a distribution's executable serves.
const Manifest = plugin.ManifestName

const maxManifest = plugin.MaxManifest

// readTypes reads which types the executable of a distribution serves: their groups and names. What else the file says is for who runs it.
func readTypes(path string, entries []EntryPoint) ([]EntryPoint, error) {
	script := ""
	for _, e := range entries {
		if e.Group != GroupExec {
			continue
		}
		if script != "" && script != e.Value {
			return nil, errors.New("several executables: which of them serves a type can't be told")
		}
		script = e.Value
	}
	if script == "" {
		return nil, nil
	}
	b, err := readBounded(path, maxManifest)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, errors.New("it is missing, so nothing tells what the executable serves")
	}
	return parseTypes(b, script)
}

func parseTypes(b []byte, script string) ([]EntryPoint, error) {
	var m struct {
		Version int `json:"format_version"`
		Types   []struct {
			Group string `json:"group"`
			Name  string `json:"name"`
		} `json:"types"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, errors.New("it is not the JSON of a plugin's types")
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("its format is %d, and this agent-env knows 1", m.Version)
	}
	out := make([]EntryPoint, 0, len(m.Types))
	for _, t := range m.Types {
		if GroupWord(t.Group) == "" || t.Group == GroupExec || t.Name == "" || diag.Clean(t.Name) != t.Name {
			return nil, fmt.Errorf("it has a type %s of group %s, which can't be", diag.Repr(t.Name), diag.Repr(t.Group))
		}
		out = append(out, EntryPoint{t.Group, t.Name, script})
	}
	slices.SortFunc(out, compareEntries)
	return slices.Compact(out), nil
}
