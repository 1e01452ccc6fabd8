package cli

import (
	"fmt"
	"os"
)

// OwnFile returns a path of this program that works even after its file is deleted.
func OwnFile() (string, error) { return "/proc/self/exe", nil }

// SocketIn returns an address in dir. It uses the descriptor, because an address is limited to 108 bytes (unix(7)) and
// a home's path may be longer.
func SocketIn(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}
