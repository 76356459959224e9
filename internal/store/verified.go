package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"agentenv.internal/agentenv/internal/ref"
)

// OpenVerified is an object's bytes as a stream whose digest is checked on the way: the read that would answer io.EOF answers ErrCorrupt when
// the bytes are not those that d names. The caller closes it.
func OpenVerified(ctx context.Context, o Objects, d ref.Digest) (io.ReadCloser, int64, error) {
	f, size, err := o.Open(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	return &verified{f, sha256.New(), d}, size, nil
}

type verified struct {
	io.ReadCloser
	h    hash.Hash
	want ref.Digest
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.h.Write(p[:n])
	if err == io.EOF && ref.DigestSum(v.h) != v.want {
		return n, fmt.Errorf("object %s: %w", v.want, ErrCorrupt)
	}
	return n, err
}
