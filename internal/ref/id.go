package ref

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

const (
	// LocalPrefix opens every id that a bundle writes.
	LocalPrefix = "@local/"
	// MaxID is the longest id, in bytes of UTF-8.
	MaxID = 4096
	// MaxAuthored is the longest id that an author may choose: it leaves room for the longest derived one, "<id>__files__<16 digits>".
	MaxAuthored = MaxID - len("__files__") - 16
	// DerivedMark separates an id from the suffix of what is derived from it.
	DerivedMark = "__"
)

const punctuation = " ._-~/@()+,&"

// Allowed says in words which characters a local id may hold.
const Allowed = "letters, digits, spaces and . _ - ~ / @ ( ) + , &"

// NFC is s in Unicode's composed form, in which names are compared and stored.
func NFC(s string) string { return norm.NFC.String(s) }

// IsNFC tells whether s is in composed form already.
func IsNFC(s string) bool { return norm.NFC.IsNormalString(s) }

// Fold is a key that two names share when they differ only in case or Unicode form.
func Fold(s string) string { return NFC(foldCase(norm.NFD.String(s))) }

// IsLocal tells whether id is written as one of the local namespace, valid or not.
func IsLocal(id string) bool { return strings.HasPrefix(id, LocalPrefix) }

// CheckLocal tells what is wrong with a local id, all of it. The error's text is one line and doesn't begin with the id.
func CheckLocal(id string) error {
	rest, ok := strings.CutPrefix(id, LocalPrefix)
	if !ok {
		return fmt.Errorf("%s must start with %s", quote(id), LocalPrefix)
	}
	if len(id) > MaxID {
		return fmt.Errorf("an id has at most %d bytes, and this one has %d", MaxID, len(id))
	}
	var faults []string
	if f := charFault(rest); f != "" {
		faults = append(faults, f)
	}
	for seg := range strings.SplitSeq(rest, "/") {
		if f := segmentFault(seg); f != "" && !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	return join(id, faults)
}

// CheckAuthored is CheckLocal for an id that a person chose: it must be in composed form and leave room for derived ids.
func CheckAuthored(id string) error {
	if err := CheckLocal(id); err != nil {
		return err
	}
	if len(id) > MaxAuthored {
		return fmt.Errorf("an id has at most %d bytes, so that ids derived from it fit, and this one has %d", MaxAuthored, len(id))
	}
	if !IsNFC(id) {
		return fmt.Errorf("%s must be written in Unicode's composed form (NFC)", quote(id))
	}
	return nil
}

// CheckSegment tells what is wrong with name as one segment of a local id.
func CheckSegment(name string) error {
	var faults []string
	if strings.Contains(name, "/") {
		faults = append(faults, "contains '/'")
	}
	if f := charFault(name); f != "" {
		faults = append(faults, f)
	}
	if f := segmentFault(name); f != "" {
		faults = append(faults, f)
	}
	return join(name, faults)
}

func join(name string, faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.New(quote(name) + " " + strings.Join(faults, ", and "))
}

// charFault names the characters of s that no local id may hold.
func charFault(s string) string {
	var bad []string
	stray := false
	base := false // the character before can carry a mark
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		ch := s[i : i+n]
		i += n
		switch {
		case r == utf8.RuneError && n == 1, invisible(r):
			bad, base = append(bad, ch), false
		case unicode.IsLetter(r), unicode.IsNumber(r):
			base = true
		case unicode.IsMark(r):
			stray = stray || !base
		case r < utf8.RuneSelf && strings.ContainsRune(punctuation, r):
			base = false
		default:
			bad, base = append(bad, ch), false
		}
	}
	var faults []string
	if len(bad) > 0 {
		slices.Sort(bad)
		bad = slices.Compact(bad)
		more := ""
		if len(bad) > 8 {
			bad, more = bad[:8], fmt.Sprintf(" and %d more", len(bad)-8)
		}
		for i := range bad {
			bad[i] = quote(bad[i])
		}
		faults = append(faults, "contains "+strings.Join(bad, ", ")+more+"; a local id may contain only "+Allowed)
	}
	if stray {
		faults = append(faults, "has a combining mark that follows no letter or digit")
	}
	return strings.Join(faults, ", and ")
}

// segmentFault names what is wrong with the shape of one segment.
func segmentFault(seg string) string {
	switch {
	case seg == "":
		return "has an empty path segment"
	case seg == "." || seg == "..":
		return "has a path segment that is . or .."
	case seg[0] == ' ' || seg[len(seg)-1] == ' ':
		return "has a path segment that opens or closes with a space"
	}
	return ""
}

// invisible tells letters and marks that show as nothing (Unicode's default ignorable code points), which could make two ids look alike.
// Format characters, the rest of that set, are no letters and are refused anyway.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// quote shows outside text on one line. Package diag, which does the same, stands on this level and can't be imported.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\'':
			b.WriteString(`\'`)
		case unicode.IsPrint(r) && !invisible(r):
			b.WriteRune(r)
		case invisible(r) && unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	b.WriteByte('\'')
	return b.String()
}

// foldCase is Unicode's full case folding.
func foldCase(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.Map(foldCherokee, cases.Fold().String(s))
		}
	}
	return strings.ToLower(s)
}

// foldCherokee folds the one script whose small letters fold to its capitals: the library swaps the two.
func foldCherokee(r rune) rune {
	switch {
	case r >= 0xab70 && r <= 0xabbf:
		return r - 0xab70 + 0x13a0
	case r >= 0x13f8 && r <= 0x13fd:
		return r - 8
	}
	return r
}

// Join makes an id of a root and a name below it.
func Join(root, name string) string { return root + "/" + name }

// Last is an id's last segment.
func Last(id string) string { return path.Base(id) }

// Derived is the id of something that belongs to id.
func Derived(id, suffix string) string { return id + DerivedMark + suffix }

// IsDerived tells whether an artifact of this id belongs to another: what people name holds no DerivedMark in its last segment.
func IsDerived(id string) bool { return strings.Contains(Last(id), DerivedMark) }

// FileID is the id of the file at rel ("/"-separated) inside the universe id.
func FileID(id, rel string) string {
	sum := sha256.Sum256([]byte(rel))
	return Derived(id, hex.EncodeToString(sum[:8]))
}
