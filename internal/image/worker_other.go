//go:build !linux

package image

import (
	"context"
	"errors"
	"io"

	"agentenv.internal/agentenv/internal/archive"
)

func (o *owners) work(context.Context, *job, io.Reader, *archive.Report) error {
	return errors.ErrUnsupported
}

func (o *owners) removeAll(string) error { return errors.ErrUnsupported }

// Dispatch has no worker to play here.
func Dispatch(context.Context) {}
