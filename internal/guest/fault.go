package guest

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
)

// Fault is an error on the wire: its text, and what errors.Is shall find in it.
type Fault struct {
	Text  string `json:"text"`
	Errno int    `json:"errno,omitempty"` // Linux numbering
	Code  string `json:"code,omitempty"`
}

// faultCodes are the sentinels that travel by name.
var faultCodes = []struct {
	code string
	err  error
}{
	{"too_big", ErrTooBig},
	{"gone", ErrGone},
	{"not_exist", fs.ErrNotExist},
	{"exist", fs.ErrExist},
	{"permission", fs.ErrPermission},
	{"invalid", fs.ErrInvalid},
	{"unsupported", errors.ErrUnsupported},
	{"timeout", context.DeadlineExceeded},
}

// FaultOf puts err on the wire; nil stays nil.
func FaultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	f := &Fault{Text: err.Error()}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(no)
		return f
	}
	for _, c := range faultCodes {
		if errors.Is(err, c.err) {
			f.Code = c.code
			break
		}
	}
	return f
}

// Err is the error that f stands for; nil for nil.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	if f.Errno != 0 {
		return &remoteError{f.Text, hostErrno(f.Errno)}
	}
	for _, c := range faultCodes {
		if f.Code == c.code {
			return &remoteError{f.Text, c.err}
		}
	}
	return errors.New(f.Text)
}

// remoteError is an error that happened inside a box.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }
