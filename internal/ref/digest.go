// Package ref holds the names of stored things: local ids and their rules, versions, and content digests. It reads no file and knows no store.
package ref

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
)

// Digest is the content digest of bytes, spelled "sha256:" and 64 lower-case hex digits.
type Digest string

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// DigestSum spells the digest that h, a sha256, has reached.
func DigestSum(h hash.Hash) Digest { return Digest("sha256:" + hex.EncodeToString(h.Sum(nil))) }

// Valid tells whether d is spelled as a digest.
func (d Digest) Valid() bool {
	h, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(h) != 64 {
		return false
	}
	for _, c := range []byte(h) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Hex is the 64 digits without the prefix.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }
