package model

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// newCall reads what a model wrote as a call. Arguments that are no JSON object are kept as they are, beside {}.
func newCall(id, name, args string, n int) ToolCall {
	if id == "" {
		id = "call_" + strconv.Itoa(n+1)
	}
	c := ToolCall{ID: id, Name: name, Args: json.RawMessage("{}")}
	b := bytes.TrimSpace([]byte(args))
	switch {
	case len(b) == 0:
	case b[0] == '{' && json.Valid(b):
		c.Args = b
	default:
		c.Malformed = args
	}
	return c
}

// empty refuses an answer that holds nothing and cost nothing: so look failures that a proxy has made a 200 of.
func empty(r *Response) error {
	m := &r.Message
	if r.Usage.Output == 0 && m.Text() == "" && m.Reasoning == "" && len(m.Calls) == 0 && r.Stop != StopRefusal {
		return &Error{Kind: Malformed, Message: "the answer is empty and counts no tokens"}
	}
	return nil
}
