// Package rpc is a JSON-RPC 2.0 peer over a stream: one message a line, requests both ways, any number at a time. It is the wire of the plugin protocol
// (docs/plugin-protocol.md) and knows nothing of plugins.
//
// Words: a message is a request, a notification or an answer; a call is a request and its answer. Both sides are peers: either may call the other while it
// works on a call itself.
package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codes of errors.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeNoMethod       = -32601
	CodeParams         = -32602
	CodeInternal       = -32603
	CodeCancelled      = -32800
	CodeBusy           = -32002
)

// Limits.
const (
	// MaxMessage is the length of a line that a peer accepts and sends, in bytes.
	MaxMessage = 32 << 20
	// MaxWaiting is how many requests may wait for a worker; more are refused with CodeBusy.
	MaxWaiting = 1024
	// MaxWorkers is how many requests are worked on at once.
	MaxWorkers = 64
)

// CancelMethod is the notification that an answer isn't needed any more.
const CancelMethod = "$/cancelRequest"

// Errors that callers branch on.
var (
	// ErrClosed: the connection has ended. What ended it is wrapped beside it.
	ErrClosed = errors.New("the connection is closed")
	// ErrTooLong: a message is longer than MaxMessage.
	ErrTooLong = fmt.Errorf("a message is longer than %d MiB", MaxMessage>>20)
	// ErrNotMessage: a line is no JSON-RPC message.
	ErrNotMessage = errors.New("a line is no message")
)

// Error is an error as an answer carries it.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf is the code of an error that came from the other side, 0 of any other.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// message is one line. Method is that of a request or notification; an answer has a result or an error.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// decode reads a line. The error is ErrNotMessage, with what is wrong.
func decode(line []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, fmt.Errorf("%w: it isn't JSON as messages are", ErrNotMessage)
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	switch {
	case m.Version != "2.0":
		return nil, fmt.Errorf("%w: it lacks \"jsonrpc\": \"2.0\"", ErrNotMessage)
	case m.ID != nil && m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9'):
		return nil, fmt.Errorf("%w: its id is neither a string nor a number", ErrNotMessage)
	case m.Method == "" && m.ID == nil && m.Error == nil:
		return nil, fmt.Errorf("%w: it has neither a method nor an id", ErrNotMessage)
	case m.Method == "" && m.ID != nil && m.Error == nil && m.Result == nil:
		return nil, fmt.Errorf("%w: it is an answer with neither a result nor an error", ErrNotMessage)
	}
	return &m, nil
}
