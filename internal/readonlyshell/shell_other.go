//go:build !linux

package readonlyshell

import (
	"fmt"
	"os"
)

// Main refuses: the limits exist on Linux only.
func Main() {
	fmt.Fprintln(os.Stderr, Name+": source hosts must run Linux")
	os.Exit(ExitFailed)
}
