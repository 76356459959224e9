package serve

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/model"
)

var chatStops = map[string]string{model.StopEnd: "stop", model.StopTools: "tool_calls", model.StopLength: "length", model.StopRefusal: "content_filter"}

func chatUsage(r *model.Response) any {
	return map[string]any{
		"prompt_tokens": r.Usage.Input, "completion_tokens": r.Usage.Output, "total_tokens": r.Usage.Input + r.Usage.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": r.Usage.Cached},
	}
}

func chatEvents(name string, r *model.Response, f form) []string {
	chunk := func(delta map[string]any, finish any) string {
		return data(map[string]any{
			"id": f.id("chatcmpl-"), "object": "chat.completion.chunk", "model": name,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		})
	}
	out := []string{chunk(map[string]any{"role": "assistant", "content": ""}, nil)}
	if r.Message.Reasoning != "" {
		out = append(out, chunk(map[string]any{"reasoning_content": r.Message.Reasoning}, nil))
	}
	if t := r.Message.Text(); t != "" {
		for _, h := range halves(t) {
			out = append(out, chunk(map[string]any{"content": h}, nil))
		}
	}
	for i, c := range r.Message.Calls {
		for j, h := range halves(argsOf(c)) {
			fn := map[string]any{"arguments": h}
			call := map[string]any{"index": i, "function": fn}
			if j == 0 {
				fn["name"], call["id"], call["type"] = c.Name, c.ID, "function"
			}
			out = append(out, chunk(map[string]any{"tool_calls": []any{call}}, nil))
		}
	}
	var finish any
	if s, ok := chatStops[r.Stop]; ok {
		finish = s
	}
	out = append(out, chunk(map[string]any{}, finish))
	out = append(out, data(map[string]any{"id": f.id("chatcmpl-"), "object": "chat.completion.chunk", "model": name, "choices": []any{}, "usage": chatUsage(r)}))
	return append(out, "data: [DONE]\n\n")
}

func (q *Question) chat(body []byte) error {
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		MaxTokens           int      `json:"max_tokens"`
		MaxCompletionTokens int      `json:"max_completion_tokens"`
		Temperature         *float64 `json:"temperature"`
		Effort              string   `json:"reasoning_effort"`
		N                   int      `json:"n"`
		ResponseFormat      struct {
			JSONSchema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return errors.New("the request is no JSON of a chat completion")
	}
	if in.N > 1 {
		return errors.New("n is more than 1, and one answer is what there is")
	}
	r := &q.Request
	q.Stream = in.Stream
	r.Model, r.MaxTokens, r.Temperature, r.Effort = in.Model, max(in.MaxTokens, in.MaxCompletionTokens), in.Temperature, in.Effort
	r.Schema = in.ResponseFormat.JSONSchema.Schema
	for i, m := range in.Messages {
		parts, err := contentParts(m.Content)
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		out := model.Message{Role: m.Role, Parts: parts, CallID: m.ToolCallID}
		switch m.Role {
		case "system", "developer":
			r.System = join(r.System, out.Text())
			continue
		case model.User, model.Assistant, model.ToolRole:
		default:
			return fmt.Errorf("messages[%d] has the role %q", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			out.Calls = append(out.Calls, callOf(c.ID, c.Function.Name, c.Function.Arguments))
		}
		r.Messages = append(r.Messages, out)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, model.Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: schemaOf(t.Function.Parameters)})
	}
	return nil
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n\n" + b
}

func schemaOf(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return raw
}

// contentParts reads the content of a message of any of the first three protocols: a text, null, or a list of texts and images; what is
// neither is left out, as thinking and annotations are.
func contentParts(raw json.RawMessage) ([]model.Part, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return nil, nil
		}
		return []model.Part{{Text: s}}, nil
	}
	var list []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		ImageURL json.RawMessage `json:"image_url"`
		Source   struct {
			Media string `json:"media_type"`
			Data  []byte `json:"data"`
		} `json:"source"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("its content is neither a text nor a list of parts")
	}
	var out []model.Part
	for _, p := range list {
		switch p.Type {
		case "text", "input_text", "output_text":
			out = append(out, model.Part{Text: p.Text})
		case "image_url", "input_image":
			part, err := dataURL(p.ImageURL)
			if err != nil {
				return nil, err
			}
			out = append(out, part)
		case "image":
			out = append(out, model.Part{Media: p.Source.Media, Data: p.Source.Data})
		}
	}
	return out, nil
}

func dataURL(raw json.RawMessage) (model.Part, error) {
	var u string
	var in struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(raw, &u) != nil && json.Unmarshal(raw, &in) == nil {
		u = in.URL
	}
	head, b64, ok := strings.Cut(u, ",")
	media, isB64 := strings.CutSuffix(strings.TrimPrefix(head, "data:"), ";base64")
	if !ok || !isB64 || !strings.HasPrefix(head, "data:") {
		return model.Part{}, errors.New("an image is not in the request itself, as a data: URL")
	}
	b, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		return model.Part{}, errors.New("an image is not valid base64")
	}
	return model.Part{Media: media, Data: b}, nil
}
