package main

import (
	"fmt"
	"os"
)

// ownFile is this program, even when its file is gone.
func ownFile() (string, error) { return "/proc/self/exe", nil }

// socketIn is an address in dir. It goes through the descriptor, since an address holds 108 bytes (unix(7)) and
// a home's path may be longer.
func socketIn(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}
