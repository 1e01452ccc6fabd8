package terminal

import "syscall"

const (
	getTermios   = syscall.TCGETS
	flushTermios = 0x5404 // TCSETSF: once the output has left; drops pending input
)
