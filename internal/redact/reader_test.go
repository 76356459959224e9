package redact

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	var r Redactor
	r.Add("abcabc")
	r.Add("s3cr3t-value")
	for _, text := range []string{"", "plain", "x s3cr3t-value y", "abcabc", "abcabcabcabc", "ends in s3cr3t-va", strings.Repeat("ab", 50000) + "s3cr3t-value" + strings.Repeat("c", 40000)} {
		for name, in := range map[string]io.Reader{"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text))} {
			got, err := io.ReadAll(r.Reader(in))
			if err != nil || string(got) != r.String(text) {
				t.Errorf("%.40q %s: %.60q %v", text, name, got, err)
			}
		}
	}
	var none Redactor
	in := strings.NewReader("x")
	if none.Reader(in) != io.Reader(in) {
		t.Error("a redactor that knows nothing stands in the way")
	}
}
