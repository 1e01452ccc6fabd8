//go:build !linux

package ktest

import (
	"errors"
	"runtime"
)

const cloneUser, cloneNet = 0, 0

var errPlatform = errors.New("not on " + runtime.GOOS)

func namespaceProbe(uintptr) func() error { return func() error { return errPlatform } }
func probeLandlock() error                { return errPlatform }
func probeSeccomp() error                 { return errPlatform }
func probeCgroup() error                  { return errPlatform }
func probeKeyring() error                 { return errPlatform }
