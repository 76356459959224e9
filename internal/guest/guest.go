// Package guest is what a sandbox's client and its PID 1 speak: the Box interface, its wire and its client.
//
// A provider only makes the machine and connects; everything that is done inside goes through a Box.
// This package imports the standard library alone, so that the guest binary stays small.
package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"time"
)

// Errors of a Box that callers branch on.
var (
	// ErrGone: the box no longer exists or its PID 1 no longer answers. A run that meets it is infra_failed, never scored.
	ErrGone = errors.New("the sandbox is gone")
	// ErrTooBig: a file is larger than the limit the caller gave.
	ErrTooBig = errors.New("larger than the limit")
)

// Command is one program to run in a box.
type Command struct {
	Argv []string // Argv[0] is looked up in the box's PATH
	Env  []string // "K=V", added to the box's base environment; a later entry wins
	Dir  string   // "" is the box's home, or User's
	// User is who runs it, by the box's own files of users: a name, an id, or either with ":" and a group. It sets HOME, USER and LOGNAME where
	// Env doesn't, and the groups that the box's group file gives. "" is the box's root. fs.ErrNotExist: the box has no such user.
	User string
	// TTY gives the command a terminal of the box in place of stdio, which Exec ignores then. nil: none.
	TTY *TTY
	// Timeout ends the command and every descendant it left, double forks and new sessions included. 0: none.
	Timeout time.Duration
	// KillTree makes descendants that outlive the command die with it. Without it daemons stay, as a shell's would.
	KillTree bool
}

// TTY is a terminal that a box makes for one command. See Attach for a use of it.
type TTY struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	// Open gets the terminal's other end when the command has started, and owns it: reads are the command's output, writes are keys, and
	// Resize sets its size. It must not block. Reads end with io.EOF or an error when no process has the terminal any more.
	Open func(master *os.File) `json:"-"`
}

// Exit is how a command ended. Exactly one of Code and Signal is meaningful: Signal is 0 unless a signal ended it.
type Exit struct {
	Code     int           `json:"code"`
	Signal   int           `json:"signal,omitempty"`
	TimedOut bool          `json:"timed_out,omitempty"`
	OOM      bool          `json:"oom,omitempty"`       // a process of the box was killed for memory while it ran
	DiskFull bool          `json:"disk_full,omitempty"` // it failed, and the box's disk had no room when it ended
	PidsFull bool          `json:"pids_full,omitempty"` // a process more than the box may have was refused while it ran
	Left     int           `json:"left,omitempty"`      // descendants that had to be killed
	Elapsed  time.Duration `json:"elapsed"`
	CPU      time.Duration `json:"cpu"`
}

// OK tells whether the command ended by itself with code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == 0 && !e.TimedOut }

// Status is the code a shell would show: 124 after a time-out, 128+n after signal n.
func (e Exit) Status() int {
	switch {
	case e.TimedOut:
		return 124
	case e.Signal != 0:
		return 128 + e.Signal
	default:
		return e.Code
	}
}

// Box is one running sandbox seen from outside. All methods may be called from several goroutines; all honour ctx;
// after the box has died they answer an error that is ErrGone.
type Box interface {
	// Exec runs c with the three files as its stdio (nil: /dev/null) and waits for it. A cancelled ctx kills the command's tree.
	// Hand in pipes or regular files, never a terminal. Use Output for a bounded capture: daemons keep pipes open.
	Exec(ctx context.Context, c Command, stdio [3]*os.File) (Exit, error)
	// Dial connects inside the box's net namespace.
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	// Listen opens a socket inside the box that is accepted outside.
	Listen(ctx context.Context, network, addr string) (net.Listener, error)
	// ReadFile reads a regular file of at most max bytes; ErrTooBig beyond it. fs.ErrNotExist and fs.ErrPermission hold through errors.Is.
	ReadFile(ctx context.Context, path string, max int64) ([]byte, error)
	// Stat follows links. FileInfo.Sys is nil.
	Stat(ctx context.Context, path string) (fs.FileInfo, error)
	// Tree is a tar of path with modes, links, xattrs and whiteouts; names are relative to path. The caller closes it.
	Tree(ctx context.Context, path string) (io.ReadCloser, error)
	// Extract unpacks a tar under path, which is made when absent. Names that leave path are refused; nothing is written through a link.
	Extract(ctx context.Context, path string, tar io.Reader) error
	// Renew moves the lease's end to d from now, on the boot clock. PID 1 alone arms it and answers.
	Renew(ctx context.Context, d time.Duration) error
	// Close drops the connection. A tied box dies with its last connection; a leased one lives on.
	Close() error
}
