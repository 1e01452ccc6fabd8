//go:build linux && !amd64

package inside

// asm-generic/unistd.h: arm64 and all that came later.
const (
	sysSeccomp = 277
	sysSetns   = 268
)
