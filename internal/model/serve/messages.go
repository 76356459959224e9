package serve

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/model"
)

var anthropicStops = map[string]string{model.StopEnd: "end_turn", model.StopTools: "tool_use", model.StopLength: "max_tokens", model.StopRefusal: "refusal"}

func anthropicUsage(r *model.Response) map[string]any {
	return map[string]any{
		"input_tokens": r.Usage.Input - r.Usage.Cached - r.Usage.CacheWrites, "cache_read_input_tokens": r.Usage.Cached,
		"cache_creation_input_tokens": r.Usage.CacheWrites, "output_tokens": r.Usage.Output,
	}
}

func blocksOf(r *model.Response) []any {
	blocks := []any{}
	if r.Message.Reasoning != "" {
		blocks = append(blocks, map[string]any{"type": "thinking", "thinking": r.Message.Reasoning, "signature": "sig"})
	}
	if t := r.Message.Text(); t != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": t})
	}
	for _, c := range r.Message.Calls {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.Args})
	}
	return blocks
}

func messageEvents(name string, r *model.Response, f form) []string {
	out := []string{
		event("message_start", map[string]any{"message": map[string]any{
			"id": f.id("msg_"), "type": "message", "role": "assistant", "model": name, "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": anthropicUsage(r),
		}}),
		event("ping", map[string]any{}),
	}
	n := 0
	block := func(start map[string]any, deltas ...map[string]any) {
		out = append(out, event("content_block_start", map[string]any{"index": n, "content_block": start}))
		for _, d := range deltas {
			out = append(out, event("content_block_delta", map[string]any{"index": n, "delta": d}))
		}
		out = append(out, event("content_block_stop", map[string]any{"index": n}))
		n++
	}
	if r.Message.Reasoning != "" {
		block(map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			map[string]any{"type": "thinking_delta", "thinking": r.Message.Reasoning}, map[string]any{"type": "signature_delta", "signature": "sig"})
	}
	if t := r.Message.Text(); t != "" {
		var ds []map[string]any
		for _, h := range halves(t) {
			ds = append(ds, map[string]any{"type": "text_delta", "text": h})
		}
		block(map[string]any{"type": "text", "text": ""}, ds...)
	}
	for _, c := range r.Message.Calls {
		var ds []map[string]any
		for _, h := range halves(argsOf(c)) {
			ds = append(ds, map[string]any{"type": "input_json_delta", "partial_json": h})
		}
		block(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}}, ds...)
	}
	var stop any
	if s, ok := anthropicStops[r.Stop]; ok {
		stop = s
	}
	out = append(out, event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": r.Usage.Output},
	}))
	return append(out, event("message_stop", map[string]any{}))
}

func (q *Question) messages(body []byte) error {
	var in struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		MaxTokens   int      `json:"max_tokens"`
		Temperature *float64 `json:"temperature"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return errors.New("the request is no JSON of messages")
	}
	r := &q.Request
	q.Stream = in.Stream
	r.Model, r.MaxTokens, r.Temperature = in.Model, in.MaxTokens, in.Temperature
	system, err := contentParts(in.System)
	if err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for _, p := range system {
		r.System = join(r.System, p.Text)
	}
	for i, m := range in.Messages {
		parts, err := contentParts(m.Content)
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		switch m.Role {
		case "system": // some say more of the system's within the conversation
			said := model.Message{Parts: parts}
			r.System = join(r.System, said.Text())
			continue
		case model.User, model.Assistant:
		default:
			return fmt.Errorf("messages[%d] has the role %q", i, m.Role)
		}
		if err := q.blocks(m.Role, m.Content, parts); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, model.Tool{Name: t.Name, Description: t.Description, Schema: schemaOf(t.InputSchema)})
	}
	return nil
}

// blocks makes messages of one with tool blocks: results are messages of their own, and come before what else the user says.
func (q *Question) blocks(role string, raw json.RawMessage, parts []model.Part) error {
	var list []struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		IsError   bool            `json:"is_error"`
	}
	_ = json.Unmarshal(raw, &list) // a text has no blocks
	out := model.Message{Role: role, Parts: parts}
	for _, b := range list {
		switch b.Type {
		case "tool_use":
			out.Calls = append(out.Calls, callOf(b.ID, b.Name, string(b.Input)))
		case "tool_result":
			ps, err := contentParts(b.Content)
			if err != nil {
				return err
			}
			q.Request.Messages = append(q.Request.Messages, model.Message{Role: model.ToolRole, CallID: b.ToolUseID, Error: b.IsError, Parts: ps})
		}
	}
	if len(out.Parts) > 0 || len(out.Calls) > 0 {
		q.Request.Messages = append(q.Request.Messages, out)
	}
	return nil
}
