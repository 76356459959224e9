package runlog

import (
	"encoding/json"
	"slices"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
)

func TestDigests(t *testing.T) {
	a, b := ref.DigestOf([]byte("a")), ref.DigestOf([]byte("b"))
	for text, want := range map[string][]ref.Digest{
		``: nil,
		`{"object":{"digest":"` + string(a) + `"}}`:                         {a},
		`["` + string(a) + `","x ` + string(b) + ` y","` + string(a) + `"]`: {a, b, a},
		`"sha256:sha256:` + a.Hex() + `"`:                                   {a},
		`"sha256:` + a.Hex()[:63] + `"`:                                     nil,
		`"sha256:` + a.Hex()[:63]:                                           nil,
		`"SHA256:` + a.Hex() + `"`:                                          nil,
		`"sha256:` + a.Hex()[:63] + `G" "` + string(b) + `"`:                {b},
	} {
		if got := slices.Collect((Event{Data: json.RawMessage(text)}).Digests()); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for d := range (Event{Data: json.RawMessage(string(a) + string(b))}).Digests() {
		if d != a {
			t.Error("went on")
		}
		break
	}
}
