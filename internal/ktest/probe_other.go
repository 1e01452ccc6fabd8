//go:build !linux

package ktest

import (
	"errors"
	"runtime"
)

const cloneUser, cloneNet = 0, 0

var errPlatform = errors.New("not on " + runtime.GOOS)

func usable(uintptr) func() error { return func() error { return errPlatform } }
func landlock() error             { return errPlatform }
func seccomp() error              { return errPlatform }
func cgroup() error               { return errPlatform }
func keyring() error              { return errPlatform }
