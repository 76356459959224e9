package model

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kinds of failure.
const (
	RateLimited = "rate_limited" // 429
	Overloaded  = "overloaded"   // 5xx, 408, 409, 425
	Unreachable = "unreachable"  // no connection, or it broke before an answer began
	Cut         = "cut"          // the answer's stream ended before its end
	TimedOut    = "timed_out"    // the endpoint did not answer in time
	Denied      = "denied"       // 401, 403: the key
	Spent       = "spent"        // 402, or another refusal that tells of a quota or a balance: the key has nothing left
	NoModel     = "no_model"     // 404: the address or the model's name
	TooLong     = "too_long"     // the conversation is beyond the model's context
	Invalid     = "invalid"      // another 4xx: what was asked
	Malformed   = "malformed"    // the answer is not of the dialect
)

// Error is why a model did not answer. Its text holds no key and no body but the endpoint's own message, shortened.
type Error struct {
	Kind    string
	Status  int    // of HTTP; 0 without an answer
	Message string // what the endpoint said
	Tries   int
	// RetryAfter is how long the endpoint asked to wait.
	RetryAfter time.Duration
	// Lasting tells that every later request meets the same until somebody does something: the key is refused or has nothing left, or nobody
	// has reached the endpoint for as long as a Client waits.
	Lasting bool
	Err     error // underlying; nil when the endpoint answered
}

// Lasts tells whether err will be met by every later request too. What to do is in the text.
func (e *Error) Lasts() bool { return e.Lasting }

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model endpoint: %s", strings.ReplaceAll(e.Kind, "_", " "))
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	} else if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Tries > 1 {
		fmt.Fprintf(&b, " (tried %d times)", e.Tries)
	}
	switch {
	case e.Kind == Spent:
		b.WriteString("; what the key may use is used up: raise its limit or pay its bill, or set another model.api_key")
	case e.Kind == Denied && e.Status == http.StatusUnauthorized:
		b.WriteString("; set a valid model.api_key")
	case e.Kind == Unreachable && e.Lasting:
		b.WriteString("; see that model.base_url is right and the endpoint is up")
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Infra tells whether err is the endpoint's fault and not that of what it was asked: a run that meets it has no score.
func Infra(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind != TooLong && e.Kind != Invalid
}

// again tells whether the same request may succeed later.
func (e *Error) again() bool {
	switch e.Kind {
	case RateLimited, Overloaded, Unreachable, Cut, TimedOut, Malformed:
		return true
	}
	return false
}

// maxMessage bounds what is kept of an endpoint's own words.
const maxMessage = 500

// Refusal is the failure that an answer's status and body stand for.
func Refusal(status int, body []byte, h http.Header) *Error {
	return statusError(status, said(body), h)
}

// lasting tells whether the endpoint will refuse the next request too.
func (e *Error) lasting() bool {
	return e.Kind == Spent || e.Kind == Denied && e.Status == http.StatusUnauthorized
}

// Judge fills in Lasting of a failure that an endpoint answered; named tells that a task chose the endpoint.
func (e *Error) Judge(named bool) *Error {
	e.Lasting = e.lasting() && !named
	return e
}

// statusError is the failure that a status and a message stand for.
func statusError(status int, message string, h http.Header) *Error {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	e := &Error{Status: status, Message: message, RetryAfter: wait(h.Get("Retry-After"))}
	switch {
	case status == http.StatusPaymentRequired, spent(status, message):
		e.Kind = Spent
	case status == http.StatusTooManyRequests:
		e.Kind = RateLimited
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		e.Kind = Overloaded
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Kind = Denied
	case status == http.StatusNotFound:
		e.Kind = NoModel
	case status == http.StatusRequestEntityTooLarge, tooLong(message):
		e.Kind = TooLong
	default:
		e.Kind = Invalid
	}
	return e
}

// tooLong recognises the texts by which endpoints tell that a conversation does not fit: none has a status of its own for it.
func tooLong(message string) bool {
	m := strings.ToLower(message)
	for _, s := range []string{"context_length_exceeded", "context length", "context window", "prompt is too long", "too many tokens", "maximum context"} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

// spent recognises the texts by which endpoints tell that a key has nothing left: they come as 400, 403 and 429, and a rate limit is a 429 too.
// Of a 400, which may repeat what it was asked, few are believed.
func spent(status int, message string) bool {
	texts := []string{"credit balance is too low", "budget has been exceeded", "billing_hard_limit", "billing hard limit"}
	switch status {
	case http.StatusBadRequest:
	case http.StatusForbidden, http.StatusTooManyRequests:
		texts = append(texts, "insufficient_quota", "exceeded your current quota", "insufficient credits", "insufficient balance", "insufficient_balance",
			"budget_exceeded", "exceededbudget", "out of credits")
	default:
		return false
	}
	m := strings.ToLower(message)
	for _, s := range texts {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

// wait reads a Retry-After header: seconds or a date. 0 when there is none.
func wait(header string) time.Duration {
	if header == "" {
		return 0
	}
	if d, err := time.ParseDuration(header + "s"); err == nil && d >= 0 {
		return d
	}
	if t, err := http.ParseTime(header); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
