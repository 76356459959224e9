package diag

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxRepr is how much of an outside text is shown: messages are read by people.
const maxRepr = 4 << 10

// Repr shows outside text between single quotes with control, format and undecodable characters escaped, so that it is one line. Of a very long text it
// shows the beginning.
func Repr(s string) string {
	if len(s) <= maxRepr {
		return "'" + strings.ReplaceAll(Clean(s), "'", `\'`) + "'"
	}
	end := maxRepr
	for end > maxRepr-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return Repr(s[:end]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// Clean escapes control, format and undecodable characters of outside text, so that it is one line and moves no cursor.
func Clean(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			q := strconv.QuoteRune(r)
			if q == "'"+string(r)+"'" { // QuoteRune prints a few format characters as they are
				q = "'\\u" + strconv.FormatInt(int64(r)|0x10000, 16)[1:] + "'"
			}
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Count spells a number of things: "1 task", "2 tasks", "2 sandboxes".
func Count(n int, one string) string {
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "x"):
		return strconv.Itoa(n) + " " + one + "es"
	default:
		return strconv.Itoa(n) + " " + one + "s"
	}
}

// Nearest returns the name closest to got by edit distance, or "" when none is close enough to be meant.
func Nearest(got string, names []string) string {
	best, bestD := "", len(got)/3+2
	size := utf8.RuneCountInString(got)
	for _, n := range names {
		if diff := size - utf8.RuneCountInString(n); max(diff, -diff) >= bestD {
			continue // the distance is no less
		}
		if d := distance(strings.ToLower(got), strings.ToLower(n)); d < bestD {
			best, bestD = n, d
		}
	}
	return best
}

func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	prev := make([]int, len(rb)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range ra {
		cur := make([]int, len(rb)+1)
		cur[0] = i + 1
		for j := range rb {
			cost := 1
			if ra[i] == rb[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j+1]+1, cur[j]+1, prev[j]+cost)
		}
		prev = cur
	}
	return prev[len(rb)]
}

// ShellWord is a text as a shell reads it.
func ShellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'"'"'`) + "'"
}
