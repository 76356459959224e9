package wire

import (
	"encoding/json"
	"strings"
)

// Applied says whether a failed operation changed something.
type Applied string

// Values of Applied.
const (
	AppliedYes     Applied = "yes"
	AppliedNo      Applied = "no"
	AppliedUnknown Applied = "unknown"
)

// Codes of failures that this package's users share.
const (
	CodeInvalidParams    = "invalid_params"
	CodeExtensionFailed  = "extension_failed"
	CodePermissionDenied = "permission_denied"

	CodeInvalidTransfer     = "invalid_transfer"
	CodeGrantExpired        = "grant_expired"
	CodeTransferTooLarge    = "transfer_too_large"
	CodeIntegrityMismatch   = "integrity_mismatch"
	CodeTransferRejected    = "transfer_rejected"
	CodeTransferUnavailable = "transfer_unavailable"
	CodeTransferTimeout     = "transfer_timeout"
)

// Failure is a failure that says what a caller may do about it. Tools answer it as structured content, extensions as the body
// {"ok":false,"error":{…}}. It is an error.
type Failure struct {
	Code      string // "" when the other side told none
	Message   string
	Retryable bool
	Applied   Applied
	Hint      string // what to do, for whoever called; may be ""
}

// Error is "<code>: <message>", as tools show it.
func (f *Failure) Error() string {
	if f.Code == "" {
		return f.Message
	}
	return f.Code + ": " + f.Message
}

// MayRetry tells whether repeating the call by itself is safe.
func (f *Failure) MayRetry() bool { return f.Retryable && f.Applied == AppliedNo }

// MarshalJSON writes the failure's own object, as structured content and the error member of a body hold it.
func (f Failure) MarshalJSON() ([]byte, error) {
	var w writer
	w.put("code", f.Code)
	w.put("message", f.Message)
	w.put("retryable", f.Retryable)
	if f.Applied == "" {
		f.Applied = AppliedUnknown
	}
	w.put("applied", string(f.Applied))
	w.some("hint", f.Hint)
	return w.bytes()
}

// Body is {"ok":false,"error":{…}}.
func (f Failure) Body() []byte {
	var w writer
	w.put("ok", false)
	w.put("error", f)
	b, _ := w.bytes() // texts and booleans always encode
	return b
}

// ReadFailure reads the body of a failed call. Whatever it doesn't find counts as not told: no code, not retryable, applied unknown. It fails
// never, since bodies of failures may be anything.
func ReadFailure(body []byte) Failure {
	f := Failure{Applied: AppliedUnknown}
	ms, err := parseObject(body)
	if err != nil {
		return f
	}
	for _, m := range ms {
		if m.name == "error" {
			var text string
			if json.Unmarshal(m.value, &text) == nil && !isNull(m.value) {
				f.Message = text
				return f
			}
			return readFailure(m.value)
		}
	}
	return f
}

// ReadStructured reads a failure from a tool's structured content.
func ReadStructured(raw json.RawMessage) Failure { return readFailure(raw) }

func readFailure(raw json.RawMessage) Failure {
	f := Failure{Applied: AppliedUnknown}
	ms, err := parseObject(raw)
	if err != nil {
		return f
	}
	for _, m := range ms {
		if isNull(m.value) {
			continue
		}
		var s string
		var b bool
		switch m.name {
		case "code":
			if json.Unmarshal(m.value, &s) == nil {
				f.Code = s
			}
		case "message":
			if json.Unmarshal(m.value, &s) == nil {
				f.Message = s
			}
		case "hint":
			if json.Unmarshal(m.value, &s) == nil {
				f.Hint = s
			}
		case "retryable":
			if json.Unmarshal(m.value, &b) == nil {
				f.Retryable = b
			}
		case "applied":
			if json.Unmarshal(m.value, &s) == nil && (Applied(s) == AppliedYes || Applied(s) == AppliedNo) {
				f.Applied = Applied(s)
			}
		}
	}
	return f
}

// Quotable tells whether a code of the other side may be shown although the call carried grants: a lower-case word of at most 64 characters.
func Quotable(code string) bool {
	return code != "" && len(code) <= 64 && code[0] >= 'a' && code[0] <= 'z' && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
