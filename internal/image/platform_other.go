//go:build !linux

package image

import (
	"errors"
	"os"
	"sync"

	"bailey"
)

var errQuota, errLocked = errors.New("the quota is used up"), errors.New("another process has it locked")

// systemSupport is a variable because staticcheck would report callers that handle a nil error, which they get on Linux.
var systemSupport = sync.OnceValue(func() error {
	return bailey.Unavailable.New("images and machines exist on Linux only", "use a Linux host")
})

func lockFile(string, bool, bool) (*os.File, error) { return nil, systemSupport() }

func identifyFile(*os.File) (identity, error) { return identity{}, systemSupport() }
