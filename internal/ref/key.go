package ref

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const maxSlug = 48

// Slug is a short ASCII spelling of an id for people to recognise in paths: letters and digits in lower case, everything else a hyphen. It may be empty.
func Slug(s string) string {
	var b strings.Builder
	hyphen := false
	for _, r := range norm.NFKD.String(s) {
		if unicode.IsMark(r) || r == '~' {
			continue
		}
		for _, c := range foldCase(string(r)) {
			if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
				if hyphen && b.Len() > 0 {
					b.WriteByte('-')
				}
				hyphen = false
				b.WriteRune(c)
			} else {
				hyphen = true
			}
		}
	}
	out := b.String()
	if len(out) > maxSlug {
		out = out[:maxSlug]
	}
	return strings.Trim(out, "-")
}

// Key is a spelling of an id that is safe as path segments everywhere: "local/<slug>-<12 hex of its sha256>". Two ids never share one.
func Key(id string) string {
	sum := sha256.Sum256([]byte(id))
	tail := hex.EncodeToString(sum[:6])
	if s := Slug(strings.TrimPrefix(id, LocalPrefix)); s != "" {
		return "local/" + s + "-" + tail
	}
	return "local/" + tail
}
