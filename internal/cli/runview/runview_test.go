package runview

import "testing"

func TestCancellingTellsOfSandboxesThatThereAre(t *testing.T) {
	for n, want := range map[int]string{
		0: "Cancelling (Ctrl-C again to stop now)",
		1: "Cancelling: taking down 1 sandbox (Ctrl-C again to stop now)",
		2: "Cancelling: taking down 2 sandboxes (Ctrl-C again to stop now)",
	} {
		if got := cancelling(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
