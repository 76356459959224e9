package model

import (
	"encoding/json"
	"testing"
)

// TestValueIn: agents show tools' results with words around them, or whole.
func TestValueIn(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, `[1]`: `[1]`, `"x"`: `"x"`, `no`: ``, `[Tool 'x' executed.][{"a":1}]`: `[{"a":1}]`,
		`{"result":"[{\"a\":1}]"}` + "\n\n<reminder>{}</reminder>": `[{"a":1}]`, `{"result":"words"}`: `{"result":"words"}`,
		"Wall time: 1\nOutput:\n" + `{"result":"{\"a\":1}"}`: `{"a":1}`, `{"result":{"a":1}}`: `{"result":{"a":1}}`,
	} {
		v, ok := valueIn(text, false)
		got := ""
		if ok {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != want {
			t.Errorf("%s is %s", text, got)
		}
	}
	v, ok := valueIn(`{"result":"1"}`, true)
	if m, isMap := v.(map[string]any); !ok || !isMap || m["result"] != "1" {
		t.Errorf("the whole is %v", v)
	}
}
