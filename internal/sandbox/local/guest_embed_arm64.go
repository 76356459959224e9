//go:build guest_embed && linux && arm64

package local

import _ "embed"

//go:embed guestbin/agent-env-guest-linux-arm64
var guestProgram []byte
