package wire_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// captured is a card as the peer's server writes it, with members that this package doesn't know.
const captured = `{"name":"notes","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"/mcp","transport":"mcp","x":1}],` +
	`"capabilities":{"extensions":[{"uri":"urn:example:fault/v1","description":"…","params":{"features":["x"],"methods":{` +
	`"read":{"method":"GET","endpoint":"/agentenv/ext/example/fault/read","request":{"type":"object"}},` +
	`"set":{"endpoint":"/agentenv/ext/example/fault/set"}}},"required":null},` +
	`{"uri":"urn:agentenv:clock/v1","description":null,"params":{"endpoint":"/agentenv/ext/sync_time"},"required":true},` +
	`{"uri":"urn:agentenv:data-objects/v1","description":"…","params":null,"required":null}],` +
	`"tools":[{"name":"notes_add","description":"Add <a> note.","inputSchema":{"type":"object"},"icons":[]}],"operations":["data/reset","data/add","data/get"],"z":12345678901234567890},` +
	`"children_environments":null,"vendor":{"a":1.0}}`

func TestCardRoundTrip(t *testing.T) {
	c, err := wire.ParseCard([]byte(captured))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := unescape(string(b)); got != captured {
		t.Errorf("written again:\n%s\nwant\n%s", got, captured)
	}
	if c.MCP() != "/mcp" || !c.Serves(wire.Add) || c.Extension("urn:none") != nil {
		t.Errorf("MCP %q, serves add %v", c.MCP(), c.Serves(wire.Add))
	}
	calls, err := c.Extension("urn:example:fault/v1").Calls()
	if err != nil || len(calls) != 2 || calls[0].Verb != "GET" || calls[1].Verb != "POST" || calls[1].Path != "/agentenv/ext/example/fault/set" {
		t.Errorf("calls %+v, %v", calls, err)
	}
	if calls, err = c.Extension(wire.URNClock).Calls(); err != nil || len(calls) != 1 || calls[0].Path != "/agentenv/ext/sync_time" || calls[0].Name != "" {
		t.Errorf("calls %+v, %v", calls, err)
	}
	if calls, err = c.Extension(wire.URNDataObjects).Calls(); err != nil || calls != nil {
		t.Errorf("calls of a declaration: %+v, %v", calls, err)
	}
}

// unescape undoes what json.Marshal does to the output of a Marshaler.
func unescape(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(s)
}

func TestParamsRoundTrip(t *testing.T) {
	const in = `{"endpoint":"/a","features":["x"],"methods":{"b":{"method":"PUT","request":{"type":"object"},"note":1},"a":{"endpoint":"/c"}}}`
	p, err := wire.ParseParams(json.RawMessage(in))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil || string(b) != in {
		t.Errorf("%s, %v", b, err)
	}
}

// TestCardNulls: peers write null, older ones leave out.
func TestCardNulls(t *testing.T) {
	for _, text := range []string{
		`{"name":"a","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC"}`,
		`{"name":"a","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","capabilities":null,"additionalInterfaces":null,"children_environments":null}`,
		`{"name":"a","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","capabilities":{"extensions":null,"tools":null,"operations":null}}`,
	} {
		c, err := wire.ParseCard([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if c.Capabilities.Operations != nil || !c.Serves(wire.Reset) || c.Children != nil || c.MCP() != wire.MCPPath {
			t.Errorf("%s: read as %+v", text, c)
		}
	}
	c, err := wire.ParseCard([]byte(`{"name":"a","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","capabilities":{"operations":[]},"children_environments":[]}`))
	if err != nil || c.Serves(wire.Get) || c.Children == nil {
		t.Errorf("empty lists: %+v, %v", c, err)
	}
}

func TestBadCards(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                      "want a JSON object",
		`{"name":"a"}`:            "it lacks protocolVersion, url, preferredTransport",
		`{"name":5}`:              "name: want a string, not number",
		`{"name":"a","name":"b"}`: `"name" is there twice`,
		`{"Name":"a","protocolVersion":"1.0","url":"/","preferredTransport":"J"}`: "it lacks name",
		`{"capabilities":{"tools":[{}]}}`:                                         "capabilities: tools: [0]: a tool without name",
		`{"capabilities":{"tools":{}}}`:                                           "capabilities: tools: want a list, not object",
		`{"capabilities":{"extensions":[{"uri":"u","params":[]}]}}`:               "capabilities: extensions: [0]: params: want a JSON object",
		`{"children_environments":[null]}`:                                        "children_environments: [0]: null is no element",
		`{} {}`:                                                                   "something follows",
		`{"name":`:                                                                "ends too early",
		strings.Repeat(`{"children_environments":[`, 9) + strings.Repeat(`]}`, 9): "more than 8 deep",
	} {
		if _, err := wire.ParseCard([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestDecodeRequest(t *testing.T) {
	for _, c := range []struct {
		body, id, method string
		code             int
	}{
		{`{"jsonrpc":"2.0","id":"x","method":"data/get"}`, `"x"`, "data/get", 0},
		{`{"jsonrpc":"2.0","id":12345678901234567890,"method":"data/get","params":null}`, "12345678901234567890", "data/get", 0},
		{`{"jsonrpc":"2.0","method":"data/get"}`, "", "data/get", 0},
		{`{bad`, "", "", wire.CodeParse},
		{``, "", "", wire.CodeRequest},
		{`[{"jsonrpc":"2.0"}]`, "", "", wire.CodeRequest},
		{`{"jsonrpc":"1.0","id":4,"method":"data/get"}`, "4", "", wire.CodeRequest},
		{`{"jsonrpc":"2.0","id":5}`, "5", "", wire.CodeRequest},
		{`{"jsonrpc":"2.0","id":6,"method":["data/get"]}`, "6", "", wire.CodeRequest},
		{`{"JSONRPC":"2.0","id":7,"method":"data/get"}`, "7", "", wire.CodeRequest},
	} {
		r, rerr := wire.DecodeRequest([]byte(c.body))
		code := 0
		if rerr != nil {
			code = rerr.Code
		}
		if code != c.code || string(r.ID) != c.id || r.Method != c.method {
			t.Errorf("%s: %+v %v", c.body, r, rerr)
		}
	}
}

func TestResponses(t *testing.T) {
	for _, c := range []struct {
		r    wire.Response
		want string
	}{
		{wire.Response{ID: json.RawMessage("1")}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{wire.Response{Error: wire.MethodNotFound("x")}, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"method not found: x"}}`},
		{wire.Response{ID: json.RawMessage(`"a"`), Error: wire.HandlerFailed(wire.AddFailed, "bad seed")}, `{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"bad seed","data":{"code":"add_failed"}}}`},
	} {
		b, err := json.Marshal(c.r)
		if err != nil || string(b) != c.want {
			t.Errorf("%s, %v; want %s", b, err, c.want)
		}
		r, err := wire.DecodeResponse(b)
		if err != nil || (c.r.Error == nil) != (r.Error == nil) {
			t.Errorf("%s: %+v, %v", b, r, err)
		} else if r.Error != nil && r.Error.DataCode() != c.r.Error.DataCode() {
			t.Errorf("%s: code %q", b, r.Error.DataCode())
		}
	}
	for _, bad := range []string{`{"jsonrpc":"2.0","id":1}`, `{"id":1,"result":{}}`, `{"jsonrpc":"2.0","result":{},"error":{"code":1,"message":""}}`, `{"jsonrpc":"2.0","error":{"message":"x"}}`, `[]`} {
		if r, err := wire.DecodeResponse([]byte(bad)); err == nil {
			t.Errorf("%s: read as %+v", bad, r)
		}
	}
}

func TestParts(t *testing.T) {
	const in = `{"more":1,"parts":[{"kind":"text","text":"hi"},{"kind":"data","data":{"a":[1]},"metadata":{"m":1}},` +
		`{"kind":"file","file":{"bytes":"aGk=","uri":"file:///x","mimeType":"text/plain","name":"a.txt","x":1}},{"kind":"file","file":{"uri":"https://h/x","mimeType":null}}]}`
	parts, err := wire.ParseAdd(json.RawMessage(in))
	if err != nil {
		t.Fatal(err)
	}
	b, err := wire.EncodeParts(parts)
	const want = `{"parts":[{"kind":"text","text":"hi"},{"kind":"data","data":{"a":[1]},"metadata":{"m":1}},` +
		`{"kind":"file","file":{"bytes":"aGk=","mimeType":"text/plain","name":"a.txt"}},{"kind":"file","file":{"uri":"https://h/x"}}]}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
	if c, err := parts[2].File.Content(); err != nil || string(c) != "hi" {
		t.Errorf("content %q, %v", c, err)
	}
	for bad, want := range map[string]string{
		``:                                      "parts: missing",
		`[]`:                                    "want a JSON object",
		`{"parts":[]}`:                          "at least 1 item",
		`{"parts":null}`:                        "parts: missing",
		`{"parts":[{"kind":"video"}]}`:          `parts: [0]: kind: want text, data or file, not "video"`,
		`{"parts":[{"kind":"data","data":[]}]}`: "data: want a JSON object",
		`{"parts":[{"kind":"text"}]}`:           "text: missing",
		`{"parts":[{"kind":"file","file":{}}]}`: "file: want bytes or uri",
		`{"parts":[{"text":"a"}]}`:              "kind: missing",
	} {
		if _, err := wire.ParseAdd(json.RawMessage(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestEmptyFile(t *testing.T) {
	b, err := json.Marshal(wire.FilePart(nil, "", "empty"))
	if err != nil || string(b) != `{"kind":"file","file":{"bytes":"","name":"empty"}}` {
		t.Fatalf("%s, %v", b, err)
	}
	var p wire.Part
	if err := json.Unmarshal(b, &p); err != nil || !p.File.Inline() {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestUploadPart(t *testing.T) {
	p, err := wire.UploadPart("notes.json", "application/json", "notes.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	const want = `{"kind":"file","file":{"uri":"notes.json","mimeType":"application/json","name":"notes.json"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"notes.json"}}}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	if path, err := p.Uploaded(); err != nil || path != "notes.json" {
		t.Errorf("%q, %v", path, err)
	}
	p.Metadata = json.RawMessage(`{"urn:agentenv:data-objects/v1":{"path":"../x"}}`)
	if _, err := p.Uploaded(); err == nil {
		t.Error("a path that leads out of the grant was taken")
	}
}

const namespace = `{"root_path":"a/b","expires_at":"2030-01-02T03:04:05Z","max_objects":1,"max_object_bytes":10,"max_total_bytes":10,` +
	`"write":{"kind":"http-post-policy","url":"https://store/x","fields":{"policy":"s3cret"},"path_field":"key","file_field":"file"}}`

func TestWriteNamespace(t *testing.T) {
	g, err := wire.ParseWriteNamespace(json.RawMessage(namespace))
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC); !g.ExpiresAt.Equal(want) || g.Write.Fields["policy"] != "s3cret" {
		t.Errorf("read as %+v", g)
	}
	if b, err := json.Marshal(g); err != nil || string(b) != namespace {
		t.Errorf("%s, %v", b, err)
	}
	for change, field := range map[[2]string]string{
		{`"a/b"`, `"/a"`}:                                 "root_path",
		{`"a/b"`, `"a/../b"`}:                             "root_path",
		{`"a/b"`, `"a\\b"`}:                               "root_path",
		{`05Z`, `05+02:00`}:                               "expires_at",
		{`"max_objects":1`, `"max_objects":1.0`}:          "max_objects",
		{`"max_objects":1`, `"max_objects":"1"`}:          "max_objects",
		{`"max_objects":1`, `"max_objects":0`}:            "max_objects",
		{`"max_objects":1`, `"max_objects":1,"more":1`}:   "more",
		{`"max_objects":1`, `"Max_Objects":1`}:            "Max_Objects, max_objects",
		{`https://store`, `http://store`}:                 "write.url",
		{`https://store/x`, `/x`}:                         "write.url",
		{`"http-post-policy"`, `"http-put"`}:              "write.kind",
		{`{"policy":"s3cret"}`, `{"policy":5}`}:           "write.fields.policy",
		{`"path_field":"key"`, `"path_field":""`}:         "write.path_field",
		{`"file_field":"file"`, `"file_field":"f","q":1`}: "write.q",
	} {
		text := strings.Replace(namespace, change[0], change[1], 1)
		if text == namespace {
			t.Fatalf("%v changes nothing", change)
		}
		_, err := wire.ParseWriteNamespace(json.RawMessage(text))
		fe, ok := errors.AsType[*wire.FieldsError](err)
		if !ok || strings.Join(fe.Fields, ", ") != field {
			t.Errorf("%v: %v, want field %s", change, err, field)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: the error tells a secret: %v", change, err)
		}
	}
	for _, text := range []string{``, `null`, `"s3cret"`, `{}`} {
		if _, err := wire.ParseWriteNamespace(json.RawMessage(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestObjects(t *testing.T) {
	const read = `{"media_type":"text/plain","max_bytes":10,"size_bytes":4,"sha256":"` + "ABC" + `","read":{"kind":"http-get","url":"https://h/x","expires_at":"2030-01-02T03:04:05+00:00","headers":{"a":"b"}}}`
	sum := strings.Repeat("ab", 32)
	if _, err := wire.ParseReadObject(json.RawMessage(read)); err == nil || !strings.HasSuffix(err.Error(), "(sha256)") {
		t.Errorf("%v", err)
	}
	good := strings.Replace(read, "ABC", sum, 1)
	o, err := wire.ParseReadObject(json.RawMessage(good))
	if err != nil || *o.SizeBytes != 4 || o.SHA256 != sum || o.Read.Headers["a"] != "b" {
		t.Fatalf("%+v, %v", o, err)
	}
	if _, err := wire.ParseReadObject(json.RawMessage(strings.Replace(good, `"size_bytes":4`, `"size_bytes":11`, 1))); err == nil {
		t.Error("a size above the limit was taken")
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var again wire.ReadObject
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(again, o) {
		t.Errorf("%+v, %v", again, err)
	}
	const write = `{"media_type":"application/*","max_bytes":1,"write":{"kind":"http-put","url":"https://h/x","expires_at":"2030-01-02T03:04:05Z"}}`
	if _, err := wire.ParseWriteObject(json.RawMessage(write)); err == nil || !strings.HasSuffix(err.Error(), "(media_type)") {
		t.Errorf("%v", err)
	}
	w, err := wire.ParseWriteObject(json.RawMessage(strings.Replace(write, "*", "json", 1)))
	if err != nil || w.Write.Kind != wire.KindPut {
		t.Errorf("%+v, %v", w, err)
	}
	u, err := wire.ParseUploaded(json.RawMessage(`{"size_bytes":0,"more":1}`))
	if err != nil || u.SizeBytes != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestFailure(t *testing.T) {
	f := wire.Failure{Code: "conflict", Message: "already fixed", Retryable: true, Applied: wire.AppliedNo, Hint: "wait"}
	const want = `{"ok":false,"error":{"code":"conflict","message":"already fixed","retryable":true,"applied":"no","hint":"wait"}}`
	if got := string(f.Body()); got != want {
		t.Errorf("%s", got)
	}
	if got := wire.ReadFailure([]byte(want)); got != f || !got.MayRetry() {
		t.Errorf("%+v", got)
	}
	for _, body := range []string{``, `Internal Server Error`, `{"detail":"x"}`, `{"error":null}`, `{"error":{"retryable":"yes","applied":"perhaps"}}`} {
		if got := wire.ReadFailure([]byte(body)); got != (wire.Failure{Applied: wire.AppliedUnknown}) {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := wire.ReadFailure([]byte(`{"error":"text"}`)); got.Message != "text" || got.MayRetry() {
		t.Errorf("%+v", got)
	}
}

func TestSlug(t *testing.T) {
	for urn, want := range map[string]string{"urn:example:fault/v1": "example/fault", "urn:agentenv:clock/v12": "clock", "urn:a:b:c": "a/b/c", "x/v": "x/v", "urn:agentenv:x/vy": "x/vy"} {
		if got := wire.Slug(urn); got != want {
			t.Errorf("%s: %s, want %s", urn, got, want)
		}
	}
	if !slices.Equal(wire.Operations(), []string{wire.Reset, wire.Add, wire.Get}) {
		t.Error("the order of operations")
	}
}
