package verify

import "testing"

func FuzzReadRows(f *testing.F) {
	for _, s := range []string{`[{"result":true}]`, `{"results":[{"score":1,"weight":-2}]}`, `[null]`, `[{"result":"yes"}]`, `{}`, `[]`, `[{"score":1e999}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		rows, err := readRows(raw)
		if err != nil {
			return
		}
		for _, how := range []string{"all_pass", "any_pass", "weighted_average"} {
			if s := Aggregate(rows, how); !(s >= 0 && s <= 1) {
				t.Errorf("%q by %s scores %v", raw, how, s)
			}
		}
	})
}
