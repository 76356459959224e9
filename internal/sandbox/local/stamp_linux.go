package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stamps are the states of the files that a tree was built from, one a line: time, size, inode, mode, name. A missing file has none.
type stamps string

// stamp takes the states of names as they are now.
func stamp(names []string) stamps {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(stampOf(name))
	}
	return stamps(b.String())
}

func stampOf(name string) string {
	var st unix.Stat_t
	if strings.Contains(name, "\n") || unix.Lstat(name, &st) != nil {
		return "\n"
	}
	return fmt.Sprintf("%d %d %d %o %s\n", st.Mtim.Nano(), st.Size, st.Ino, st.Mode, name)
}

// key is short for all of s, during one boot of the machine.
func (s stamps) key(boot string) string {
	sum := sha256.Sum256([]byte(boot + "\n" + string(s)))
	return hex.EncodeToString(sum[:12])
}

// hold tells whether all files are still as they were.
func (s stamps) hold() bool {
	for line := range strings.Lines(string(s)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if len(f) == 5 && stampOf(f[4]) != line {
			return false
		}
	}
	return s != ""
}

// names are the files that there were.
func (s stamps) names() []string {
	var names []string
	for line := range strings.Lines(string(s)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5); len(f) == 5 {
			names = append(names, f[4])
		}
	}
	return names
}

// readStamps reads what was saved; "" where nothing was, or longer than age ago, if there is one.
func readStamps(name string, age time.Duration) stamps {
	if info, err := os.Stat(name); age > 0 && (err != nil || time.Since(info.ModTime()) > age) {
		return ""
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return stamps(b)
}
