package artifactstore_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/artifactstore/removal"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// childVar makes the test binary play a process that another test kills: its value is the part to play. Its arguments are the store's folder and
// another path.
const childVar = "ARTIFACT_TEST_CHILD"

func TestMain(m *testing.M) {
	if part := os.Getenv(childVar); part != "" {
		if err := play(context.Background(), part, os.Args[1], os.Args[2]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is what a process does that is killed.
func play(ctx context.Context, part, root, path string) (err error) {
	s, err := sqlite.Open(root, sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	l, r := artifactstore.New(s), removal.New(s, s.Runs(), step.Kinds())
	switch part {
	case "put":
		_, err = l.Put(ctx, artifactstore.Put{Type: "skill", ID: "@local/x/s", Paths: []string{path}})
	case "get":
		_, err = l.Get(ctx, "@local/x/s", 0, artifactstore.Target{Dir: path})
	case "get-file":
		_, err = l.Get(ctx, "@local/x/f", 0, artifactstore.Target{File: path, Force: true})
	case "delete":
		_, err = r.Delete(ctx, "@local/x/s", 0, false)
	case "prune":
		_, err = r.Prune(ctx, removal.PruneOptions{})
	}
	return err
}
