package requirement

import "agentenv.internal/agentenv/internal/redact"

// Shown is a requirement as messages may show it: in addresses of it, users and passwords are left out.
func Shown(text string) string { return redact.Users(text, "/?# \t\n;'\"") }
