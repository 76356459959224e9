package doc

import (
	"bytes"
	"fmt"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

// steps is a task of n steps.
func steps(tb testing.TB, n int) []byte {
	three := bytes.TrimSpace(seed(tb, "task.json"))
	one := three[1 : len(three)-1]
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range n / 3 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(one)
	}
	b.WriteByte(']')
	return b.Bytes()
}

func benchmarkParse(b *testing.B, name string, src []byte) {
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, l := Parse(name, src); l.HasErrors() {
			b.Fatal(lines(l))
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.Run("json 100 steps", func(b *testing.B) { benchmarkParse(b, "a.json", steps(b, 102)) })
	b.Run("json 1.3 MB", func(b *testing.B) { benchmarkParse(b, "a.json", steps(b, 7200)) })
	b.Run("json 1.3 MB, 360k tokens", func(b *testing.B) {
		benchmarkParse(b, "a.json", append(append([]byte("["), bytes.Repeat([]byte(`{"a":1},`), 1_300_000/8)...), "1]"...))
	})
	var t bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&t, "[t%d]\nname = \"x%d\"\nlist = [1, 2, 3]\n", i, i)
	}
	b.Run("toml 200 kB", func(b *testing.B) { benchmarkParse(b, "a.toml", t.Bytes()) })
	var y bytes.Buffer
	for i := range 2500 {
		fmt.Fprintf(&y, "t%d:\n  name: x%d\n  list: [1, 2, 3]\n", i, i)
	}
	b.Run("yaml 100 kB", func(b *testing.B) { benchmarkParse(b, "a.yaml", y.Bytes()) })
}

func BenchmarkCanonical(b *testing.B) {
	tree, _ := ParseJSON("a.json", steps(b, 102))
	b.ReportAllocs()
	for b.Loop() {
		Canonical(tree.Root())
	}
}

func BenchmarkCheckAndFill(b *testing.B) {
	s := Schema{Fields: []Field{{Name: "id", Type: Type{Kinds: []Kind{String}}, Required: true}, {Name: "type", Type: Type{Kinds: []Kind{String}}}}, Open: true}
	s.Fields = append(s.Fields, schema.Fields[2:]...)
	tree, _ := ParseJSON("a.json", steps(b, 102))
	b.ReportAllocs()
	for b.Loop() {
		for _, n := range tree.Root().Items() {
			var l diag.List
			s.Check(n, "step", &l)
			s.Fill(n)
		}
	}
}
