package requirement

import "testing"

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"agentenv-acme>=1.2":                            "agentenv-acme>=1.2",
		"a@git+https://user:s3cret@h/x@v1":              "a@git+https://***@h/x@v1",
		"a @ https://s3cret@h.example/a.whl ; x == '1'": "a @ https://***@h.example/a.whl ; x == '1'",
		"https://u:p@ss@h":                              "https://***@h",
		"https://h/a@b":                                 "https://h/a@b",
		"x://u@h y://v:w@i":                             "x://***@h y://***@i",
		"":                                              "",
	} {
		if got := Shown(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
