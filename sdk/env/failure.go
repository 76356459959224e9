package env

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"agentenv.internal/agentenv/sdk/wire"
)

// Failure is an error that tells its caller what to do about it. Returned by a tool, it is an error result with these fields; by an extension,
// a body with them and Status.
type Failure struct {
	wire.Failure
	Status int // HTTP status of an extension's answer
}

// Fail is a failure that changed nothing and that repeating won't help: code is a word for programs, the rest a sentence for people.
func Fail(code, format string, args ...any) *Failure {
	return &Failure{wire.Failure{Code: code, Message: fmt.Sprintf(format, args...), Applied: wire.AppliedNo}, http.StatusBadRequest}
}

// Retry says that the same call may work later.
func (f *Failure) Retry() *Failure { f.Retryable = true; return f }

// WithApplied says whether the call changed something all the same.
func (f *Failure) WithApplied(a wire.Applied) *Failure { f.Applied = a; return f }

// WithHint says what to do instead.
func (f *Failure) WithHint(format string, args ...any) *Failure {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// WithStatus sets the HTTP status of an extension's answer.
func (f *Failure) WithStatus(status int) *Failure { f.Status = status; return f }

func invalid(format string, args ...any) *Failure {
	return Fail(wire.CodeInvalidParams, format, args...)
}

func asFailure(err error) (*Failure, bool) { return errors.AsType[*Failure](err) }

// fault is a panic of a handler: its text stays in the log, under a number that its caller is told.
type fault struct{ id string }

func (f *fault) Error() string { return "an internal fault; the server's log has it under " + f.id }

// guarded runs a handler and makes an error of its panic.
func guarded[T any](ctx context.Context, log *slog.Logger, what string, f func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			ft := &fault{newID()}
			log.LogAttrs(ctx, slog.LevelError, "a handler panicked", slog.String("handler", what), slog.String("fault", ft.id), slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
			err = ft
		}
	}()
	return f()
}

// newID is 32 random hex digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: the program ends before
	return hex.EncodeToString(b[:])
}
