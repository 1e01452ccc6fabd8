//go:build linux && !amd64

package battery

// machine has no probes: on arm64 a 64-bit process cannot reach a foreign table of system calls.
func machine() []Probe { return nil }
