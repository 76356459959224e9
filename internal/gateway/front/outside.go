package front

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// SecretPrefix is what the path of a door outside sandboxes begins with; the secret follows.
const SecretPrefix = "/c/"

// NewSecret makes a secret for a door outside.
func NewSecret() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // it can't fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}

var secretGrammar = lazyregexp.New(`^[A-Za-z0-9_-]{22,200}$`)

// CheckSecret refuses what can be guessed, or can't stand in a path.
func CheckSecret(s string) error {
	if !secretGrammar().MatchString(s) {
		return fmt.Errorf("a secret has 22 to 200 letters, digits, - and _")
	}
	return nil
}

// Outside serves doors to the host, each below /c/<secret>: whoever knows the secret is the door's principal. Everything else is not found, whether the
// secret or the path is wrong.
func Outside(doors map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, SecretPrefix)
		given, path, _ := strings.Cut(rest, "/")
		var door http.Handler
		for secret, h := range doors { // all of them, so that time tells nothing
			if subtle.ConstantTimeCompare([]byte(secret), []byte(given)) == 1 {
				door = h
			}
		}
		if !ok || door == nil {
			proxy.Error(w, http.StatusNotFound, "Not Found")
			return
		}
		inner := new(http.Request)
		*inner = *r
		inner.URL = new(url.URL)
		*inner.URL = *r.URL
		inner.URL.Path = "/" + path
		inner.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, SecretPrefix+given)
		door.ServeHTTP(w, inner)
	})
}
