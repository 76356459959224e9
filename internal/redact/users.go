package redact

import "strings"

// Users is a text without the users and passwords of the addresses in it. ends are the characters at which the part of an address that may hold them ends.
func Users(text, ends string) string {
	var out strings.Builder
	for {
		head, rest, ok := strings.Cut(text, "://")
		out.WriteString(head)
		if !ok {
			return out.String()
		}
		out.WriteString("://")
		end := strings.IndexAny(rest, ends)
		if end < 0 {
			end = len(rest)
		}
		if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
			out.WriteString(Mask)
			rest = rest[at:]
		}
		text = rest
	}
}
