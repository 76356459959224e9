package pid1

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
)

func TestFindUser(t *testing.T) {
	passwd := []string{"", "broken", "bad:x:abc:1:::", "root:x:0:0:root:/root:/bin/sh", "12:x:500:501::/named:", "a:x:7:8::relative:", "max:x:4294967295:1::/:"}
	groups := []string{"root:x:0:", "g:x:9:b,a", "broken", "h:x:zz:a", "12g:x:77:"}
	for _, c := range []struct {
		user, group string
		want        *account
	}{
		{"root", "", &account{name: "root", home: "/root"}},
		{"12", "", &account{name: "12", uid: 500, gid: 501, home: "/named"}},
		{"a", "", &account{name: "a", uid: 7, gid: 8, home: "/", groups: []int{9}}},
		{"7", "", &account{name: "a", uid: 7, gid: 8, home: "/", groups: []int{9}}},
		{"a", "12g", &account{name: "a", uid: 7, gid: 77, home: "/"}},
		{"99", "", &account{uid: 99, home: "/"}},
		{"99", "5", &account{uid: 99, gid: 5, home: "/"}},
		{"max", "", nil},
		{"4294967295", "", nil},
		{"-1", "", nil},
		{"a", "nogroup", nil},
	} {
		got, err := findUser(c.user, c.group, passwd, groups)
		if c.want == nil {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s:%s: %+v, %v", c.user, c.group, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:%s: %+v, %v, want %+v", c.user, c.group, got, err, c.want)
		}
	}
}

func FuzzFindUser(f *testing.F) {
	f.Add("a", "g", "root:x:0:0::/root:\na:x:1:2::/:\n", "g:x:3:a\n")
	f.Add("1", "", "a:x:1:2::rel:", "g:x:4294967295:a")
	f.Fuzz(func(t *testing.T, user, group, passwd, groups string) {
		p, err := readLines(strings.NewReader(passwd))
		if err != nil {
			return
		}
		g, err := readLines(strings.NewReader(groups))
		if err != nil {
			return
		}
		a, err := findUser(user, group, p, g)
		if err != nil {
			return
		}
		if a.uid < 0 || a.gid < 0 || a.uid >= 1<<32-1 || a.gid >= 1<<32-1 || !strings.HasPrefix(a.home, "/") {
			t.Errorf("%+v", a)
		}
	})
}
