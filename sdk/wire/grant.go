package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of grants.
const (
	KindGet  = "http-get"
	KindPut  = "http-put"
	KindPost = "http-post-policy"
)

// HTTPGrant lets its holder read (KindGet) or write (KindPut) one object until it expires.
type HTTPGrant struct {
	Kind      string
	URL       string
	ExpiresAt time.Time
	Headers   map[string]string
}

// PostPolicy lets its holder upload objects as multipart forms. It expires with the grant that holds it.
type PostPolicy struct {
	URL       string
	Fields    map[string]string
	PathField string // name of the form field for the object's path
	FileField string // name of the form field for its content
	Headers   map[string]string
}

// WriteNamespace is leave to upload objects below RootPath. Sizes are bytes.
type WriteNamespace struct {
	RootPath       string
	ExpiresAt      time.Time
	MaxObjects     int64
	MaxObjectBytes int64
	MaxTotalBytes  int64
	Write          PostPolicy
}

// ReadObject is an object that its holder may read. Sizes and digest are those of the stored bytes.
type ReadObject struct {
	MediaType string
	MaxBytes  int64
	SizeBytes *int64
	SHA256    string // 64 lower-case hex digits, or ""
	Read      HTTPGrant
}

// WriteObject is an object that its holder may write.
type WriteObject struct {
	MediaType string
	MaxBytes  int64
	Write     HTTPGrant
}

// Uploaded tells what was written.
type Uploaded struct {
	SizeBytes int64
	SHA256    string // "" when unknown
}

// FieldsError lists what is wrong in a grant by the paths of its fields alone: values of grants are secrets and never shown.
type FieldsError struct {
	What   string
	Fields []string // sorted, e.g. "write.url"; "" stands for the whole
}

func (e *FieldsError) Error() string {
	if len(e.Fields) == 1 && e.Fields[0] == "" {
		return e.What
	}
	return fmt.Sprintf("%s (%s)", e.What, strings.Join(e.Fields, ", "))
}

// CheckPath tells what is wrong with a path of a grant: it must be relative, slash-separated, and in its shortest form.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("the path is empty")
	case strings.ContainsAny(p, "\\\x00"):
		return errors.New("the path holds a backslash or NUL")
	}
	for s := range strings.SplitSeq(p, "/") {
		if s == "" || s == "." || s == ".." {
			return errors.New("the path must be relative, without empty, . or .. segments")
		}
	}
	return nil
}

// closed reads an object that admits only known members, and collects the paths of all that are wrong.
type closed struct {
	values map[string]json.RawMessage
	prefix string
	bad    *[]string
}

func open(raw json.RawMessage, prefix string, bad *[]string, known ...string) closed {
	c := closed{values: map[string]json.RawMessage{}, prefix: prefix, bad: bad}
	ms, err := parseObject(raw)
	if err != nil {
		c.fail("")
		return c
	}
	for _, m := range ms {
		if slices.Contains(known, m.name) {
			c.values[m.name] = m.value
		} else {
			c.fail(m.name)
		}
	}
	return c
}

func (c closed) path(name string) string {
	return strings.Trim(c.prefix+"."+name, ".")
}

func (c closed) fail(name string) { *c.bad = append(*c.bad, c.path(name)) }

// str is a required text.
func (c closed) str(name string, check func(string) bool) string {
	s := ""
	if isNull(c.values[name]) || json.Unmarshal(c.values[name], &s) != nil || check != nil && !check(s) {
		c.fail(name)
	}
	return s
}

func (c closed) optStr(name string, check func(string) bool) string {
	if isNull(c.values[name]) {
		return ""
	}
	return c.str(name, check)
}

// integer is a required whole number, written as one.
func (c closed) integer(name string, least int64) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(c.values[name])), 10, 64)
	if err != nil || n < least {
		c.fail(name)
	}
	return n
}

func (c closed) texts(name string, required bool) map[string]string {
	raw := c.values[name]
	if isNull(raw) {
		if required {
			c.fail(name)
		}
		return nil
	}
	ms, err := parseObject(raw)
	if err != nil {
		c.fail(name)
		return nil
	}
	out := make(map[string]string, len(ms))
	for _, m := range ms {
		var s string
		if isNull(m.value) || json.Unmarshal(m.value, &s) != nil {
			c.fail(name + "." + m.name)
		}
		out[m.name] = s
	}
	return out
}

func (c closed) time(name string) time.Time {
	var at time.Time
	c.str(name, func(s string) bool {
		t, err := time.Parse(time.RFC3339Nano, s)
		_, offset := t.Zone()
		at = t.UTC()
		return err == nil && offset == 0
	})
	return at
}

func (c closed) url() string { return c.str("url", isHTTPS) }

func isHTTPS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.Fragment == ""
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func notEmpty(s string) bool { return s != "" }

func isPath(s string) bool { return CheckPath(s) == nil }

func isMediaType(s string) bool {
	t, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Count(t, "/") == 1 && !strings.Contains(t, "*")
}

func is(want string) func(string) bool { return func(s string) bool { return s == want } }

func result[T any](v T, what string, bad []string) (T, error) {
	if len(bad) == 0 {
		return v, nil
	}
	slices.Sort(bad)
	var none T
	return none, &FieldsError{What: what, Fields: slices.Compact(bad)}
}

func httpGrant(raw json.RawMessage, prefix, kind string, bad *[]string) HTTPGrant {
	c := open(raw, prefix, bad, "kind", "url", "expires_at", "headers")
	return HTTPGrant{Kind: c.str("kind", is(kind)), URL: c.url(), ExpiresAt: c.time("expires_at"), Headers: c.texts("headers", false)}
}

func postPolicy(raw json.RawMessage, prefix string, bad *[]string) PostPolicy {
	c := open(raw, prefix, bad, "kind", "url", "fields", "path_field", "file_field", "headers")
	c.str("kind", is(KindPost))
	return PostPolicy{URL: c.url(), Fields: c.texts("fields", true), PathField: c.str("path_field", notEmpty), FileField: c.str("file_field", notEmpty), Headers: c.texts("headers", false)}
}

// ParseWriteNamespace reads a namespace grant. The error, a *FieldsError, names fields and no value.
func ParseWriteNamespace(raw json.RawMessage) (WriteNamespace, error) {
	var bad []string
	c := open(raw, "", &bad, "root_path", "expires_at", "max_objects", "max_object_bytes", "max_total_bytes", "write")
	g := WriteNamespace{RootPath: c.str("root_path", isPath), ExpiresAt: c.time("expires_at"), MaxObjects: c.integer("max_objects", 1), MaxObjectBytes: c.integer("max_object_bytes", 1), MaxTotalBytes: c.integer("max_total_bytes", 1)}
	if isNull(c.values["write"]) {
		c.fail("write")
	} else {
		g.Write = postPolicy(c.values["write"], "write", &bad)
	}
	return result(g, "write_namespace is not a valid namespace grant", bad)
}

// ParseReadObject reads an object that may be read. The error, a *FieldsError, names fields and no value.
func ParseReadObject(raw json.RawMessage) (ReadObject, error) {
	var bad []string
	c := open(raw, "", &bad, "media_type", "max_bytes", "size_bytes", "sha256", "read")
	o := ReadObject{MediaType: c.str("media_type", isMediaType), MaxBytes: c.integer("max_bytes", 1), SHA256: c.optStr("sha256", isDigest)}
	if !isNull(c.values["size_bytes"]) {
		n := c.integer("size_bytes", 0)
		if o.SizeBytes = &n; n > o.MaxBytes {
			c.fail("size_bytes")
		}
	}
	if isNull(c.values["read"]) {
		c.fail("read")
	} else {
		o.Read = httpGrant(c.values["read"], "read", KindGet, &bad)
	}
	return result(o, "not a valid object to read", bad)
}

// ParseWriteObject reads an object that may be written. The error, a *FieldsError, names fields and no value.
func ParseWriteObject(raw json.RawMessage) (WriteObject, error) {
	var bad []string
	c := open(raw, "", &bad, "media_type", "max_bytes", "write")
	o := WriteObject{MediaType: c.str("media_type", isMediaType), MaxBytes: c.integer("max_bytes", 1)}
	if isNull(c.values["write"]) {
		c.fail("write")
	} else {
		o.Write = httpGrant(c.values["write"], "write", KindPut, &bad)
	}
	return result(o, "not a valid object to write", bad)
}

// ParseUploaded reads what was uploaded. Unlike grants, answers may hold members that a caller doesn't know.
func ParseUploaded(raw json.RawMessage) (Uploaded, error) {
	var bad []string
	ms, err := parseObject(raw)
	if err != nil {
		return Uploaded{}, &FieldsError{What: "not a valid account of an upload", Fields: []string{""}}
	}
	c := closed{values: map[string]json.RawMessage{}, bad: &bad}
	for _, m := range ms {
		c.values[m.name] = m.value
	}
	u := Uploaded{SizeBytes: c.integer("size_bytes", 0), SHA256: c.optStr("sha256", isDigest)}
	return result(u, "not a valid account of an upload", bad)
}

// UnmarshalJSON is ParseWriteNamespace.
func (g *WriteNamespace) UnmarshalJSON(b []byte) (err error) {
	*g, err = ParseWriteNamespace(b)
	return err
}

// UnmarshalJSON is ParseReadObject.
func (o *ReadObject) UnmarshalJSON(b []byte) (err error) { *o, err = ParseReadObject(b); return err }

// UnmarshalJSON is ParseWriteObject.
func (o *WriteObject) UnmarshalJSON(b []byte) (err error) { *o, err = ParseWriteObject(b); return err }

// UnmarshalJSON is ParseUploaded.
func (u *Uploaded) UnmarshalJSON(b []byte) (err error) { *u, err = ParseUploaded(b); return err }

func (w *writer) time(name string, t time.Time) { w.put(name, t.UTC().Format(time.RFC3339Nano)) }

func (w *writer) texts(name string, m map[string]string) {
	if m != nil {
		w.put(name, m)
	}
}

// MarshalJSON writes a grant.
func (g HTTPGrant) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("kind", g.Kind)
	w.put("url", g.URL)
	w.time("expires_at", g.ExpiresAt)
	w.texts("headers", g.Headers)
	return w.bytes()
}

// MarshalJSON writes a policy.
func (p PostPolicy) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("kind", KindPost)
	w.put("url", p.URL)
	fields := p.Fields
	if fields == nil {
		fields = map[string]string{}
	}
	w.put("fields", fields)
	w.put("path_field", p.PathField)
	w.put("file_field", p.FileField)
	w.texts("headers", p.Headers)
	return w.bytes()
}

// MarshalJSON writes a namespace grant.
func (g WriteNamespace) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("root_path", g.RootPath)
	w.time("expires_at", g.ExpiresAt)
	w.put("max_objects", g.MaxObjects)
	w.put("max_object_bytes", g.MaxObjectBytes)
	w.put("max_total_bytes", g.MaxTotalBytes)
	w.put("write", g.Write)
	return w.bytes()
}

// MarshalJSON writes an object that may be read.
func (o ReadObject) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("media_type", o.MediaType)
	w.put("max_bytes", o.MaxBytes)
	if o.SizeBytes != nil {
		w.put("size_bytes", *o.SizeBytes)
	}
	w.some("sha256", o.SHA256)
	w.put("read", o.Read)
	return w.bytes()
}

// MarshalJSON writes an object that may be written.
func (o WriteObject) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("media_type", o.MediaType)
	w.put("max_bytes", o.MaxBytes)
	w.put("write", o.Write)
	return w.bytes()
}

// MarshalJSON writes what was uploaded.
func (u Uploaded) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("size_bytes", u.SizeBytes)
	w.some("sha256", u.SHA256)
	return w.bytes()
}
