package step

import "testing"

func TestChangelogURL(t *testing.T) {
	for url, want := range map[string]struct {
		id      string
		version int
		ok      bool
	}{
		"artifact:@local/a/b":   {"@local/a/b", 0, true},
		"artifact:@local/a/b@3": {"@local/a/b", 3, true},
		"artifact:plain@12":     {"plain", 12, true},
		"artifact:@local/a@0":   {},
		"artifact:@local/a@x":   {},
		"artifact:":             {},
		"@local/a":              {},
		"s3://bucket/a":         {},
		"":                      {},
	} {
		id, version, ok := ParseChangelogURL(url)
		if ok != want.ok || ok && (id != want.id || version != want.version || ChangelogURL(id, version) != url) {
			t.Errorf("%q: %q %d %v", url, id, version, ok)
		}
	}
}
