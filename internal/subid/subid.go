// Package subid gives a user namespace more ids than the caller's own: the machine's root has all of them, other users have a range of
// /etc/subuid and /etc/subgid that the programs newuidmap and newgidmap hand out.
//
// In such a namespace root is the caller, and the ids from 1 on are the range's. The package makes no namespaces.
package subid

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// ErrNone: this user has no range of ids, or nothing hands it out.
var ErrNone = errors.New("no range of ids")

// Range is the ids of one user.
type Range struct {
	UID, GID       int // the caller's
	SubUID, SubGID int // the first of each range
	Count          int // how many both ranges have
}

// want is how many ids a namespace gets at most: those that images use.
const want = 1<<16 - 1

// All tells whether this process is the machine's root, with every id at hand.
func All() bool {
	return os.Geteuid() == 0 && mapsAll("/proc/self/uid_map") && mapsAll("/proc/self/gid_map")
}

func mapsAll(name string) bool {
	b, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	if len(f) < 3 || f[0] != "0" || f[1] != "0" {
		return false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return err == nil && n >= 1<<31
}

// Find answers the caller's range. The error, which is ErrNone, says what is missing.
func Find() (Range, error) {
	r := Range{UID: os.Geteuid(), GID: os.Getegid()}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			return Range{}, fmt.Errorf("%s is not installed (package uidmap): %w", program, ErrNone)
		}
	}
	if noNewPrivileges() {
		return Range{}, fmt.Errorf("this process may gain no privileges, so newuidmap can't work: %w", ErrNone)
	}
	name := ""
	if u, err := user.LookupId(strconv.Itoa(r.UID)); err == nil {
		name = u.Username
	}
	uid, uids, err := rangeOf("/etc/subuid", name, r.UID)
	if err != nil {
		return Range{}, err
	}
	gid, gids, err := rangeOf("/etc/subgid", name, r.UID)
	if err != nil {
		return Range{}, err
	}
	r.SubUID, r.SubGID, r.Count = uid, gid, min(uids, gids, want)
	return r, nil
}

func noNewPrivileges() bool {
	b, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(b), "\nNoNewPrivs:\t1\n")
}

func rangeOf(file, name string, uid int) (first, count int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", err, ErrNone)
	}
	defer f.Close()
	if first, count = largest(f, name, uid); count == 0 {
		return 0, 0, fmt.Errorf("%s has no line of user %s: %w", file, strconv.Quote(name), ErrNone)
	}
	return first, count, nil
}

// largest is the largest range that the lines give to a user, by name or by number.
func largest(r interface{ Read([]byte) (int, error) }, name string, uid int) (first, count int) {
	for s := bufio.NewScanner(r); s.Scan(); {
		who, rest, _ := strings.Cut(s.Text(), ":")
		if who == "" || who != name && who != strconv.Itoa(uid) {
			continue
		}
		from, many, _ := strings.Cut(rest, ":")
		a, err1 := strconv.ParseUint(from, 10, 31)
		n, err2 := strconv.ParseUint(many, 10, 31)
		if err1 == nil && err2 == nil && a > 0 && a+n < 1<<32 && int(n) > count {
			first, count = int(a), int(n)
		}
	}
	return first, count
}

// Map writes the range into the user namespace of a process, which must have no ids yet: there the caller is root.
func (r Range) Map(ctx context.Context, pid int) error {
	for _, m := range []struct {
		program  string
		own, sub int
	}{{"newuidmap", r.UID, r.SubUID}, {"newgidmap", r.GID, r.SubGID}} {
		cmd := exec.CommandContext(ctx, m.program, strconv.Itoa(pid), "0", strconv.Itoa(m.own), "1", "1", strconv.Itoa(m.sub), strconv.Itoa(r.Count))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", m.program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// String tells a range apart from others, as a part of names: "1000-100000.100000.65535".
func (r Range) String() string {
	return fmt.Sprintf("%d-%d.%d.%d", r.UID, r.SubUID, r.SubGID, r.Count)
}
