package toolcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/sdk/wire"
)

// Client is one MCP session with an environment's gateway. Close ends it.
type Client struct{ child *child.Child }

// Dial begins a session at a gateway's base URL. It doesn't wait: the first call does.
func Dial(ctx context.Context, base string) (*Client, error) {
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s is no URL of an environment's gateway", URLVariable)
	}
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), wire.MCPPath)
	c := child.New(child.Options{Name: "gateway", URL: base})
	c.Start(ctx)
	return &Client{c}, nil
}

// Close ends the session.
func (c *Client) Close() { c.child.Close() }

// Call calls a tool and answers its CallToolResult.
func (c *Client) Call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	a, err := c.child.CallTool(ctx, tool, arguments)
	if err != nil {
		return nil, told(err)
	}
	defer a.Close()
	if !a.Error.None() {
		text, _ := rawjson.Text(rawjson.Get(a.Error.Memory(), "message"))
		return nil, errors.New("the environment refused the call: " + lines(text))
	}
	var out bytes.Buffer
	_, err = a.Result.WriteTo(&out)
	return out.Bytes(), err
}

// listPause is how long is waited between two looks whether the tools have come.
const listPause = 5 * time.Millisecond

// Tools asks for the tools that there are now: others than when the command was made may be shown to its role.
func (c *Client) Tools(ctx context.Context) ([]json.RawMessage, error) {
	a, err := c.child.Call(ctx, "ping", func(_ uint64, b []byte) []byte { return append(b, "{}"...) }, nil, nil)
	if err != nil {
		return nil, told(err)
	}
	a.Close()
	for !c.child.Status().Listed {
		t := time.NewTimer(listPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
	var out []json.RawMessage
	for _, e := range c.child.Tools() {
		out = append(out, e)
	}
	return out, nil
}

func told(err error) error { return fmt.Errorf("the environment %w", err) }

// Result is what is read of a tool's result.
type Result struct {
	Content []struct{ Type, Text, URI, MimeType string } `json:"content"`
	IsError bool                                         `json:"isError"`
}

// ReadResult reads a CallToolResult.
func ReadResult(raw json.RawMessage) (Result, error) {
	var r Result
	if json.Unmarshal(raw, &r) != nil || r.Content == nil {
		return r, errors.New("the server's answer is no result of a tool: it has no list of content; --json shows it")
	}
	return r, nil
}
