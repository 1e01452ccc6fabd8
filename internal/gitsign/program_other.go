//go:build !unix

package gitsign

import "errors"

// systemDirs returns no directory: no program of this system signs for a call.
func systemDirs() []string { return nil }

func onlyRootWrites(string) error { return errors.New("its owner is not known on this system") }
