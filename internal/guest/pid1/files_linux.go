package pid1

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// receiveTree unpacks the client's tar under name. What came without the client's end mark is not taken for the whole.
func receiveTree(c *guest.Conn, name string) error {
	data := &guest.DataReader{Conn: c}
	if err := tree.Extract(data, name); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, data); err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	if data.Last != guest.FrameEnd {
		return fmt.Errorf("read the archive: %w", io.ErrUnexpectedEOF)
	}
	return nil
}

// openRegular opens a regular file for reading, and nothing that could block or act.
func openRegular(name string) (*os.File, error) {
	fd, err := tree.OpenPlain(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Size == 0 && ofPID1(fd) {
			unix.Close(fd)
			return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EACCES}
		}
		return os.NewFile(uintptr(fd), name), nil
	case unix.S_IFDIR:
		err = unix.EISDIR
	default:
		err = fmt.Errorf("not a regular file: %w", fs.ErrInvalid)
	}
	unix.Close(fd)
	return nil, &fs.PathError{Op: "read", Path: name, Err: err}
}

// ofPID1 tells whether an open file is one of PID 1's own in /proc: whatever leads there, it is not for those outside.
func ofPID1(fd int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return true
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err != nil || strings.HasPrefix(name, "/proc/1/")
}
