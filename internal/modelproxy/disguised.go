package modelproxy

import (
	"encoding/json"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
)

// disguised is the failure that an answer of status 200 is: an error in place of a message, as gateways make them of another's refusal, or a message
// without content that no token was spent on. nil: it is an answer.
func disguised(x *Exchange, h http.Header, named bool) *model.Error {
	if strings.Contains(x.Response, `"error"`) {
		for _, d := range bodies(x.Response) {
			if status := errorIn(d); status != 0 {
				return model.Refusal(status, d, h).Judge(named)
			}
		}
	}
	if x.Usage != nil && (x.Usage.Input != 0 || x.Usage.Output != 0) {
		return nil
	}
	m := decoded(x)
	if m == nil && (x.Protocol == serve.Chat || x.Protocol == serve.Messages) || m != nil && m.Text() == "" && m.Reasoning == "" && len(m.Calls) == 0 {
		return &model.Error{Kind: model.Malformed, Status: x.Status, Message: "an answer without content, for which no token is counted"}
	}
	return nil
}

// errorIn is the status that an error in a document of an answer stands for, 500 where it tells none; 0 for no error.
func errorIn(document json.RawMessage) int {
	var d struct {
		Error    json.RawMessage `json:"error"`
		Response struct {
			Error json.RawMessage `json:"error"`
		} `json:"response"`
	}
	if json.Unmarshal(document, &d) != nil {
		return 0
	}
	for _, raw := range []json.RawMessage{d.Error, d.Response.Error} {
		if len(raw) == 0 || string(raw) == "null" || string(raw) == "false" || string(raw) == `""` || string(raw) == "{}" {
			continue
		}
		var e struct {
			Code    any    `json:"code"`
			Status  any    `json:"status"`
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		words := "" // ids and the like say nothing of it
		if json.Unmarshal(raw, &e) != nil {
			words = string(raw) // a text is an error too
		}
		for _, v := range []any{e.Code, e.Status} {
			if n, ok := v.(float64); ok && n >= 400 && n < 600 {
				return int(n)
			}
			if s, ok := v.(string); ok {
				words += " " + s
			}
		}
		return statusOf(strings.ToLower(words + " " + e.Type + " " + e.Message))
	}
	return 0
}

// statusOf is the status that an error's words stand for.
func statusOf(words string) int {
	for _, c := range []struct {
		words  string
		status int
	}{
		{"rate_limit", http.StatusTooManyRequests},
		{"rate limit", http.StatusTooManyRequests},
		{"too many requests", http.StatusTooManyRequests},
		{"resource_exhausted", http.StatusTooManyRequests},
		{"quota", http.StatusTooManyRequests},
		{"429", http.StatusTooManyRequests},
		{"authentication_error", http.StatusUnauthorized},
		{"permission_error", http.StatusForbidden},
		{"invalid_request", http.StatusBadRequest},
		{"invalid_prompt", http.StatusBadRequest},
		{"context_length", http.StatusBadRequest},
	} {
		if strings.Contains(words, c.words) {
			return c.status
		}
	}
	return http.StatusInternalServerError
}
