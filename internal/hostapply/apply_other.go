//go:build !linux

package hostapply

import (
	"fmt"
	"os"
)

// Main refuses: source hosts run Linux.
func Main() {
	fmt.Fprintln(os.Stderr, "bailey-apply: it is for source hosts, which run Linux")
	os.Exit(ExitRefused)
}
