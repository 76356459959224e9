//go:build soak

package peer_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestComputerConformanceSoak: ten of ten.
func TestComputerConformanceSoak(t *testing.T) {
	conform(t, 10)
}

// TestComputerScreenshotsSoak: 10,000 screenshots of text leave descriptors, clients of the X server and memory as they were after the first hundreds.
func TestComputerScreenshotsSoak(t *testing.T) {
	const shots, settled = 10000, 500
	d := startDesktop(t, true)
	d.text(t)
	driver, x := d.driverPID(t), descendants(t, d.pid)["Xvfb"]
	type held struct{ files, clients, driver, server int }
	now := func() held {
		return held{opened(t, driver), opened(t, x), memory(t, driver, "status", "VmRSS"), memory(t, x, "status", "VmRSS")}
	}
	c := d.caller(t)
	var first held
	began, cpu := time.Now(), time.Duration(0)
	for i := range shots {
		if i == settled {
			first, cpu = now(), ticks(t, driver)
		}
		c.screenshot()
	}
	last := now()
	t.Logf("after %d: %d descriptors, %d of the X server, %.1f and %.1f MB resident; after %d: %d, %d, %.1f and %.1f MB; %.1f ms each, %.1f ms CPU", settled, first.files, first.clients,
		float64(first.driver)/1024, float64(first.server)/1024, shots, last.files, last.clients, float64(last.driver)/1024, float64(last.server)/1024,
		float64(time.Since(began).Milliseconds())/shots, float64((ticks(t, driver)-cpu).Milliseconds())/(shots-settled))
	const some, more = 2, 4 << 10 // connections of this test that come and go; kB
	if last.files > first.files+some || last.clients != first.clients || last.driver > first.driver+more || last.server > first.server+more {
		t.Errorf("%+v became %+v", first, last)
	}
}

// opened counts a process's descriptors.
func opened(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
