package hostapi

import "os"

// Installed reports whether this process can reach a host, or start one: a socket is named, or the program is beside the
// running program.
func Installed() bool {
	if os.Getenv(SocketVariable) != "" {
		return true
	}
	_, err := findProgram()
	return err == nil
}
