//go:build !linux

package atomicfile

import "testing"

func smallDisk(t *testing.T, _ string) string {
	t.Helper()
	t.Skip("needs Linux to mount a small file system")
	return ""
}

func readOnly(t *testing.T, _ string) {
	t.Helper()
	t.Skip("needs Linux to mount a folder read-only")
}
