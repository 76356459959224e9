//go:build !linux

package sqlite

import "os"

// place names the machine alone: what a boot or a namespace is, other systems don't say.
func place() string {
	host, _ := os.Hostname()
	return host
}

func startTime(int) (int64, bool) { return 0, true }
