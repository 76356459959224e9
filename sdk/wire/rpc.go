package wire

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Codes of JSON-RPC errors on the data plane.
const (
	CodeParse    = -32700 // the body isn't JSON
	CodeRequest  = -32600 // it isn't a request
	CodeMethod   = -32601 // the method isn't served
	CodeParams   = -32602 // bad parts, a bad write_namespace, positional params
	CodeInternal = -32603
	CodeHandler  = -32000 // the environment refused; data.code says which operation
)

// What error.data.code says when an environment refuses.
const (
	ResetFailed = "reset_failed"
	AddFailed   = "add_failed"
	GetFailed   = "get_failed"
)

// Request is one call of the data plane.
type Request struct {
	ID     json.RawMessage // echoed as it is; nil is null
	Method string
	Params json.RawMessage // nil when absent or null
}

// Response is the answer to one call: Result or Error.
type Response struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *Error
}

// Error is the error of a Response. It is an error whose text is the other side's message.
type Error struct {
	Code    int
	Message string
	Data    json.RawMessage
}

func (e *Error) Error() string { return e.Message }

// DataCode is data.code, "" when there is none.
func (e *Error) DataCode() string { return e.data("code") }

// Detail is data.detail, "" when there is none.
func (e *Error) Detail() string { return e.data("detail") }

func (e *Error) data(name string) string {
	ms, err := parseObject(e.Data)
	if err != nil {
		return ""
	}
	for _, m := range ms {
		var s string
		if m.name == name && json.Unmarshal(m.value, &s) == nil {
			return s
		}
	}
	return ""
}

// InvalidParams is the error for params that can't be used; detail must hold no secret.
func InvalidParams(detail string) *Error {
	var w writer
	w.put("detail", detail)
	b, _ := w.bytes() // a string always encodes
	return &Error{Code: CodeParams, Message: "invalid_request", Data: b}
}

// HandlerFailed is the error of an environment that refused; code is ResetFailed, AddFailed or GetFailed.
func HandlerFailed(code, message string) *Error {
	var w writer
	w.put("code", code)
	b, _ := w.bytes() // a string always encodes
	return &Error{Code: CodeHandler, Message: message, Data: b}
}

// MethodNotFound is the error for a method that isn't served.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethod, Message: "method not found: " + method}
}

// DecodeRequest reads the body of a call. With an error, the request holds the id as far as one could be read, for the answer.
func DecodeRequest(body []byte) (Request, *Error) {
	var r Request
	invalid := &Error{Code: CodeRequest, Message: "invalid request"}
	if len(bytes.TrimSpace(body)) == 0 {
		return r, invalid
	}
	if !json.Valid(body) {
		return r, &Error{Code: CodeParse, Message: "parse error"}
	}
	ms, err := parseObject(body)
	if err != nil {
		return r, invalid
	}
	version, method := false, false
	for _, m := range ms {
		switch m.name {
		case "jsonrpc":
			var v string
			version = json.Unmarshal(m.value, &v) == nil && v == "2.0"
		case "id":
			if !isNull(m.value) {
				r.ID = m.value
			}
		case "method":
			method = !isNull(m.value) && json.Unmarshal(m.value, &r.Method) == nil && r.Method != ""
		case "params":
			if !isNull(m.value) {
				r.Params = m.value
			}
		}
	}
	if !version || !method {
		return Request{ID: r.ID}, invalid
	}
	return r, nil
}

// MarshalJSON writes a request; params are left out when nil.
func (r Request) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("jsonrpc", "2.0")
	w.put("id", r.ID)
	w.put("method", r.Method)
	w.raw("params", r.Params)
	return w.bytes()
}

// MarshalJSON writes a response; a nil result is {}.
func (r Response) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("jsonrpc", "2.0")
	w.put("id", r.ID)
	switch {
	case r.Error != nil:
		var e writer
		e.put("code", r.Error.Code)
		e.put("message", r.Error.Message)
		e.raw("data", r.Error.Data)
		b, err := e.bytes()
		if err != nil {
			return nil, err
		}
		w.put("error", json.RawMessage(b))
	case r.Result == nil:
		w.put("result", json.RawMessage("{}"))
	default:
		w.put("result", r.Result)
	}
	return w.bytes()
}

// DecodeResponse reads an answer of the data plane. A response with an error is no error of this function.
func DecodeResponse(body []byte) (Response, error) {
	var r Response
	if err := r.UnmarshalJSON(body); err != nil {
		return Response{}, err
	}
	return r, nil
}

// UnmarshalJSON reads a response: exactly one of result and error must be there.
func (r *Response) UnmarshalJSON(b []byte) error {
	ms, err := parseObject(b)
	if err != nil {
		return err
	}
	*r = Response{}
	version, result := "", false
	for _, m := range ms {
		switch m.name {
		case "jsonrpc":
			err = readInto(m.value, &version)
		case "id":
			if !isNull(m.value) {
				r.ID = m.value
			}
		case "result":
			r.Result, result = m.value, true
		case "error":
			if !isNull(m.value) {
				r.Error, err = parseError(m.value)
			}
		}
		if err != nil {
			return at(m.name, err)
		}
	}
	switch {
	case version != "2.0":
		return errors.New(`not a JSON-RPC response: jsonrpc isn't "2.0"`)
	case r.Error == nil && !result:
		return errors.New("not a JSON-RPC response: neither result nor error")
	case r.Error != nil && result && !isNull(r.Result):
		return errors.New("not a JSON-RPC response: both result and error")
	case r.Error != nil:
		r.Result = nil
	}
	return nil
}

func parseError(raw json.RawMessage) (*Error, error) {
	ms, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	e := &Error{}
	code := false
	for _, m := range ms {
		switch m.name {
		case "code":
			code = !isNull(m.value)
			err = readInto(m.value, &e.Code)
		case "message":
			err = readInto(m.value, &e.Message)
		case "data":
			if !isNull(m.value) {
				e.Data = m.value
			}
		}
		if err != nil {
			return nil, at(m.name, err)
		}
	}
	if !code {
		return nil, errors.New("it has no code")
	}
	return e, nil
}
