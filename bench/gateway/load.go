package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// kind is how a tool is called.
type kind int

const (
	viaMCP kind = iota
	viaStep
)

// result is one row: calls per second, milliseconds.
type result struct {
	rate, p50, cpu float64
	failed         bool // calls failed
}

// client is one client, with a connection of its own.
type client struct {
	http    *http.Client
	url     string
	via     kind
	session string
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}`
	initiated  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	mcpCall    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"svc0_ping","arguments":{"text":"hello"}}}`
	stepCall   = `{"action":"call_tool","tool_name":"svc0_ping","arguments":{"text":"hello"}}`
)

func (c *client) post(ctx context.Context, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= 300 {
		return "", fmt.Errorf("HTTP %d: %s", resp.StatusCode, b)
	}
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	return string(b), nil
}

func (c *client) begin(ctx context.Context) error {
	if c.via == viaStep {
		return nil
	}
	if _, err := c.post(ctx, initialize); err != nil {
		return err
	}
	_, err := c.post(ctx, initiated)
	return err
}

func (c *client) call(ctx context.Context) error {
	body := mcpCall
	if c.via == viaStep {
		body = stepCall
	}
	got, err := c.post(ctx, body)
	if err == nil && (!strings.Contains(got, "hello") || strings.Contains(got, `"isError":true`)) {
		err = errors.New("the call failed: " + got)
	}
	return err
}

// drive has so many clients call for so long, and tells how a process did.
func drive(ctx context.Context, p process, url string, via kind, clients int, length time.Duration) (result, error) {
	all := make([]*client, clients)
	for i := range all {
		t := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
		defer t.CloseIdleConnections()
		all[i] = &client{http: &http.Client{Transport: t, Timeout: time.Minute}, url: url, via: via}
		if err := all[i].begin(ctx); err != nil {
			return result{}, err
		}
		for range 3 {
			if err := all[i].call(ctx); err != nil {
				return result{}, err
			}
		}
	}
	took, errs := make([][]time.Duration, clients), make([]error, clients)
	before, err := cpu(p.pid)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			for time.Since(began) < length && errs[i] == nil && ctx.Err() == nil {
				t := time.Now()
				errs[i] = c.call(ctx)
				took[i] = append(took[i], time.Since(t))
			}
		})
	}
	wg.Wait()
	wall := time.Since(began)
	after, err := cpu(p.pid)
	if err := errors.Join(append(errs, err, ctx.Err())...); err != nil {
		return result{}, err
	}
	calls := slices.Concat(took...)
	slices.Sort(calls)
	n := float64(len(calls))
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return result{rate: n / wall.Seconds(), p50: ms(calls[len(calls)/2]), cpu: ms(after-before) / n}, nil
}

// cpu is what a process has used so far, user and system.
func cpu(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2) // USER_HZ is 100
}
