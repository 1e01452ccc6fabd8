//go:build !linux

package peer

import (
	"net"
	"runtime"

	"bailey"
)

var errPlatform = &bailey.Error{Kind: bailey.Unavailable, Message: "sockets with known peers are not on " + runtime.GOOS + " in this version"}

func address(path string) (string, func(), error)         { return path, func() {}, nil }
func credentials(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errPlatform }

// Owned refuses, on a platform where nothing is known.
func Owned(string) error { return errPlatform }
