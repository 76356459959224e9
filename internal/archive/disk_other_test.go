//go:build !linux

package archive

import "testing"

func smallDisk(t *testing.T, _ string) string {
	t.Helper()
	t.Skip("needs Linux to mount a small file system")
	return ""
}
