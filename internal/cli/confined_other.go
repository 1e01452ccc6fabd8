//go:build !linux

package cli

import (
	"context"

	"bailey/internal/localapi/apitype"
)

// EscapeChecks returns nil, because this platform has no agent jail.
func EscapeChecks() []func(ctx context.Context, dir string) apitype.Trial { return nil }
