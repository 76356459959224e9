package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"agentenv.internal/agentenv/internal/model"
)

var geminiStops = map[string]string{model.StopEnd: "STOP", model.StopTools: "STOP", model.StopLength: "MAX_TOKENS", model.StopRefusal: "SAFETY"}

func geminiParts(r *model.Response) []any {
	parts := []any{}
	if r.Message.Reasoning != "" {
		parts = append(parts, map[string]any{"text": r.Message.Reasoning, "thought": true})
	}
	if t := r.Message.Text(); t != "" {
		parts = append(parts, map[string]any{"text": t})
	}
	for _, c := range r.Message.Calls {
		parts = append(parts, map[string]any{"functionCall": map[string]any{"id": c.ID, "name": c.Name, "args": c.Args}})
	}
	return parts
}

func geminiOf(name string, r *model.Response, parts []any, last bool, f form) map[string]any {
	c := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	out := map[string]any{"modelVersion": name, "responseId": f.id("resp_"), "candidates": []any{c}}
	if last {
		if s, ok := geminiStops[r.Stop]; ok {
			c["finishReason"] = s
		}
		out["usageMetadata"] = map[string]any{
			"promptTokenCount": r.Usage.Input, "candidatesTokenCount": r.Usage.Output, "totalTokenCount": r.Usage.Input + r.Usage.Output,
			"cachedContentTokenCount": r.Usage.Cached,
		}
	}
	return out
}

func geminiEvents(name string, r *model.Response, f form) []string {
	var out []string
	parts := geminiParts(r)
	for i, p := range parts {
		out = append(out, data(geminiOf(name, r, []any{p}, i == len(parts)-1, f)))
	}
	if len(parts) == 0 {
		out = append(out, data(geminiOf(name, r, parts, true, f)))
	}
	return out
}

type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text       string `json:"text"`
		Thought    bool   `json:"thought"`
		InlineData *struct {
			MimeType string `json:"mimeType"`
			Data     []byte `json:"data"`
		} `json:"inlineData"`
		FunctionCall *struct {
			ID   string          `json:"id"`
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"functionCall"`
		FunctionResponse *struct {
			ID       string          `json:"id"`
			Name     string          `json:"name"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

func (q *Question) gemini(body []byte) error {
	var in struct {
		System   *geminiContent  `json:"systemInstruction"`
		Contents []geminiContent `json:"contents"`
		Tools    []struct {
			Functions []struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
				Schema      json.RawMessage `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			MaxOutputTokens int             `json:"maxOutputTokens"`
			Temperature     *float64        `json:"temperature"`
			Schema          json.RawMessage `json:"responseJsonSchema"`
			Candidates      int             `json:"candidateCount"`
		} `json:"generationConfig"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return errors.New("the request is no JSON of generateContent")
	}
	if in.Config.Candidates > 1 {
		return errors.New("candidateCount is more than 1, and one answer is what there is")
	}
	r := &q.Request
	r.MaxTokens, r.Temperature, r.Schema = in.Config.MaxOutputTokens, in.Config.Temperature, in.Config.Schema
	if in.System != nil {
		for _, p := range in.System.Parts {
			r.System = join(r.System, p.Text)
		}
	}
	g := geminiReader{r: r}
	for i, c := range in.Contents {
		if err := g.content(&c); err != nil {
			return fmt.Errorf("contents[%d]: %w", i, err)
		}
	}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			schema := f.Schema
			if len(schema) == 0 {
				schema = f.Parameters
			}
			r.Tools = append(r.Tools, model.Tool{Name: f.Name, Description: f.Description, Schema: schemaOf(schema)})
		}
	}
	return nil
}

// geminiReader gives calls ids where they have none, and results those of the oldest call of their name that waits for one.
type geminiReader struct {
	r       *model.Request
	n       int
	waiting []model.ToolCall
}

func (g *geminiReader) content(c *geminiContent) error {
	m := model.Message{Role: model.User}
	switch c.Role {
	case "model":
		m.Role = model.Assistant
	case "user", "function", "":
	default:
		return fmt.Errorf("it has the role %q", c.Role)
	}
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil:
			g.n++
			id := p.FunctionCall.ID
			if id == "" {
				id = "call_" + strconv.Itoa(g.n)
			}
			call := callOf(id, p.FunctionCall.Name, string(p.FunctionCall.Args))
			m.Calls = append(m.Calls, call)
			g.waiting = append(g.waiting, call)
		case p.FunctionResponse != nil:
			f := p.FunctionResponse
			id := f.ID
			i := slices.IndexFunc(g.waiting, func(w model.ToolCall) bool { return f.ID != "" && w.ID == f.ID || f.ID == "" && w.Name == f.Name })
			if i >= 0 {
				id = g.waiting[i].ID
				g.waiting = slices.Delete(g.waiting, i, i+1)
			}
			g.r.Messages = append(g.r.Messages, model.Message{Role: model.ToolRole, CallID: id, Parts: []model.Part{{Text: responseText(f.Response)}}})
		case p.InlineData != nil:
			m.Parts = append(m.Parts, model.Part{Media: p.InlineData.MimeType, Data: p.InlineData.Data})
		case p.Thought:
		case p.Text != "":
			m.Parts = append(m.Parts, model.Part{Text: p.Text})
		}
	}
	if len(m.Parts) > 0 || len(m.Calls) > 0 {
		g.r.Messages = append(g.r.Messages, m)
	}
	return nil
}

// responseText is what a tool said: the output alone where its client wrapped it.
func responseText(raw json.RawMessage) string {
	var in map[string]json.RawMessage
	if json.Unmarshal(raw, &in) == nil && len(in) == 1 {
		for _, k := range []string{"output", "result", "error"} {
			var s string
			if v, ok := in[k]; ok && json.Unmarshal(v, &s) == nil {
				return s
			}
		}
	}
	return string(raw)
}
