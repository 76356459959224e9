package bundlerun

import "agentenv.internal/agentenv/internal/ledger"

// Sum is the summary of runs that another process drove: nothing was written for them here, and nothing is left to take down.
func Sum(bundle, group string, runs ...RunResult) Summary {
	s := Summary{Bundle: bundle, Group: group, Writes: []ledger.Line{}, Runs: runs}
	s.sum()
	return s
}
