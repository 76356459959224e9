package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

// FuzzCard: what reads as a card is written so that it reads the same.
func FuzzCard(f *testing.F) {
	f.Add([]byte(captured))
	f.Add([]byte(`{"name":"a","children_environments":[{"capabilities":null}],"x":[1.0,{"a":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c wire.Card
		if c.UnmarshalJSON(b) != nil {
			return
		}
		for i := range c.Capabilities.Extensions {
			_, _ = c.Capabilities.Extensions[i].Calls()
		}
		once, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again wire.Card
		if err := again.UnmarshalJSON(once); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s\n%s\n%v", once, twice, err)
		}
	})
}

// FuzzRequest: every body is read or refused, and what is read is written so that it reads the same.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"data/add","params":{"parts":[{"kind":"data","data":{}}]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":{"a":[1]},"method":["x"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rerr := wire.DecodeRequest(b)
		if rerr != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, rerr := wire.DecodeRequest(again); rerr != nil {
			t.Errorf("%s: %v", again, rerr)
		}
		if parts, err := wire.ParseAdd(r.Params); err == nil {
			b, err := wire.EncodeParts(parts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ParseParts(b); err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}
	})
}

// FuzzResponse: every answer is read or refused.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"x","data":{"code":"add_failed"}}}`))
	f.Add([]byte(`{"ok":false,"error":{"code":"x","message":"y","retryable":true,"applied":"no"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := wire.DecodeResponse(b)
		if err == nil && r.Error != nil {
			_, _ = r.Error.DataCode(), r.Error.Detail()
		}
		_ = wire.ReadFailure(b)
	})
}

// FuzzGrants: a grant that is taken survives being written.
func FuzzGrants(f *testing.F) {
	f.Add([]byte(namespace))
	f.Add([]byte(`{"media_type":"a/b","max_bytes":1,"read":{"kind":"http-get","url":"https://h","expires_at":"2030-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := wire.ParseWriteNamespace(b); err == nil {
			survives(t, g, wire.ParseWriteNamespace)
		}
		if o, err := wire.ParseReadObject(b); err == nil {
			survives(t, o, wire.ParseReadObject)
		}
		if o, err := wire.ParseWriteObject(b); err == nil {
			survives(t, o, wire.ParseWriteObject)
		}
		if u, err := wire.ParseUploaded(b); err == nil {
			survives(t, u, wire.ParseUploaded)
		}
	})
}

func survives[T any](t *testing.T, v T, parse func(json.RawMessage) (T, error)) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse(b)
	if err != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("%+v became %s, then %+v, %v", v, b, again, err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"usage":{"input_tokens":5},"error_type":7}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m wire.Message
		if json.Unmarshal(b, &m) != nil {
			return
		}
		_ = m.Check()
		_ = wire.ReadReply(&m)
	})
}

func FuzzAgentCard(f *testing.F) {
	f.Add([]byte(`{"name":"a","capabilities":{"extensions":[{"uri":"u","params":{"methods":{"m":{"request":{"oneOf":[{"required":["a"]}]}}}}}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := wire.ParseAgentCard(b)
		if err != nil {
			return
		}
		_ = c.Missing()
		if op, ok := c.AgentOperation("u", "m"); ok && op.Request != nil {
			_ = op.Request.Takes("a")
		}
	})
}
