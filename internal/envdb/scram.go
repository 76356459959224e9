package envdb

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// rounds is as many as PostgreSQL takes itself.
const rounds = 4096

// scram is what a server needs to know of a password: it tells who knows it and doesn't tell it.
func scram(password string) (string, error) {
	var salt [16]byte
	_, _ = rand.Read(salt[:]) // it never fails
	return verifier(password, salt[:])
}

func verifier(password string, salt []byte) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, text(salt), text(stored[:]), text(mac("Server Key"))), nil
}

// said is an error of the server or of reaching it, in words that hold neither a password nor a statement.
func said(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		if e.Code == "42501" { // insufficient_privilege
			return fmt.Errorf("%s; the configured user has to be a superuser, or to have CREATEROLE and CREATE on the database", e.Message)
		}
		return fmt.Errorf("%s (%s)", e.Message, e.Code)
	}
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return fmt.Errorf("it doesn't answer at %s:%d, or refuses the configured user", e.Config.Host, e.Config.Port)
	}
	return err
}
