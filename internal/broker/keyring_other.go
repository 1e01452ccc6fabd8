//go:build !linux && !darwin

package broker

import "context"

func (k *keyring) readItem(context.Context) ([]byte, error) {
	return nil, unavailableError(nil, "use another source", "a keyring cannot be read on this platform")
}
