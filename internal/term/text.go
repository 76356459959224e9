package term

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Clean escapes what could move a cursor, hide text or break a line: control and format characters, and bytes that are no UTF-8.
func Clean(text string) string {
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == utf8.RuneError, !unsafe(r):
			b.WriteString(text[i : i+n])
		case strconv.IsPrint(r): // nothing is escaped by QuoteRune that it thinks can be printed
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

func unsafe(r rune) bool {
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// width is the columns that clean text takes on a terminal.
func width(text string) int { return widths().StringWidth(text) }

// shorten cuts clean text to n columns, the last of them an ellipsis.
func shorten(text string, n int) string { return widths().Truncate(text, n, "…") }

// widths counts ambiguous characters as narrow whatever the locale, so that output doesn't depend on it.
func widths() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// Size spells a number of bytes for people: "0 B", "1.2 kB", "3.4 GB", in powers of 1000.
func Size(n int64) string {
	if n < 1000 && n > -1000 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB", "PB"} {
		f /= 1000
		if (f < 999.95 && f > -999.95) || unit == "PB" {
			return fmt.Sprintf("%.1f %s", f, unit)
		}
	}
	return "" // not reached: PB takes everything
}
