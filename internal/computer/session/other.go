//go:build !linux

package session

import (
	"context"
	"errors"
)

func elsewhere() error { return errors.New("sessions need Linux") }

// Run needs Linux.
func Run(context.Context, Config) error { return elsewhere() }

// RunAs needs Linux.
func RunAs(context.Context, string, Config) error { return elsewhere() }
