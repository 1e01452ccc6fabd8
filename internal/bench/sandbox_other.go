//go:build !linux

package bench

import "context"

func (b *sandboxBench) measureSandboxes(context.Context) ([]Row, error) {
	return missingSandboxes("sandboxes exist on Linux only"), nil
}
