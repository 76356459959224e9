package requirement

import "strings"

// Shown is a requirement as messages may show it: in addresses of it, users and passwords are left out.
func Shown(text string) string {
	var out strings.Builder
	for {
		head, rest, ok := strings.Cut(text, "://")
		out.WriteString(head)
		if !ok {
			return out.String()
		}
		out.WriteString("://")
		end := strings.IndexAny(rest, "/?# \t\n;'\"")
		if end < 0 {
			end = len(rest)
		}
		if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
			out.WriteString("***")
			rest = rest[at:]
		}
		text = rest
	}
}
