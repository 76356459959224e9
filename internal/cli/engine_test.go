package cli_test

import (
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/sandbox/docker/enginetest"
)

// serveEngine is `engine MESSAGE`: an engine at $DOCKER_HOST that has the image "there" and answers every start of a container with the message.
func serveEngine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: engine MESSAGE")
	}
	socket := filepath.Join(ts.Getenv("WORK"), "e")
	e, err := enginetest.Listen(socket)
	ts.Check(err)
	ts.Defer(e.Close)
	e.Fail("POST /containers/.*/start", enginetest.Answering(500, args[0]))
	e.Fail("POST /images/create", enginetest.Answering(404, "pull access denied"))
	ts.Setenv("DOCKER_HOST", "unix://"+socket)
}
