package modelproxy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
)

// decoded is what a model answered; nil when that can't be read.
func decoded(x *Exchange) *model.Message {
	switch x.Protocol {
	case serve.Chat, serve.Messages:
		media := "application/json"
		if streamed(x.Response) {
			media = "text/event-stream"
		}
		dialect := model.OpenAI
		if x.Protocol == serve.Messages {
			dialect = model.Anthropic
		}
		if res, err := model.Decode(dialect, media, []byte(x.Response)); err == nil {
			return &res.Message
		}
	case serve.Responses:
		return response(bodies(x.Response))
	case serve.Gemini:
		return gemini(bodies(x.Response))
	}
	return nil
}

// streamed tells whether an answer is a stream of events.
func streamed(answer string) bool {
	return strings.HasPrefix(answer, "data:") || strings.HasPrefix(answer, "event:")
}

// bodies are the documents of an answer: one, those of a stream's events, or those of a list.
func bodies(text string) []json.RawMessage {
	if !streamed(text) {
		var list []json.RawMessage
		if json.Unmarshal([]byte(text), &list) == nil {
			return list
		}
		return []json.RawMessage{json.RawMessage(text)}
	}
	var out []json.RawMessage
	for line := range strings.SplitSeq(text, "\n") {
		if d, ok := strings.CutPrefix(strings.TrimRight(line, "\r"), "data:"); ok {
			out = append(out, json.RawMessage(strings.TrimSpace(d)))
		}
	}
	return out
}

type responseItem struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Args    string `json:"arguments"`
	Input   string `json:"input"` // of a custom tool, which takes a text
	Content []struct {
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	Summary []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

// response reads the items of an answer of OpenAI's responses: those of the whole one, or, of a stream that broke off, those that had ended.
func response(docs []json.RawMessage) *model.Message {
	var items, ended []responseItem
	for _, d := range docs {
		var in struct {
			Output   []responseItem `json:"output"`
			Item     *responseItem  `json:"item"`
			Type     string         `json:"type"`
			Response struct {
				Output []responseItem `json:"output"`
			} `json:"response"`
		}
		if json.Unmarshal(d, &in) != nil {
			continue
		}
		if in.Type == "response.output_item.done" && in.Item != nil {
			ended = append(ended, *in.Item)
		}
		if list := append(in.Output, in.Response.Output...); len(list) > 0 {
			items = list
		}
	}
	if items == nil {
		items = ended
	}
	if items == nil {
		return nil
	}
	m := &model.Message{Role: model.Assistant}
	var text, thought strings.Builder
	for _, i := range items {
		switch i.Type {
		case "message":
			for _, c := range i.Content {
				text.WriteString(cmp.Or(c.Text, c.Refusal))
			}
		case "reasoning":
			for _, s := range i.Summary {
				thought.WriteString(s.Text)
			}
		case "function_call":
			m.Calls = append(m.Calls, callOf(cmp.Or(i.CallID, i.ID), i.Name, i.Args))
		case "custom_tool_call":
			args, _ := json.Marshal(map[string]string{"input": i.Input}) // texts: it can't fail
			m.Calls = append(m.Calls, callOf(cmp.Or(i.CallID, i.ID), i.Name, string(args)))
		}
	}
	return said(m, text.String(), thought.String())
}

// gemini reads the parts of an answer of Gemini. Calls without ids get those that serve gives them in the request that follows.
func gemini(docs []json.RawMessage) *model.Message {
	m := &model.Message{Role: model.Assistant}
	var text, thought strings.Builder
	read := false
	for _, d := range docs {
		var in struct {
			Candidates []struct {
				Content struct {
					Parts []struct {
						Text    string `json:"text"`
						Thought bool   `json:"thought"`
						Call    *struct {
							ID   string          `json:"id"`
							Name string          `json:"name"`
							Args json.RawMessage `json:"args"`
						} `json:"functionCall"`
					} `json:"parts"`
				} `json:"content"`
			} `json:"candidates"`
		}
		if json.Unmarshal(d, &in) != nil || len(in.Candidates) == 0 {
			continue
		}
		read = true
		for _, p := range in.Candidates[0].Content.Parts {
			switch {
			case p.Call != nil:
				m.Calls = append(m.Calls, callOf(cmp.Or(p.Call.ID, fmt.Sprint("call_", len(m.Calls)+1)), p.Call.Name, string(p.Call.Args)))
			case p.Thought:
				thought.WriteString(p.Text)
			default:
				text.WriteString(p.Text)
			}
		}
	}
	if !read {
		return nil
	}
	return said(m, text.String(), thought.String())
}

func said(m *model.Message, text, thought string) *model.Message {
	m.Reasoning = thought
	if text != "" {
		m.Parts = []model.Part{{Text: text}}
	}
	return m
}

// callOf is a call whose arguments are an object, or none and what they were.
func callOf(id, name, args string) model.ToolCall {
	c := model.ToolCall{ID: id, Name: name, Args: json.RawMessage(`{}`)}
	var o map[string]json.RawMessage
	switch {
	case json.Unmarshal([]byte(args), &o) == nil && o != nil:
		c.Args = json.RawMessage(args)
	case args != "":
		c.Malformed = args
	}
	return c
}
