package terminal

import "syscall"

const (
	getTermios   = syscall.TCGETS
	flushTermios = 0x5404 // TCSETSF: waits for pending output; discards pending input
)
