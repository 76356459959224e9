package archive

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// setXattr sets an extended attribute. A file system that has none is no fault of the archive.
func setXattr(f *os.File, x xattr) error {
	err := unix.Fsetxattr(int(f.Fd()), x.name, []byte(x.value), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "setxattr", Path: f.Name(), Err: err}
	}
	return nil
}

// xattrs are the attributes of the user namespace, by name.
func xattrs(f *os.File) ([]xattr, error) {
	fd := int(f.Fd())
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]byte, n)
	if n, err = unix.Flistxattr(fd, list); err != nil {
		return nil, err
	}
	var out []xattr
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, 64<<10) // the most that Linux keeps
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, xattr{name, string(value[:n])})
	}
	slices.SortFunc(out, func(a, b xattr) int { return strings.Compare(a.name, b.name) })
	return out, nil
}
