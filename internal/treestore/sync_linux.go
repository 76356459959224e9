package treestore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem makes everything durable that was written to the file system of dir.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return errors.Join(&os.PathError{Op: "syncfs", Path: dir, Err: err}, f.Close())
	}
	return f.Close()
}
