package appserve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// partsFile lists what a hook is to load, or what it exports.
const partsFile = "parts.json"

// maxParts is the largest parts.json in bytes that a hook may write.
const maxParts = 64 << 20

// part is an element of parts.json. File is where the content of a file stands.
type part struct {
	Kind     string          `json:"kind"`
	Path     string          `json:"path,omitempty"` // of a file: where it goes, relative to the home; "" unless told
	Name     string          `json:"name,omitempty"`
	MimeType string          `json:"mime_type,omitempty"`
	File     string          `json:"file,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Text     *string         `json:"text,omitempty"`
}

// writeParts fetches all parts into a folder and lists them.
func writeParts(ctx context.Context, dir string, parts []*app.Part) error {
	list := make([]part, len(parts))
	for i, p := range parts {
		list[i] = part{Kind: p.Kind, Path: p.Path}
		switch p.Kind {
		case wire.KindData:
			list[i].Data = p.Data
		case wire.KindText:
			list[i].Text = &p.Text
		default:
			b, err := p.Bytes(ctx)
			if err != nil {
				return fmt.Errorf("parts[%d]: %w", i, err)
			}
			list[i].Name, list[i].MimeType, list[i].File = p.Part.File.Name, p.Part.File.MimeType, filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(list[i].File, b, 0o600); err != nil { //nolint:forbidigo // a copy for the hook, no state
				return fmt.Errorf("parts[%d]: %w", i, err)
			}
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, partsFile), 0o600, b)
}

// readParts reads what a hook lists in its folder.
func readParts(ctx context.Context, dir string, to *env.Namespace) ([]wire.Part, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read
	b, err := content(root, partsFile, maxParts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", partsFile, err)
	}
	list, err := decodeParts(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", partsFile, err)
	}
	out := home.NewAnswer(to)
	for i := range list {
		if err := list[i].export(ctx, root, dir, out); err != nil {
			return nil, fmt.Errorf("%s: [%d]: %w", partsFile, i, err)
		}
	}
	return out.Parts(), nil
}

// decodeParts reads a parts.json, strictly.
func decodeParts(b []byte) ([]part, error) {
	var list []part
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, errors.New("want a JSON list of objects, such as {\"kind\": \"text\", \"text\": \"…\"}")
	}
	for i := range list {
		if err := list[i].check(); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return list, nil
}

func (p *part) check() error {
	switch p.Kind {
	case wire.KindText:
		if p.Text == nil {
			return errors.New("text: missing")
		}
	case wire.KindData:
		if len(p.Data) == 0 || p.Data[0] != '{' {
			return errors.New("data: want a JSON object")
		}
	case wire.KindFile:
		if p.File == "" {
			return errors.New("file: missing")
		}
		if p.Path != "" {
			if err := wire.CheckPath(p.Path); err != nil {
				return fmt.Errorf("path: %w", err)
			}
		}
	default:
		return fmt.Errorf("kind: want text, data or file, not %q", p.Kind)
	}
	return nil
}

// export adds the part to an answer. Its file must stand in the hook's folder.
func (p *part) export(ctx context.Context, root *os.Root, dir string, out *home.Answer) error {
	switch p.Kind {
	case wire.KindText:
		out.Add(wire.TextPart(*p.Text))
		return nil
	case wire.KindData:
		out.Add(wire.Part{Kind: wire.KindData, Data: p.Data})
		return nil
	}
	name := p.File
	if filepath.IsAbs(name) {
		var err error
		if name, err = filepath.Rel(dir, name); err != nil {
			return errors.New("file: it lies outside " + outVariable)
		}
	}
	if !filepath.IsLocal(name) {
		return errors.New("file: it lies outside " + outVariable)
	}
	f, err := openFile(root, name)
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	media := cmp.Or(p.MimeType, "application/octet-stream")
	if p.Path != "" {
		return out.File(ctx, p.Path, p.Name, media, f)
	}
	return out.Loose(ctx, p.Name, media, f)
}

func openFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe doesn't block
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is no regular file"), f.Close())
	}
	return f, nil
}

func content(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return b, err
}
