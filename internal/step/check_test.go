package step

import (
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

func check(s *doc.Schema, n doc.Node) diag.List {
	var l diag.List
	s.Check(n, "", &l)
	return l
}
