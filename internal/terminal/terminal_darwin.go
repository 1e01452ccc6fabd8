package terminal

import "syscall"

const (
	getTermios   = syscall.TIOCGETA
	flushTermios = syscall.TIOCSETAF // waits for pending output; discards pending input (tty(4))
)
