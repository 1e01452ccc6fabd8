//go:build linux

package jail

import "golang.org/x/sys/unix"

// sockets is a seccomp program (seccomp(2), classic BPF) under which a tool can make no socket of any
// family: a network namespace stops neither a connection to a socket file in a place nor AF_VSOCK.
// socketpair(2) stays. Foreign system call tables end the tool: their numbers mean something else.
//
// An instruction is one number, laid out as struct sock_filter is on a little-endian machine: the code in
// the low 16 bits, the two jumps in 8 each, the operand in the upper 32.
func sockets(arch uint32, socket, ioUring uint32) []uint64 {
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		eq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ge   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret  = unix.BPF_RET | unix.BPF_K

		nrAt, archAt = 0, 4 // offsets in struct seccomp_data
		x32          = 1 << 30
	)
	op := func(code uint16, k uint32, jt, jf uint8) uint64 {
		return uint64(code) | uint64(jt)<<16 | uint64(jf)<<24 | uint64(k)<<32
	}
	return []uint64{
		op(load, archAt, 0, 0),
		op(eq, arch, 0, 6), // else: end
		op(load, nrAt, 0, 0),
		op(ge, x32, 4, 0), // end
		op(eq, socket, 2, 0),
		op(eq, ioUring, 1, 0), // it makes sockets too
		op(ret, unix.SECCOMP_RET_ALLOW, 0, 0),
		op(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.EACCES), 0, 0),
		op(ret, unix.SECCOMP_RET_KILL_PROCESS, 0, 0),
	}
}
