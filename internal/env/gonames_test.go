package env

import (
	"slices"
	"testing"
)

func TestGoNames(t *testing.T) {
	const path = `"agentenv.internal/agentenv/sdk/env"`
	for src, want := range map[string][]string{
		"package main\nimport " + path + "\nfunc main() { e := env.New(\"mail\", env.Version(\"2\")); _ = e }":               {"mail"},
		"package main\nimport e " + path + "\nvar a, b, c = e.New(`x y`), e.New(\"z\"), e.New(`x y`)":                        {"x y", "z"},
		"package main\nimport . " + path + "\nvar a = New(\"dot\")":                                                          {"dot"},
		"package main\nimport " + path + "\nconst n = \"mail\"\nvar a = env.New(n)":                                          nil,
		"package main\nimport \"other/env\"\n// /sdk/env\nvar a = env.New(\"mail\")":                                         nil,
		"package main\nimport _ " + path + "\nvar a = env.New(\"mail\")":                                                     nil,
		"package main\nimport " + path + "\n// env.New(\"comment\")\nvar a = \"env.New(`text`)\"\nvar b = env.Old(\"mail\")": nil,
		"package main\nimport " + path + "\nvar a = env.New(\"mail\")\nfunc broken( {":                                       {"mail"},
		"": nil,
	} {
		if got := GoNames(src); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", src, got, want)
		}
	}
}

func FuzzGoNames(f *testing.F) {
	f.Add("package main\nimport \"x/sdk/env\"\nvar a = env.New(\"mail\")")
	f.Add("package main\nimport . \"x/sdk/env\"\nvar a = New(`a`)(\"b\")")
	f.Fuzz(func(t *testing.T, src string) {
		for i, n := range GoNames(src) {
			if n == "" || slices.Index(GoNames(src), n) != i {
				t.Errorf("%q gives %q", src, GoNames(src))
			}
		}
	})
}
