package env

import (
	"context"
	"errors"
	"io"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

// Namespace is leave to upload objects of an export. Its uploads run one at a time.
type Namespace struct {
	Grant wire.WriteNamespace
	to    *transfer.Namespace
}

// Upload writes an object below the grant's root, and answers the part that data/get returns for it. path is relative and without dot
// segments; media "" is application/octet-stream; content is read from its beginning, and again for another attempt. Failures are
// *Failure with a code of transfers.
func (n *Namespace) Upload(ctx context.Context, path, media, name string, content io.ReadSeeker) (wire.Part, error) {
	part, err := wire.UploadPart(path, media, name)
	if err != nil {
		return wire.Part{}, Fail(wire.CodeInvalidTransfer, "upload an export: %v", err)
	}
	err = n.to.Upload(ctx, path, media, content)
	if e, ok := errors.AsType[*transfer.Error](err); ok {
		f := &Failure{e.Failure, e.Status}
		f.Message = "upload an export: " + f.Message
		return wire.Part{}, f
	}
	return part, err
}
