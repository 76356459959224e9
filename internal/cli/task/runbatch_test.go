package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestSeeds(t *testing.T) {
	for _, tt := range []struct{ name, src, rows, problems string }{
		{"plain", "name,city\nann,Rome\nbob,\"New\nYork, NY\"\n", "1 city=Rome name=ann|2 city=New\nYork, NY name=bob", ""},
		{"a byte order mark and CRLF", "\ufeffname , city\r\nann,\r\n", "1 city= name=ann", ""},
		{"rows with names", "id,x\nfirst,1\n,2\n", "first id=first x=1|2 id= x=2", ""},
		{"empty", "", "", "s.csv: is empty; write the names of the columns in its first line"},
		{"a head alone", "a,b\n", "", "s.csv: has no row below its first line; write a line for each run"},
		{"UTF-16", "\xff\xfea\x00\n\x00", "", "s.csv: not UTF-8: byte 0xff; save the file as UTF-8 (line 1)"},
		{"UTF-16 without a mark", "a\x00\n\x00", "", "s.csv: not UTF-8: byte 0x00; save the file as UTF-8 (line 1)"},
		{"Latin-1", "a\nb\xe9\n", "", "s.csv: not UTF-8: byte 0xe9; save the file as UTF-8 (line 2)"},
		{"all faults at once", "a,,a,<b>\n1,2\n1,2,3,4\n\"x\n", "1 =2 <b>=4 a=3", "s.csv: column 2 has no name; name it, or take it away (line 1)\n" +
			"s.csv: has 2 values for 4 columns; give every column a value; quote those that hold a comma (line 2)\n" +
			"s.csv: is no CSV: extraneous or missing \" in quoted-field; write a quote within quotes twice (\"\") (line 4)\n" +
			"s.csv: the column '<b>' has < or > in its name; write the name without them: <name> stands for it in the task (line 1)\n" +
			"s.csv: two columns are called 'a'; rename one (line 1)"},
		{"two rows of one name", "id\na\nb\na\n", "a id=a|b id=b|a id=a", "s.csv: the row is called 'a', as the one in line 2 is; give each row an id of its own (line 4)"},
	} {
		rows, l := parseSeeds("s.csv", []byte(tt.src))
		var got []string
		for _, r := range rows {
			text := r.Name
			for _, k := range slices.Sorted(maps.Keys(r.Values)) {
				text += fmt.Sprintf(" %s=%s", k, r.Values[k])
			}
			got = append(got, text)
		}
		if have := strings.Join(got, "|"); have != tt.rows {
			t.Errorf("%s: rows %q, want %q", tt.name, have, tt.rows)
		}
		text := ""
		if err := l.Err(); err != nil {
			text = err.Error()
		}
		if text != tt.problems {
			t.Errorf("%s: problems\n%s\nwant\n%s", tt.name, text, tt.problems)
		}
	}
}

// FuzzSeeds: whatever the file, a row has every column, and there is a row or a problem.
func FuzzSeeds(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\ufeffid\nx", "a\n\"b\"\"c\"\n", "\"", ",\n,", "a,a\n1,2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		rows, l := parseSeeds("s", src)
		if len(rows) == 0 && !l.HasErrors() {
			t.Error("neither rows nor problems")
		}
		for _, r := range rows {
			if r.Name == "" || len(r.Values) == 0 && !l.HasErrors() {
				t.Errorf("%+v", r)
			}
		}
	})
}
