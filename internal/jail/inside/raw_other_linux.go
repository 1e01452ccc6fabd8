//go:build linux && !amd64

package inside

const sysSeccomp = 277 // asm-generic/unistd.h: arm64 and all that came later
