package sandbox_test

import (
	"math"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox"
)

func TestCheckLimits(t *testing.T) {
	for name, c := range map[string]struct {
		spec sandbox.Spec
		ok   bool
	}{
		"none":                 {sandbox.Spec{}, true},
		"usual":                {sandbox.Spec{CPU: 1.5, MemoryMB: 512, DiskMB: 1024, Pids: 64, Lease: 60e9}, true},
		"the most":             {sandbox.Spec{CPU: sandbox.MaxCPU, MemoryMB: sandbox.MaxMB, DiskMB: sandbox.MaxMB}, true},
		"not a number":         {sandbox.Spec{CPU: math.NaN()}, false},
		"no end of cores":      {sandbox.Spec{CPU: math.Inf(1)}, false},
		"too many cores":       {sandbox.Spec{CPU: 1e300}, false},
		"fewer than none":      {sandbox.Spec{CPU: -1}, false},
		"uncountable memory":   {sandbox.Spec{MemoryMB: math.MaxInt64 >> 1}, false},
		"negative memory":      {sandbox.Spec{MemoryMB: -1}, false},
		"uncountable disk":     {sandbox.Spec{DiskMB: sandbox.MaxMB + 1}, false},
		"negative disk":        {sandbox.Spec{DiskMB: math.MinInt64}, false},
		"negative processes":   {sandbox.Spec{Pids: -7}, false},
		"too many processes":   {sandbox.Spec{Pids: sandbox.MaxPids + 1}, false},
		"the most processes":   {sandbox.Spec{Pids: sandbox.MaxPids}, true},
		"no lease to speak of": {sandbox.Spec{Lease: 1}, false},
		"the least lease":      {sandbox.Spec{Lease: sandbox.MinLease}, true},
		"negative lease":       {sandbox.Spec{Lease: -1}, false},
	} {
		if err := c.spec.CheckLimits(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"", "try", "my box", "Ünïcode 箱", "a.b_c-d", "b123456789", strings.Repeat("n", 255)} {
		if err := sandbox.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		".", "..", "-x", "a:b", "a/b", "../../etc", " x", "x ", "a\nb", "a\x1b[31mb", "a\xff", "a\u202eb", "a\u200bb", "\x00", strings.Repeat("n", 256),
	} {
		if sandbox.CheckName(name) == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
