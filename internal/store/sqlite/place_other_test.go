//go:build !linux

package sqlite_test

import (
	"context"
	"errors"
)

var errNoNamespaces = errors.New("needs namespaces")

func partReadOnly(context.Context, []string) error { return errNoNamespaces }

func partFull(context.Context, []string) error { return errNoNamespaces }

func partNearlyFull(context.Context, []string) error { return errNoNamespaces }
