package app

import "agentenv.internal/agentenv/internal/plugin/pyhost"

// Version is the program's own, by Semantic Versioning.
const Version = "0.1.0"

// What the program counts as when a bundle or a plugin requires these two distributions.
const (
	FrameworkVersion = pyhost.FrameworkVersion
	ProtocolVersion  = pyhost.ProtocolVersion
)
