package app

import "time"

// SetGrace sets how long the app may take from SIGTERM to SIGKILL.
func (s *Server) SetGrace(d time.Duration) { s.grace = d }
