//go:build unix && !linux

package guest

import "os"

// halfPipe is a pipe whose end near (0: the read end) is this program's, and whose other end blocks.
func halfPipe(near int) (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	[]*os.File{w, r}[near].Fd() // clears O_NONBLOCK, which the program that gets it would share
	return r, w, nil
}

func pipeSize(*os.File) int { return 64 << 10 }

func openable(*os.File) {}
