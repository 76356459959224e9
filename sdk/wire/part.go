package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// Kinds of parts.
const (
	KindText = "text"
	KindData = "data"
	KindFile = "file"
)

// Part is a piece of data that goes into or comes out of an environment.
type Part struct {
	Kind     string          // KindText, KindData or KindFile
	Text     string          // of KindText
	Data     json.RawMessage // of KindData: an object
	File     *File           // of KindFile
	Metadata json.RawMessage // an object, or nil
}

// File is a file's bytes, or where to find them.
type File struct {
	Bytes    string // base64, as sent; "" with URI set. Content decodes it
	URI      string // file://, https:// or http://, or, in an answer of data/get, a path relative to the server
	MimeType string
	Name     string
	inline   bool // bytes were there, though maybe empty
}

// TextPart is a part that holds text.
func TextPart(text string) Part { return Part{Kind: KindText, Text: text} }

// DataPart is a part that holds v, which must encode as a JSON object.
func DataPart(v any) (Part, error) {
	b, err := encode(v)
	if err != nil {
		return Part{}, fmt.Errorf("encode a data part: %w", err)
	}
	if b[0] != '{' {
		return Part{}, errors.New("encode a data part: want a JSON object")
	}
	return Part{Kind: KindData, Data: b}, nil
}

// FilePart is a part that carries content. mime and name may be "".
func FilePart(content []byte, mime, name string) Part {
	return Part{Kind: KindFile, File: &File{Bytes: base64.StdEncoding.EncodeToString(content), MimeType: mime, Name: name, inline: true}}
}

// URIPart is a part that names where the content is.
func URIPart(uri, mime, name string) Part {
	return Part{Kind: KindFile, File: &File{URI: uri, MimeType: mime, Name: name}}
}

// Inline tells whether the file carries its bytes.
func (f *File) Inline() bool { return f.inline || f.Bytes != "" }

// Content is the bytes of an inline file.
func (f *File) Content() ([]byte, error) {
	if !f.Inline() {
		return nil, errors.New("the file part carries no bytes")
	}
	b, err := base64.StdEncoding.DecodeString(f.Bytes)
	if err != nil {
		return nil, errors.New("the bytes of the file part aren't base64")
	}
	return b, nil
}

// UploadPart is what data/get answers after it uploaded one object under a namespace grant. path is relative to the grant's root.
func UploadPart(path, mime, name string) (Part, error) {
	if err := CheckPath(path); err != nil {
		return Part{}, err
	}
	p := URIPart(path, mime, name)
	var marker, meta writer
	marker.put("path", path)
	b, err := marker.bytes()
	if err != nil {
		return Part{}, err
	}
	meta.put(URNDataObjects, json.RawMessage(b))
	p.Metadata, err = meta.bytes()
	return p, err
}

// Uploaded is the path, relative to the grant's root, of a part that stands for an uploaded object; "" of any other part.
func (p *Part) Uploaded() (string, error) {
	if p.Kind != KindFile || p.Metadata == nil {
		return "", nil
	}
	ms, err := parseObject(p.Metadata)
	if err != nil {
		return "", at("metadata", err)
	}
	for _, m := range ms {
		if m.name != URNDataObjects {
			continue
		}
		fields, err := parseObject(m.value)
		if err != nil {
			return "", at("metadata", err)
		}
		path := ""
		for _, f := range fields {
			if f.name == "path" {
				if err := readInto(f.value, &path); err != nil {
					return "", at("metadata.path", err)
				}
			}
		}
		return path, CheckPath(path)
	}
	return "", nil
}

// UnmarshalJSON reads a part. Unknown members are ignored; with both bytes and uri, bytes win.
func (p *Part) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*p = Part{}
	var text, file bool
	for _, m := range ms {
		switch m.name {
		case "kind":
			err = readInto(m.value, &p.Kind)
		case "text":
			text = !isNull(m.value)
			err = readInto(m.value, &p.Text)
		case "data":
			if !isNull(m.value) {
				p.Data = m.value
			}
		case "file":
			if file = !isNull(m.value); file {
				p.File = &File{}
				err = p.File.UnmarshalJSON(m.value)
			}
		case "metadata":
			if !isNull(m.value) {
				if p.Metadata = m.value; m.value[0] != '{' {
					err = errors.New("want a JSON object")
				}
			}
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	return p.keep(text, file)
}

// keep drops what is of another kind and checks what is of this one.
func (p *Part) keep(text, file bool) error {
	switch p.Kind {
	case KindText:
		if !text {
			return errors.New("text: missing")
		}
		p.Data, p.File = nil, nil
	case KindData:
		switch {
		case p.Data == nil:
			return errors.New("data: missing")
		case p.Data[0] != '{':
			return errors.New("data: want a JSON object")
		}
		p.Text, p.File = "", nil
	case KindFile:
		if !file {
			return errors.New("file: missing")
		}
		p.Text, p.Data = "", nil
	case "":
		return errors.New("kind: missing")
	default:
		return fmt.Errorf("kind: want text, data or file, not %q", p.Kind)
	}
	return nil
}

// MarshalJSON writes a part without what is absent.
func (p Part) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("kind", p.Kind)
	switch p.Kind {
	case KindText:
		w.put("text", p.Text)
	case KindData:
		w.put("data", p.Data)
	case KindFile:
		w.put("file", p.File)
	default:
		return nil, fmt.Errorf("a part of kind %q", p.Kind)
	}
	w.raw("metadata", p.Metadata)
	return w.bytes()
}

// UnmarshalJSON reads a file: bytes or uri must be there.
func (f *File) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*f = File{}
	uri := false
	for _, m := range ms {
		switch m.name {
		case "bytes":
			f.inline = !isNull(m.value)
			err = readInto(m.value, &f.Bytes)
		case "uri":
			uri = !isNull(m.value)
			err = readInto(m.value, &f.URI)
		case "mimeType":
			err = readInto(m.value, &f.MimeType)
		case "name":
			err = readInto(m.value, &f.Name)
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	switch {
	case f.inline:
		f.URI = ""
	case !uri:
		return errors.New("want bytes or uri")
	case f.URI == "":
		return errors.New("uri: empty")
	}
	return nil
}

// MarshalJSON writes a file without what is absent.
func (f File) MarshalJSON() ([]byte, error) {
	var w writer
	if f.Inline() {
		w.put("bytes", f.Bytes)
	} else {
		w.put("uri", f.URI)
	}
	w.some("mimeType", f.MimeType)
	w.some("name", f.Name)
	return w.bytes()
}

// ParseAdd reads the params of data/add: an object with at least one part; unknown members are ignored.
func ParseAdd(raw json.RawMessage) ([]Part, error) {
	parts, err := parseParts(raw)
	if err == nil && len(parts) == 0 {
		err = errors.New("parts: want at least 1 item")
	}
	return parts, err
}

// ParseParts reads a result of data/get: an object with parts, maybe none.
func ParseParts(raw json.RawMessage) ([]Part, error) { return parseParts(raw) }

func parseParts(raw json.RawMessage) ([]Part, error) {
	if len(raw) == 0 {
		return nil, errors.New("parts: missing")
	}
	ms, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if m.name == "parts" && !isNull(m.value) {
			parts, err := readList[Part](m.value)
			return parts, at("parts", err)
		}
	}
	return nil, errors.New("parts: missing")
}

// EncodeParts is {"parts":[…]}: params of data/add, a result of data/get.
func EncodeParts(parts []Part) (json.RawMessage, error) {
	if parts == nil {
		parts = []Part{}
	}
	var w writer
	w.put("parts", parts)
	return w.bytes()
}
