package hostside

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// NewWords is a file for what the processes of a box write before it lives.
func NewWords() (*os.File, error) {
	fd, err := unix.MemfdCreate("log", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's log: %w", err)
	}
	return os.NewFile(uintptr(fd), "log"), nil
}

// LastWords adds to err what they wrote.
func LastWords(words *os.File, err error) error {
	b := make([]byte, 2000)
	n, _ := words.ReadAt(b, 0)
	said := strings.TrimSpace(string(b[:n]))
	if said == "" || strings.Contains(said, err.Error()) {
		return err
	}
	return fmt.Errorf("%w: %s", err, said)
}
