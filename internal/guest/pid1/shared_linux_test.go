package pid1

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const someMaps = `7f0000000000-7f0001000000 rw-s 00000000 00:01 77 /dev/zero (deleted)
7f0001000000-7f0001001000 rw-s 0a000000 00:01 77 /dev/zero (deleted)
7f0002000000-7f0002001000 rw-p 00000000 00:01 78 /dev/zero (deleted)
7f0003000000-7f0003001000 rw-s 00000000 00:2a 5 /tmp/x
7f0003000000-7f0003001000 rw-s 00000000 00:01 9 /SYSV00000000 (deleted)
7f0004000000-7f0004002000 r--s 00000000 00:01 80 /dev/zero (deleted)
nonsense
`

func TestPieces(t *testing.T) {
	all := map[string]int64{"00:01 80": 1}
	if sum := pieces([]byte(someMaps), all); sum != 0x1000000+0x1000+0x2000 {
		t.Errorf("the process maps %#x", sum)
	}
	if want := map[string]int64{"00:01 77": 0xa001000, "00:01 80": 0x2000}; !maps.Equal(all, want) {
		t.Errorf("the pieces are %v", all)
	}
}

const someSegments = `       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0          3  1600              16777216    11    11      0     0     0     0     0 1796053635 1796053635 1796053635              16777216                  4096
        12          4   600              16777216    11    11      2     0     0     0     0 1796053635 1796053635 1796053635                     0                     0
`

func TestParseSegments(t *testing.T) {
	want := []segment{{3, 16777216 + 4096, false}, {4, 0, true}}
	if got := parseSegments([]byte(someSegments)); !slices.Equal(got, want) {
		t.Errorf("segments: %+v", got)
	}
}

// What a box maps and names can be anything: sums stay sums.
func FuzzShared(f *testing.F) {
	f.Add([]byte(someMaps))
	f.Add([]byte(someSegments))
	f.Add([]byte("0-ffffffffffffffff rw-s 7fffffffffffffff 0 0 /dev/zero\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all := map[string]int64{}
		if pieces(b, all) < 0 {
			t.Error("a negative sum")
		}
		for key, size := range all {
			if size <= 0 {
				t.Errorf("%s is %d", key, size)
			}
		}
		for _, s := range parseSegments(b) {
			if s.size < 0 || s.id < 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestWatchedRules(t *testing.T) {
	prog := assemble(append(rules(), watchedRules()...))
	if got := judge(t, prog, auditArch, unix.SYS_MEMFD_CREATE); got != unix.SECCOMP_RET_ERRNO && got != unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS) {
		t.Errorf("memfd_create gives %#x", got)
	}
	if got := judge(t, assemble(rules()), auditArch, unix.SYS_MEMFD_CREATE); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("memfd_create gives %#x where nothing is watched", got)
	}
}
