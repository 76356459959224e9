package step

import (
	"strings"
	"testing"
)

// TestPattern holds what Python 3.11's re.search answers.
func TestPattern(t *testing.T) {
	tests := []struct {
		expr, text string
		flags      []string
		want       bool
	}{
		{"hello", "say hello", nil, true},
		{"^hello$", "hello\n", nil, true},
		{"^hello$", "hello\n\n", nil, false},
		{"^b$", "a\nb\nc", nil, false},
		{"(?m)^b$", "a\nb\nc", nil, true},
		{"^b$", "a\nb\nc", []string{"M"}, true},
		{"a$|b", "a\n", nil, true},
		{`a\Z`, "a\n", nil, false},
		{`a\Z`, "a", nil, true},
		{`^\d+$`, "\u0663", nil, true},
		{`(?a)^\d+$`, "\u0663", nil, false},
		{`\w+`, "W\u00f6rld", nil, true},
		{`^\w+$`, "W\u00f6rld\u6771\u4eac_1", nil, true},
		{`^\W$`, "\u00f6", nil, false},
		{`^\s$`, "\u00a0", nil, true},
		{`^\s$`, "\u000b", nil, true},
		{`^[\s]$`, "\u2003", nil, true},
		{`^\S$`, "\u00a0", nil, false},
		{`^[\w.]+$`, "a.\u00f6", nil, true},
		{`^[^\d]$`, "\u0663", nil, false},
		{"a.b", "a\nb", nil, false},
		{"a.b", "a\nb", []string{"S"}, true},
		{"(?s)a.b", "a\nb", nil, true},
		{"HELLO", "hello", []string{"I"}, true},
		{"(?i)HELLO", "hello", nil, true},
		{"(?i:H)ello", "Hello", nil, true},
		{"(?i:H)ello", "HELLO", nil, false},
		{"[]a]+$", "]a]", nil, true},
		{"^[^]a]$", "b", nil, true},
		{"^[^]a]$", "]", nil, false},
		{"[[:a]", "[", nil, true},
		{"[a[]", "[", nil, true},
		{`\u00e9`, "\u00e9", nil, true},
		{`[\u00e0-\u00ff]`, "\u00e9", nil, true},
		{`\U0001F600`, "😀", nil, true},
		{"a{,2}b", "aab", nil, true},
		{"^a{,2}b", "aaab", nil, false},
		{"a{", "a{", nil, true},
		{"x{2,3}", "xx", nil, true},
		{"(?P<n>a)b", "ab", nil, true},
		{"a(?#note)b", "ab", nil, true},
		{`\.\*\[`, "a.*[", nil, true},
		{`[\b]`, "\b", nil, true},
		{`\bcat\b`, "a cat.", nil, true},
		{`\bcat\b`, "concat", nil, false},
		{"(a|b)+$", "abab\n", nil, true},
		{"$", "", nil, true},
		{"^$", "\n", nil, true},
		{"(?m:a$)b|c$", "c\n", nil, true},
		{`é\é`, "\u00e9\u00e9", nil, true},
		{`\-\ \#`, "- #", nil, true},
		{"(?m:a$)", "a\nb", nil, true},
		{"(?:a$)", "a\nb", nil, false},
		{"(?m)(?:a$)", "a\nb", nil, true},
		{"[$]", "$", nil, true},
		{`\$5`, "$5", nil, true},
		{"(?u)ö", "\u00f6", nil, true},
		{`^[^\s]$`, "\u00a0", nil, false},
		{`\0`, "\u0000", nil, true},
		{`\x41`, "A", nil, true},
	}
	for _, tt := range tests {
		re, err := Pattern(tt.expr, tt.flags...)
		if err != nil {
			t.Errorf("%q: %v", tt.expr, err)
			continue
		}
		if got := re.MatchString(tt.text); got != tt.want {
			t.Errorf("%q %v in %q: %t (as %q)", tt.expr, tt.flags, tt.text, got, re)
		}
	}
}

func TestPatternRefusals(t *testing.T) {
	for expr, want := range map[string]string{
		"(":              "missing closing )",
		"a)":             "unexpected )",
		"[a":             "missing closing ]",
		"*":              "missing argument to repetition operator",
		`\`:              "trailing backslash",
		`\u12`:           `\u needs 4 hexadecimal digits`,
		"(?=a)":          "look-around",
		"(?!a)":          "look-around",
		"(?<=a)b":        "look-around",
		"(?<!a)b":        "look-around",
		`(a)\1`:          "back-references",
		"(?P<n>a)(?P=n)": "back-references",
		"(a)?(?(1)b)":    "conditional groups",
		"(?x) a":         "verbose",
		"(?#x":           "comment without an end",
		"(?i":            "group without an end",
		"(?L)a":          "unknown group (?L)",
		"a{2,1}":         "invalid repeat count",
	} {
		re, err := Pattern(expr)
		if err == nil {
			t.Errorf("%q passes as %q", expr, re)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %s", expr, err, want)
		}
	}
	if _, err := Pattern("a", "LOCALE"); err == nil {
		t.Error("flag LOCALE passes")
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"^hello$", `[\w.]+\Z`, "(?im:a$)b", `(?P<n>[^]\d]{,3})`, "(?#c)x|", `\u00e9\U0001F600`, "[[]", "(?:"} {
		f.Add(s, "hello\n")
	}
	f.Fuzz(func(_ *testing.T, expr, text string) {
		if re, err := Pattern(expr, "DOTALL"); err == nil {
			re.MatchString(text)
		}
	})
}
