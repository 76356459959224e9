package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/model"
)

// spaces are the tools that an agent offers within namespaces, by the name that a Model sees: the namespace, two underscores, and the tool's own name.
type spaces map[string]struct{ space, name string }

// itemsOf are the output items of an answer.
func itemsOf(r *model.Response, f form) []map[string]any {
	out := []map[string]any{}
	if r.Message.Reasoning != "" {
		out = append(out, map[string]any{"type": "reasoning", "id": f.id("rs_"), "summary": []any{map[string]any{"type": "summary_text", "text": r.Message.Reasoning}}})
	}
	if t := r.Message.Text(); t != "" {
		out = append(out, map[string]any{
			"type": "message", "id": f.id("msg_"), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": t, "annotations": []any{}}},
		})
	}
	for i, c := range r.Message.Calls {
		item := map[string]any{"type": "function_call", "id": f.id("fc_" + strconv.Itoa(i+1) + "_"), "call_id": c.ID, "name": c.Name, "arguments": argsOf(c), "status": "completed"}
		if t, ok := f.spaces[c.Name]; ok {
			item["namespace"], item["name"] = t.space, t.name
		}
		out = append(out, item)
	}
	return out
}

func responseOf(name string, r *model.Response, status string, items []map[string]any, f form) map[string]any {
	out := map[string]any{"id": f.id("resp_"), "object": "response", "created_at": 0, "model": name, "status": status, "output": items, "error": nil, "incomplete_details": nil}
	if status != "in_progress" {
		out["usage"] = map[string]any{
			"input_tokens": r.Usage.Input, "output_tokens": r.Usage.Output, "total_tokens": r.Usage.Input + r.Usage.Output,
			"input_tokens_details": map[string]any{"cached_tokens": r.Usage.Cached}, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		}
	}
	if r.Stop == model.StopLength && status == "completed" {
		out["status"], out["incomplete_details"] = "incomplete", map[string]any{"reason": "max_output_tokens"}
	}
	return out
}

func responseEvents(name string, r *model.Response, f form) []string {
	seq := 0
	var out []string
	add := func(typ string, m map[string]any) {
		m["sequence_number"] = seq
		seq++
		out = append(out, event(typ, m))
	}
	add("response.created", map[string]any{"response": responseOf(name, r, "in_progress", []map[string]any{}, f)})
	items := itemsOf(r, f)
	for i, item := range items {
		begun := map[string]any{"type": item["type"], "id": item["id"], "status": "in_progress"}
		switch item["type"] {
		case "message":
			begun["role"], begun["content"] = "assistant", []any{}
		case "function_call":
			begun["call_id"], begun["name"], begun["arguments"] = item["call_id"], item["name"], ""
			if item["namespace"] != nil {
				begun["namespace"] = item["namespace"]
			}
		case "reasoning":
			begun["summary"] = []any{}
		}
		add("response.output_item.added", map[string]any{"output_index": i, "item": begun})
		switch item["type"] {
		case "message":
			t := r.Message.Text()
			add("response.content_part.added", map[string]any{"item_id": item["id"], "output_index": i, "content_index": 0, "part": map[string]any{"type": "output_text", "text": "", "annotations": []any{}}})
			for _, h := range halves(t) {
				add("response.output_text.delta", map[string]any{"item_id": item["id"], "output_index": i, "content_index": 0, "delta": h})
			}
			add("response.output_text.done", map[string]any{"item_id": item["id"], "output_index": i, "content_index": 0, "text": t})
			add("response.content_part.done", map[string]any{"item_id": item["id"], "output_index": i, "content_index": 0, "part": map[string]any{"type": "output_text", "text": t, "annotations": []any{}}})
		case "function_call":
			args, _ := item["arguments"].(string)
			for _, h := range halves(args) {
				add("response.function_call_arguments.delta", map[string]any{"item_id": item["id"], "output_index": i, "delta": h})
			}
			add("response.function_call_arguments.done", map[string]any{"item_id": item["id"], "output_index": i, "arguments": args})
		}
		add("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
	end := responseOf(name, r, "completed", items, f)
	typ := "response.completed"
	if end["status"] == "incomplete" {
		typ = "response.incomplete"
	}
	add(typ, map[string]any{"response": end})
	return out
}

func (q *Question) responses(body []byte) error {
	var in struct {
		Model           string          `json:"model"`
		Stream          bool            `json:"stream"`
		Instructions    string          `json:"instructions"`
		Input           json.RawMessage `json:"input"`
		Previous        string          `json:"previous_response_id"`
		Tools           []responseTool  `json:"tools"`
		MaxOutputTokens int             `json:"max_output_tokens"`
		Temperature     *float64        `json:"temperature"`
		Reasoning       struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		Text struct {
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return errors.New("the request is no JSON of a response")
	}
	if in.Previous != "" {
		return errors.New("previous_response_id names a stored response, and none are stored: send the whole input")
	}
	r := &q.Request
	q.Stream = in.Stream
	r.Model, r.System, r.MaxTokens, r.Temperature, r.Effort, r.Schema = in.Model, in.Instructions, in.MaxOutputTokens, in.Temperature, in.Reasoning.Effort, in.Text.Format.Schema
	q.tools(in.Tools)
	return q.input(in.Input)
}

type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responseTool  `json:"tools"` // of a namespace
}

// tools takes those that the agent serves; those that the endpoint itself would serve are not there.
func (q *Question) tools(list []responseTool) {
	for _, t := range list {
		switch t.Type {
		case "function":
			q.Request.Tools = append(q.Request.Tools, model.Tool{Name: t.Name, Description: t.Description, Schema: schemaOf(t.Parameters)})
		case "namespace":
			for _, f := range t.Tools {
				if f.Type != "function" {
					continue
				}
				if q.spaces == nil {
					q.spaces = spaces{}
				}
				name := spaced(t.Name, f.Name)
				q.spaces[name] = struct{ space, name string }{t.Name, f.Name}
				q.Request.Tools = append(q.Request.Tools, model.Tool{Name: name, Description: f.Description, Schema: schemaOf(f.Parameters)})
			}
		}
	}
}

func spaced(space, name string) string {
	if space == "" {
		return name
	}
	return strings.TrimSuffix(space, "__") + "__" + name
}

func (q *Question) input(raw json.RawMessage) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		q.Request.Messages = []model.Message{model.Text(model.User, s)}
		return nil
	}
	var items []struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Namespace string          `json:"namespace"`
		Arguments string          `json:"arguments"`
		Output    json.RawMessage `json:"output"`
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return errors.New("input is neither a text nor a list of items")
	}
	ms := &q.Request.Messages
	for i, it := range items {
		switch it.Type {
		case "message", "":
			parts, err := contentParts(it.Content)
			if err != nil {
				return fmt.Errorf("input[%d]: %w", i, err)
			}
			m := model.Message{Role: it.Role, Parts: parts}
			switch it.Role {
			case "system", "developer":
				q.Request.System = join(q.Request.System, m.Text())
			case model.User, model.Assistant:
				*ms = append(*ms, m)
			default:
				return fmt.Errorf("input[%d] has the role %q", i, it.Role)
			}
		case "function_call":
			c := callOf(it.CallID, spaced(it.Namespace, it.Name), it.Arguments)
			if n := len(*ms); n > 0 && (*ms)[n-1].Role == model.Assistant {
				(*ms)[n-1].Calls = append((*ms)[n-1].Calls, c)
			} else {
				*ms = append(*ms, model.Message{Role: model.Assistant, Calls: []model.ToolCall{c}})
			}
		case "function_call_output":
			parts, err := contentParts(it.Output)
			if err != nil {
				return fmt.Errorf("input[%d]: %w", i, err)
			}
			*ms = append(*ms, model.Message{Role: model.ToolRole, CallID: it.CallID, Parts: parts})
		case "reasoning", "item_reference":
		default:
			return fmt.Errorf("input[%d] is a %q, which no model here can read", i, it.Type)
		}
	}
	return nil
}
