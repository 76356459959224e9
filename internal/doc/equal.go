package doc

// Equal tells whether two values mean the same: kinds and values alike, members in any order. 1 and 1.0 differ, 0x10 and 16 don't.
func Equal(a, b Node) bool { return equal(a.n, b.n) }

func equal(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.kind != b.kind || len(a.kids) != len(b.kids) {
		return false
	}
	switch a.kind {
	case Int:
		return intText(a.text) == intText(b.text)
	case Float:
		return floatText(a.text) == floatText(b.text)
	case Datetime:
		return isoformat(a.text) == isoformat(b.text)
	case Array:
		for i := range a.kids {
			if !equal(a.kids[i], b.kids[i]) {
				return false
			}
		}
	case Object:
		for i, name := range a.names {
			if kid := b.get(name); kid == nil || !equal(a.kids[i], kid) {
				return false
			}
		}
	case Bool, String:
		return a.text == b.text
	case Absent, Null:
	}
	return true
}
