package cli

import (
	"os"

	"bailey/internal/localapi"
)

// spawn starts this program as the gateway of the home.
func spawn(h localapi.Home, ready *os.File) (*os.Process, error) {
	self, err := OwnFile()
	if err != nil {
		return nil, err
	}
	return localapi.Spawn(h, self, ready)
}
