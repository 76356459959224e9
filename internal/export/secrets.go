package export

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// masked stands for a credential that was taken out of a text.
const masked = "***"

// shape is how credentials of one kind look. What group 1 matched is no part of the credential and stays; "" for a shape without the group.
type shape struct {
	what string
	have []string // a text without any of these holds none
	re   *regexp.Regexp
	sure func(match string) bool // more that must hold of what was matched, group 1 aside; nil for nothing
	keep string                  // put in place of the credential beside the mask
}

// before is what must stand before a credential whose first letters occur inside words: the escapes of scripts too, in which a line may begin.
const before = `(^|[^A-Za-z0-9_]|\\[nrt])`

// shapes are the credentials that are told by their look.
func shapes() []shape {
	return []shape{
		{
			what: "a private key", have: []string{"PRIVATE KEY"},
			re: regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?` +
				`(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`),
		},
		{
			what: "a URL's credentials", have: []string{"://"}, re: regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s]*@`), keep: "@",
			sure: func(m string) bool {
				user := strings.TrimSuffix(m, "@")
				return strings.Contains(user, ":") || utf8.RuneCountInString(user) >= 16
			},
		},
		{
			what: "an API key", have: []string{"sk-", "sk_"}, re: regexp.MustCompile(before + `sk[-_][A-Za-z0-9_-]{20,}`),
			sure: func(m string) bool { return strings.ContainsAny(m, "0123456789") },
		},
		{what: "a GitHub token", have: []string{"gh", "github_pat_"}, re: regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}`)},
		{what: "an AWS key id", have: []string{"AKIA", "ASIA"}, re: regexp.MustCompile(before + `(?:AKIA|ASIA)[A-Z0-9]{16}\b`)},
		{what: "a Slack token", have: []string{"xox"}, re: regexp.MustCompile(`xox[a-z]-[A-Za-z0-9-]{10,}`)},
		{what: "a Google API key", have: []string{"AIza"}, re: regexp.MustCompile(`AIza[A-Za-z0-9_-]{35,}`)},
		{what: "a Hugging Face token", have: []string{"hf_"}, re: regexp.MustCompile(`hf_[A-Za-z0-9]{30,}`)},
		{what: "a JSON web token", have: []string{"eyJ"}, re: regexp.MustCompile(`eyJ[A-Za-z0-9_-]{7,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`)},
	}
}

// masker takes credentials out of texts.
type masker struct{ shapes []shape }

func newMasker() *masker { return &masker{shapes()} }

// mask is text without the credentials in it, and what they were, each kind once.
func (m *masker) mask(text string) (string, []string) {
	var found []string
	for _, s := range m.shapes {
		out := s.replace(text)
		if out != text {
			found = append(found, s.what)
		}
		text = out
	}
	return text, found
}

// holds tells which credentials are in a text.
func (m *masker) holds(text string) []string {
	_, found := m.mask(text)
	return found
}

func (s shape) replace(text string) string {
	if !slices.ContainsFunc(s.have, func(sub string) bool { return strings.Contains(text, sub) }) {
		return text
	}
	matches := s.re.FindAllStringSubmatchIndex(text, -1)
	if matches == nil {
		return text
	}
	var b strings.Builder
	from := 0
	for _, at := range matches {
		begin, end := at[0], at[1]
		if len(at) > 2 && at[3] >= 0 {
			begin = at[3]
		}
		if s.sure != nil && !s.sure(text[begin:end]) {
			continue
		}
		b.WriteString(text[from:begin] + masked + s.keep)
		from = end
	}
	b.WriteString(text[from:])
	return b.String()
}

// secretName tells whether a variable is likely to hold a secret, whatever its value.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{
		"password", "passwd", "passphrase", "secret", "token", "credential", "api_key", "private_key", "auth", "bearer", "headers",
	} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
