package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type ping struct {
	Text string `json:"text"`
}

// serve is the environment behind the gateways: a tool <name>_ping that gives its text back, a card, and /ready. It reads MCP_HOST, MCP_PORT and ENVIRONMENT_NAME.
func serve() error {
	name := os.Getenv("ENVIRONMENT_NAME")
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: name + "_ping", Description: "Give the text back."},
		func(_ context.Context, _ *mcp.CallToolRequest, in ping) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{JSONResponse: true, DisableLocalhostProtection: true})
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	mux.HandleFunc("/.well-known/agent-env.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":%q,"protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","capabilities":{"extensions":[]}}`, name)
	})
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"ok":true}`) })
	srv := &http.Server{Addr: net.JoinHostPort(os.Getenv("MCP_HOST"), os.Getenv("MCP_PORT")), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return srv.ListenAndServe()
}
