//go:build guest_embed && linux && amd64

package local

import _ "embed"

//go:embed guestbin/agent-env-guest-linux-amd64
var guestProgram []byte
