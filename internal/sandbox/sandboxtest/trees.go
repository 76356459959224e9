package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ShareTrees lets the local provider of a state root, which is made, have its copies of the host's folders in one place with all tests of
// this user, also of later runs: such a copy has a thousand files, and each state root would make its own. Their keys say what is inside,
// and their locks hold between processes, so that the tests share nothing else.
func ShareTrees(stateRoot string) error {
	shared := filepath.Join(os.TempDir(), fmt.Sprintf("agentenv-test-trees-%d", os.Geteuid()))
	if err := errors.Join(os.MkdirAll(shared, 0o700), os.MkdirAll(stateRoot, 0o700)); err != nil {
		return err
	}
	return os.Symlink(shared, filepath.Join(stateRoot, "trees"))
}
