package ref

import (
	"errors"
	"regexp"
	"strings"
)

// encoded is how Key spells local ids in paths and file names: a bare id of that shape would be taken for one.
var encoded = regexp.MustCompile(`^(local/|local-(.+-)?[0-9a-f]{12}$)`)

// CheckID tells what is wrong with an id that a person gives to something stored by hand: a local one, or a bare one, such as "mail/smoke",
// which has the characters and segments of a local one and no namespace in front. The error's text is one line and doesn't begin with the id.
func CheckID(id string) error {
	switch {
	case IsLocal(id):
		return CheckAuthored(id)
	case id == "":
		return errors.New("an id can't be empty")
	case strings.HasPrefix(id, "@"):
		return errors.New(quote(id) + " is no id: ids that begin with @ begin with " + LocalPrefix)
	}
	// A bare id is as strict as the local one of the same name, and counts as long as that.
	var faults []string
	if f := charFault(id); f != "" {
		faults = append(faults, f)
	}
	for seg := range strings.SplitSeq(id, "/") {
		if f := segmentFault(seg); f != "" && !strings.Contains(strings.Join(faults, "\n"), f) {
			faults = append(faults, f)
		}
	}
	if !IsNFC(id) {
		faults = append(faults, "must be written in Unicode's composed form (NFC)")
	}
	if len(id) > MaxAuthored {
		faults = append(faults, "is longer than ids may be")
	}
	if encoded.MatchString(id) {
		faults = append(faults, "is spelled as files of local ids are; begin it with another word than local")
	}
	return join(short(id), faults)
}

// short cuts a long id for a message.
func short(id string) string {
	const most = 60
	if r := []rune(id); len(r) > most {
		return string(r[:most]) + "…"
	}
	return id
}
