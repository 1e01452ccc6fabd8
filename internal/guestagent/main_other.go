//go:build !linux

package guestagent

import (
	"fmt"
	"os"
)

// Main refuses: guests run Linux.
func Main() {
	fmt.Fprintln(os.Stderr, "bailey-guest: it is for guests, which run Linux")
	os.Exit(1)
}
