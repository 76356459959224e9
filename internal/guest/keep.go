package guest

import (
	"errors"
	"io"
)

// Keep is a place for Limits.Spill in memory: the beginning of each stream that is too long, at most Max bytes of it.
type Keep struct {
	Max            int
	Stdout, Stderr []byte
}

// errKept: the rest is not kept.
var errKept = errors.New("it is longer than what is kept")

// Spill is for Limits.
func (k *Keep) Spill(stderr bool) (io.Writer, error) {
	if stderr {
		return keeping{&k.Stderr, k.Max}, nil
	}
	return keeping{&k.Stdout, k.Max}, nil
}

type keeping struct {
	to  *[]byte
	max int
}

func (k keeping) Write(p []byte) (int, error) {
	n := min(len(p), k.max-len(*k.to))
	*k.to = append(*k.to, p[:n]...)
	if n < len(p) {
		return n, errKept
	}
	return n, nil
}
