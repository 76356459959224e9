package computer

import (
	"context"
	"errors"
	"net/http"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// Code is a word for what went wrong; each has a status, and says whether something may have been applied and whether the same call may work later.
type Code string

// Codes of a computer.
const (
	InvalidArgument       Code = "invalid_argument"
	OutOfBounds           Code = "out_of_bounds"
	StaleFrame            Code = "stale_frame"
	InputBusy             Code = "input_busy"
	PermissionDenied      Code = "permission_denied"
	Unsupported           Code = "unsupported"
	BackgroundUnavailable Code = "background_unavailable"
	DeviceUnavailable     Code = "device_unavailable"
	LimitExceeded         Code = "limit_exceeded"
	Timeout               Code = "timeout"
	DeliveryFailed        Code = "delivery_failed"
	Internal              Code = "internal"
	TargetUnavailable     Code = "target_unavailable"
)

// Fail is a failure of a code, with what people should know. Drivers return it for what they refuse.
func Fail(code Code, format string, args ...any) *env.Failure {
	f := env.Fail(string(code), format, args...)
	switch code {
	case InvalidArgument, OutOfBounds:
		return f.WithStatus(http.StatusBadRequest)
	case StaleFrame, InputBusy:
		return f.WithStatus(http.StatusConflict).Retry()
	case PermissionDenied:
		return f.WithStatus(http.StatusForbidden)
	case Unsupported, BackgroundUnavailable:
		return f.WithStatus(http.StatusNotImplemented)
	case DeviceUnavailable:
		return f.WithStatus(http.StatusServiceUnavailable).Retry()
	case LimitExceeded:
		return f.WithStatus(http.StatusTooManyRequests).Retry()
	case TargetUnavailable:
		return f.WithStatus(http.StatusNotFound)
	case Timeout:
		return f.WithStatus(http.StatusGatewayTimeout).WithApplied(wire.AppliedUnknown)
	case DeliveryFailed:
		return f.WithStatus(http.StatusBadGateway).WithApplied(wire.AppliedUnknown)
	case Internal:
	}
	return f.WithStatus(http.StatusInternalServerError).WithApplied(wire.AppliedUnknown)
}

// coded gives an error of a driver a code, unless it has one or is the caller's leaving.
func coded(ctx context.Context, code Code, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*env.Failure](err); ok {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return Fail(code, "%v", err)
}

// appliedUnknown is a copy of a failure after something was sent.
func appliedUnknown(err error) error {
	f, ok := errors.AsType[*env.Failure](err)
	if !ok {
		return err
	}
	g := *f
	return g.WithApplied(wire.AppliedUnknown)
}
