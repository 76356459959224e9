package deploy

import "testing"

func TestFillIn(t *testing.T) {
	values := map[string]string{"a": "it's", "b": "2"}
	for text, want := range map[string]string{
		"run {a} {b}":         `run 'it'\''s' 2`,
		"awk '{{print}}' {a}": `awk '{print}' 'it'\''s'`,
		"nothing":             "nothing",
		"one {":               "",
		"one } two":           "",
		"one {c}":             "",
		"one {d}":             "",
	} {
		got, err := fillIn(text, []string{"a", "b", "d"}, values)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}

func FuzzFillIn(f *testing.F) {
	f.Add("a {x} {{b}}", "v'")
	f.Fuzz(func(t *testing.T, text, v string) {
		_, _ = fillIn(text, []string{"x"}, map[string]string{"x": v})
	})
}
