//go:build !linux

package ktest

import "errors"

func startPostgres() (dir string, stop func(), err error) {
	return "", nil, errors.New("the tests start PostgreSQL on Linux only")
}

func makeDatabase(string, string) error { return errors.ErrUnsupported }
