//go:build !linux

package gateway

import (
	"os"
	"runtime"

	"bailey"
)

var errPlatform = &bailey.Error{Kind: bailey.Unavailable, Message: "the gateway does not run on " + runtime.GOOS + " in this version"}

func openPath(string) (*os.File, error)     { return nil, errPlatform }
func pathOf(*os.File) (string, error)       { return "", errPlatform }
func mountRoot(*os.File) bool               { return true }
func lockFile(string, bool) (func(), error) { return nil, errPlatform }
func ownerOf(os.FileInfo) (int, int, bool)  { return 0, 0, false }
