//go:build integration && linux

package cli_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// deskImage is the engine's image of the root that desktops run in.
const deskImage = "agentenv-test-desk:1"

// TestDesktopImages runs testdata/desktopimage: computers in an image, a Debian root with an X server, on local sandboxes and on an engine.
func TestDesktopImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes the image")
	}
	root, err := sandboxtest.Desk(t.Context())
	if err == nil {
		err = exec.CommandContext(t.Context(), "docker", "import", root, deskImage).Run()
	}
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { // an image that is gone needs none
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "rmi", "-f", deskImage).Run()
	})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/desktopimage", RequireExplicitExec: true, RequireUniqueNames: true, Condition: condition,
		Setup: func(e *testscript.Env) error {
			e.Setenv("ROOT", root)
			e.Setenv("DESK_IMAGE", deskImage)
			e.Setenv("DOCKER_HOST", os.Getenv("DOCKER_HOST"))
			return setup(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "json": jsonAt, "containers": containers},
	})
}
