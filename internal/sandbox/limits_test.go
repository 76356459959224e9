package sandbox_test

import (
	"math"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox"
)

func TestCheckLimits(t *testing.T) {
	for name, c := range map[string]struct {
		spec sandbox.Spec
		ok   bool
	}{
		"none":               {sandbox.Spec{}, true},
		"usual":              {sandbox.Spec{CPU: 1.5, MemoryMB: 512, DiskMB: 1024, Pids: 64, Lease: 60e9}, true},
		"the most":           {sandbox.Spec{CPU: sandbox.MaxCPU, MemoryMB: sandbox.MaxMB, DiskMB: sandbox.MaxMB}, true},
		"not a number":       {sandbox.Spec{CPU: math.NaN()}, false},
		"no end of cores":    {sandbox.Spec{CPU: math.Inf(1)}, false},
		"too many cores":     {sandbox.Spec{CPU: 1e300}, false},
		"fewer than none":    {sandbox.Spec{CPU: -1}, false},
		"uncountable memory": {sandbox.Spec{MemoryMB: math.MaxInt64 >> 1}, false},
		"negative memory":    {sandbox.Spec{MemoryMB: -1}, false},
		"uncountable disk":   {sandbox.Spec{DiskMB: sandbox.MaxMB + 1}, false},
		"negative disk":      {sandbox.Spec{DiskMB: math.MinInt64}, false},
		"negative processes": {sandbox.Spec{Pids: -7}, false},
		"negative lease":     {sandbox.Spec{Lease: -1}, false},
	} {
		if err := c.spec.CheckLimits(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
