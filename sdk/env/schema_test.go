package env

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/sdk/access"
)

type everyType struct {
	S    string            `json:"s,omitempty" jsonschema:"A text."`
	B    bool              `json:"b,omitempty"`
	I    int64             `json:"i,omitempty"`
	U    *uint8            `json:"u"`
	F    float64           `json:"f,omitempty"`
	N    json.Number       `json:"n,omitempty"`
	T    time.Time         `json:"t,omitzero"`
	L    []int             `json:"l,omitempty"`
	M    map[string]string `json:"m,omitempty"`
	Any  any               `json:"any,omitempty"`
	Raw  json.RawMessage   `json:"raw,omitempty"`
	Mode string            `json:"mode" enum:"a,b" default:"a"`
	Size int               `json:"size" enum:"1,2" default:"2"`
	In   struct {
		X string `json:"x" enum:"p,q"`
	} `json:"in,omitzero"`
}

func TestSchema(t *testing.T) {
	b, err := newBinder(reflect.TypeFor[everyType]())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"s":{"type":"string","description":"A text."},"b":{"type":"boolean"},"i":{"type":"integer"},"u":{"type":"integer","minimum":0,"maximum":255},` +
		`"f":{"type":"number"},"n":{"type":"number"},"t":{"type":"string","format":"date-time"},"l":{"type":"array","items":{"type":"integer"}},"m":{"type":"object","additionalProperties":{"type":"string"}},` +
		`"any":{"description":"Any JSON."},"raw":{"description":"Any JSON."},"mode":{"type":"string","default":"a","enum":["a","b"]},"size":{"type":"integer","default":2,"enum":[1,2]},` +
		`"in":{"type":"object","properties":{"x":{"type":"string","enum":["p","q"]}},"required":["x"],"additionalProperties":false}},"additionalProperties":false}`
	if got := string(b.advertised); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if b, err = newBinder(reflect.TypeFor[struct{}]()); err != nil || string(b.advertised) != `{"type":"object","properties":{},"additionalProperties":false}` {
		t.Errorf("%s, %v", b.advertised, err)
	}
	if b, err = newBinder(reflect.TypeFor[map[string]any]()); err != nil || !strings.HasPrefix(string(b.advertised), `{"type":"object"`) {
		t.Errorf("%s, %v", b.advertised, err)
	}
	if _, err := newBinder(reflect.TypeFor[string]()); err == nil {
		t.Error("a text was taken for an input")
	}
	type broken struct {
		N int `json:"n" default:"many"`
	}
	if _, err := newBinder(reflect.TypeFor[broken]()); err == nil || !strings.Contains(err.Error(), "n: ") {
		t.Errorf("a default of another type: %v", err)
	}
}

func TestBind(t *testing.T) {
	b, err := newBinder(reflect.TypeFor[everyType]())
	if err != nil {
		t.Fatal(err)
	}
	for args, change := range map[string]func(*everyType){
		``:                                  func(*everyType) {},
		`null`:                              func(*everyType) {},
		`{"s":null,"mode":null,"any":null}`: func(*everyType) {},
		`{"s":"5","b":"yes","i":" 7 ","u":"255","f":"1.5","n":"9"}`: func(e *everyType) { u := uint8(255); e.S, e.B, e.I, e.U, e.F, e.N = "5", true, 7, &u, 1.5, "9" },
		`{"b":"OFF","l":"[1,2]","m":"{\"a\":\"b\"}"}`:               func(e *everyType) { e.L, e.M = []int{1, 2}, map[string]string{"a": "b"} },
		`{"i":9007199254740993,"size":"1"}`:                         func(e *everyType) { e.I, e.Size = 9007199254740993, 1 },
		`{"t":"2030-01-02"}`:                                        func(e *everyType) { e.T = time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) },
		`{"t":"2030-01-02 03:04:05"}`:                               func(e *everyType) { e.T = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) },
		`{"raw":{"a":[1.0]},"any":[1],"in":{"x":"p"}}`: func(e *everyType) {
			e.Raw, e.Any, e.In.X = json.RawMessage(`{"a":[1.0]}`), []any{1.0}, "p"
		},
	} {
		want := everyType{Mode: "a", Size: 2}
		change(&want)
		var got everyType
		if err := b.bind(json.RawMessage(args), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		`[]`:                         "want a JSON object",
		`{bad`:                       "want a JSON object",
		`{"S":"x"}`:                  "S: there is no such parameter",
		`{"i":"1.5"}`:                "i: ",
		`{"i":1.5}`:                  "i: ",
		`{"i":{"a":1}}`:              "i: ",
		`{"b":"maybe"}`:              "b: ",
		`{"u":256}`:                  "u: ",
		`{"mode":"c"}`:               "mode: ",
		`{"size":3}`:                 "size: ",
		`{"t":"soon"}`:               "soon",
		`{"in":{"x":"r"}}`:           "in.x: ",
		`{"in":{}}`:                  "in: ",
		`{"l":[1,"a"]}`:              "l",
		`{"zz":1,"aa":2}`:            "aa: there is no such parameter; zz: there is no such parameter",
		`{"i":1e400}`:                "",
		`{"i":99999999999999999999}`: "",
	} {
		var got everyType
		err := b.bind(json.RawMessage(args), &got)
		if f, ok := asFailure(err); !ok || f.Code != "invalid_params" || !strings.Contains(f.Message, want) || strings.Contains(f.Message, "everyType") || strings.Contains(f.Message, "Go ") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// FuzzBind: whatever a caller sends is taken or is the caller's fault.
func FuzzBind(f *testing.F) {
	b, err := newBinder(reflect.TypeFor[everyType]())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"s":"5","b":"yes","i":" 7 ","t":"2030-01-02","l":"[1]"}`))
	f.Add([]byte(`{"in":{"x":"p"},"m":{"a":"b"},"n":1e5}`))
	f.Fuzz(func(t *testing.T, args []byte) {
		var in everyType
		if err := b.bind(args, &in); err != nil {
			if _, ok := asFailure(err); !ok {
				t.Errorf("%s: %v", args, err)
			}
			return
		}
		if in.Mode != "a" && in.Mode != "b" || in.Size < 1 || in.Size > 2 {
			t.Errorf("%s became %+v", args, in)
		}
	})
}

// FuzzEvents: what the SDK writes is looked at without trust in its form.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"))
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"))
	f.Fuzz(func(t *testing.T, events []byte) {
		if lastMessage(events) && !strings.Contains(string(payload(events)), `"`) {
			t.Errorf("%q counts as a response", events)
		}
	})
}

// FuzzAccess: a body is a rule or the caller's fault.
func FuzzAccess(f *testing.F) {
	f.Add([]byte(`{"role":"a","tools":["b"]}`), true)
	f.Add([]byte(`{"role":"*","tools":"*"}`), false)
	f.Fuzz(func(t *testing.T, body []byte, disable bool) {
		rules := &access.Rules{}
		if _, err := changeAccess(rules, body, !disable); err != nil {
			if _, ok := asFailure(err); !ok || len(rules.State()) > 0 {
				t.Errorf("%s: %v, %v", body, err, rules.State())
			}
		}
	})
}
