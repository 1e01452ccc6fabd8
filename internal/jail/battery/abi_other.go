//go:build linux && !amd64

package battery

// archProbes has no probes: on arm64 a 64-bit process cannot reach a foreign table of system calls.
func archProbes() []Probe { return nil }
