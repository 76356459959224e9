package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// askConsole is `get URL [TOKEN]`: the status and the body that a server answers, which may still be starting.
func askConsole(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: get URL [TOKEN]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
		ts.Check(err)
		if len(args) == 2 {
			req.Header.Set("Authorization", "Bearer "+args[1])
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			ts.Check(err)
			fmt.Fprintf(ts.Stdout(), "%d %s", res.StatusCode, b)
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%s: %v", args[0], err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
