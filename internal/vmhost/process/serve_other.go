//go:build !linux

package process

import (
	"context"

	"bailey"
)

func (p *program) serveHost(context.Context) error {
	return bailey.Unavailable.New("sandboxes exist on Linux only", "use a Linux host")
}
