package archive

import (
	"os"

	"golang.org/x/sys/unix"
)

// mknodAt makes a special file without a device in a folder: everybody may.
func mknodAt(dir *os.File, name string, mode uint32) error {
	if err := unix.Mknodat(int(dir.Fd()), name, mode, 0); err != nil {
		return &os.PathError{Op: "mknod", Path: name, Err: err}
	}
	return nil
}

// markOpaque makes a folder of an overlay hide what is below it. The attribute is of the user namespace, so that everybody may set it and a
// mount with userxattr reads it. Without it files that the layer took away would come back.
func markOpaque(dir *os.File) error {
	if err := unix.Fsetxattr(int(dir.Fd()), "user.overlay.opaque", []byte("y"), 0); err != nil {
		return &os.PathError{Op: "setxattr", Path: dir.Name(), Err: err}
	}
	return nil
}
