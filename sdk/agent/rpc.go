package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/sdk/wire"
)

func unknownTask(string) *wire.Error {
	return &wire.Error{Code: wire.CodeTaskNotFound, Message: "there is no such task"}
}

func badParams(detail string) *wire.Error {
	data, _ := encode(map[string]string{"detail": detail}) // a text always encodes
	return &wire.Error{Code: wire.CodeParams, Message: "Invalid parameters: " + detail, Data: data}
}

// serveRPC answers one call: the status is 200 whatever is wrong, and the body says it.
func (a *Agent) serveRPC(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxA2ABody))
	if err != nil {
		text := "the body can't be read"
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			text = "Payload too large"
		}
		a.answerRPC(w, r, nil, nil, &wire.Error{Code: wire.CodeRequest, Message: text})
		return
	}
	req, rerr := decodeCall(body)
	if rerr != nil {
		a.answerRPC(w, r, req.ID, nil, rerr)
		return
	}
	switch req.Method {
	case wire.A2AStream, wire.A2AResubscribe:
		a.serveStream(w, r, req)
	default:
		result, rerr := a.call(r.Context(), req)
		a.answerRPC(w, r, req.ID, result, rerr)
	}
}

// decodeCall reads a call. With an error, the request holds the id as far as one could be read.
func decodeCall(body []byte) (wire.Request, *wire.Error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return wire.Request{}, &wire.Error{Code: wire.CodeParse, Message: "parse error"}
	}
	req, rerr := wire.DecodeRequest(body)
	if id := bytes.TrimSpace(req.ID); len(id) > 0 && strings.ContainsRune("{[tf", rune(id[0])) {
		return wire.Request{}, &wire.Error{Code: wire.CodeRequest, Message: "the id must be a text, a number or null"}
	}
	return req, rerr
}

func (a *Agent) answerRPC(w http.ResponseWriter, r *http.Request, id json.RawMessage, result any, rerr *wire.Error) {
	resp := wire.Response{ID: id, Error: rerr}
	if rerr == nil {
		raw, err := encode(result)
		if err != nil {
			resp.Error = &wire.Error{Code: wire.CodeInternal, Message: a.crash(r.Context(), "answer", err)}
		}
		resp.Result = raw
	}
	b, err := encode(resp)
	if err != nil {
		http.Error(w, a.crash(r.Context(), "answer", err), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, "application/json", b)
}

func (a *Agent) call(ctx context.Context, req wire.Request) (any, *wire.Error) {
	switch req.Method {
	case wire.A2ASend:
		p, rerr := decodeSend(req.Params)
		if rerr != nil {
			return nil, rerr
		}
		t, rerr := a.tasks.submit(ctx, p.Message)
		if rerr != nil {
			return nil, rerr
		}
		history, block := 0, true
		if c := p.Configuration; c != nil {
			if c.HistoryLength != nil {
				history = *c.HistoryLength
			}
			block = c.Blocking == nil || *c.Blocking
		}
		if block {
			return a.tasks.await(ctx, t, history), nil
		}
		a.tasks.mu.Lock()
		defer a.tasks.mu.Unlock()
		return t.view(history), nil
	case wire.A2AGet, wire.A2ACancel:
		p, rerr := decodeQuery(req.Params)
		if rerr != nil {
			return nil, rerr
		}
		var t wire.Task
		if req.Method == wire.A2AGet {
			t, rerr = a.tasks.get(p.ID, p.history())
		} else {
			t, rerr = a.tasks.cancel(p.ID)
		}
		return t, rerr
	case "agent/getAuthenticatedExtendedCard":
		return nil, &wire.Error{Code: wire.CodeInternal, Message: "the agent has no other card for those who authenticate"}
	}
	if strings.HasPrefix(req.Method, "tasks/pushNotificationConfig/") {
		return nil, &wire.Error{Code: wire.CodeNoPush, Message: "the agent sends no push notifications"}
	}
	return nil, wire.MethodNotFound(req.Method)
}

// decodeSend reads params of message/send. Members that the protocol doesn't know are ignored, as peers of other versions send them.
func decodeSend(raw json.RawMessage) (wire.SendParams, *wire.Error) {
	var p wire.SendParams
	ms, err := wire.ParseObject(orEmpty(raw))
	if err != nil {
		return p, badParams(err.Error())
	}
	for _, m := range ms {
		switch m.Name {
		case "message":
			err = decodeMessage(m.Value, &p.Message)
		case "configuration":
			if json.Unmarshal(m.Value, &p.Configuration) != nil {
				err = errors.New("configuration: it has members of the wrong type")
			} else if c := p.Configuration; c != nil && c.HistoryLength != nil && *c.HistoryLength < 0 {
				err = errors.New("configuration: historyLength must not be negative")
			}
		case "metadata":
			if json.Unmarshal(m.Value, &p.Metadata) != nil {
				err = errors.New("metadata: want a JSON object")
			}
		}
		if err != nil {
			return p, badParams(err.Error())
		}
	}
	if err := p.Message.Check(); err != nil {
		return p, badParams(err.Error())
	}
	return p, nil
}

func decodeMessage(raw json.RawMessage, m *wire.Message) error {
	ms, err := wire.ParseObject(raw)
	if err != nil {
		return errors.New("message: " + err.Error())
	}
	for _, f := range ms {
		into, known := map[string]any{
			"kind": &m.Kind, "messageId": &m.MessageID, "role": &m.Role, "parts": &m.Parts, "contextId": &m.ContextID, "taskId": &m.TaskID,
		}[f.Name]
		switch {
		case known:
			if err := json.Unmarshal(f.Value, into); err != nil {
				if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
					err = errors.New("it has the wrong type")
				}
				return errors.New("message: " + f.Name + ": " + err.Error())
			}
		case f.Name == "metadata" && string(f.Value) != "null":
			if m.Metadata = f.Value; f.Value[0] != '{' {
				return errors.New("message: metadata: want a JSON object")
			}
		}
	}
	if m.Kind != "" && m.Kind != "message" {
		return errors.New("message: kind must be message")
	}
	return nil
}

// query is params of tasks/get and its like.
type query struct {
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

func (q *query) history() int {
	if q.HistoryLength == nil {
		return 0
	}
	return *q.HistoryLength
}

func decodeQuery(raw json.RawMessage) (query, *wire.Error) {
	var q query
	ms, err := wire.ParseObject(orEmpty(raw))
	if err != nil {
		return q, badParams(err.Error())
	}
	for _, m := range ms {
		switch m.Name {
		case "id":
			err = json.Unmarshal(m.Value, &q.ID)
		case "historyLength":
			err = json.Unmarshal(m.Value, &q.HistoryLength)
		}
		if err != nil {
			return q, badParams(m.Name + ": it has the wrong type")
		}
	}
	if q.ID == "" {
		return q, badParams("id is missing")
	}
	if q.history() < 0 {
		return q, badParams("historyLength must not be negative")
	}
	return q, nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func answer(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}
