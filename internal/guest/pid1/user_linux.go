package pid1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// account is who runs a command.
type account struct {
	name     string // "" for an id that the box has no name of
	uid, gid int
	groups   []int
	home     string
}

const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
	// usersLimit bounds what is read of the box's files of users.
	usersLimit = 4 << 20
)

// lookUser finds who a command's User means, in the files that the box has now.
func lookUser(text string) (*account, error) {
	user, group, grouped := strings.Cut(text, ":")
	if user == "" || grouped && group == "" {
		return nil, fmt.Errorf("the user %q is not a name, an id, or either with a group: %w", text, fs.ErrInvalid)
	}
	passwd, err := lines(passwdFile)
	if err != nil {
		return nil, err
	}
	groups, err := lines(groupFile)
	if err != nil {
		return nil, err
	}
	return findUser(user, group, passwd, groups)
}

// findUser resolves user and group, which is "" for the user's own.
func findUser(user, group string, passwd, groups []string) (*account, error) {
	a := &account{uid: -1, home: "/"}
	if id, ok := number(user); ok {
		a.uid = id
	}
	for _, line := range passwd {
		f := strings.Split(line, ":")
		if len(f) < 6 {
			continue
		}
		uid, okUID := number(f[2])
		gid, okGID := number(f[3])
		if !okUID || !okGID || f[0] != user && (a.uid < 0 || uid != a.uid) {
			continue
		}
		a.name, a.uid, a.gid = f[0], uid, gid
		if strings.HasPrefix(f[5], "/") {
			a.home = f[5]
		}
		break
	}
	if a.uid < 0 {
		return nil, &fs.PathError{Op: "find user " + user, Path: passwdFile, Err: fs.ErrNotExist}
	}
	if group != "" {
		gid, err := findGroup(group, groups)
		if err != nil {
			return nil, err
		}
		a.gid = gid
		return a, nil // whoever names the group means that one alone, as elsewhere
	}
	if a.name == "" {
		return a, nil
	}
	for _, line := range groups {
		f := strings.Split(line, ":")
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), a.name) {
			continue
		}
		if gid, ok := number(f[2]); ok && gid != a.gid && len(a.groups) < maxGroups {
			a.groups = append(a.groups, gid)
		}
	}
	return a, nil
}

// maxGroups is far below what the kernel takes.
const maxGroups = 1024

func findGroup(name string, groups []string) (int, error) {
	for _, line := range groups {
		f := strings.Split(line, ":")
		if len(f) < 3 || f[0] != name {
			continue
		}
		if gid, ok := number(f[2]); ok {
			return gid, nil
		}
	}
	if gid, ok := number(name); ok {
		return gid, nil
	}
	return 0, &fs.PathError{Op: "find group " + name, Path: groupFile, Err: fs.ErrNotExist}
}

// number is an id; 2^32-1 means "none" to the kernel.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil && n < 1<<32-1
}

// lines are those of a file of the box; none when it has no such file.
func lines(name string) ([]string, error) {
	f, err := openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLines(f)
}

func readLines(r io.Reader) ([]string, error) {
	var out []string
	s := bufio.NewScanner(io.LimitReader(r, usersLimit))
	s.Buffer(nil, usersLimit+1)
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out, s.Err()
}

// env is what a login would set.
func (a *account) env() []string {
	env := []string{"HOME=" + a.home}
	if a.name != "" {
		env = append(env, "USER="+a.name, "LOGNAME="+a.name)
	}
	return env
}

// folder is where a command runs that names none: the home, if there is one.
func (a *account) folder() string {
	if info, err := os.Stat(a.home); err == nil && info.IsDir() {
		return a.home
	}
	return "/"
}

// credential is the account for a fork; nil for what every command is anyway.
func (a *account) credential() *syscall.Credential {
	if a == nil || a.uid == 0 && a.gid == 0 && len(a.groups) == 0 {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	for _, g := range a.groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// refused says why an account can't run anything here.
func (a *account) refused(err error) error {
	if a.credential() != nil && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM)) {
		return fmt.Errorf("run as user %d, group %d: this sandbox has no such ids: one made by an ordinary user has its root's alone: %w",
			a.uid, a.gid, errors.ErrUnsupported)
	}
	return nil
}
