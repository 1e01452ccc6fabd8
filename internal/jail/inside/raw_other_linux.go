//go:build linux && !amd64

package inside

// asm-generic/unistd.h: arm64 and all later architectures.
const (
	sysSeccomp = 277
	sysSetns   = 268
)
