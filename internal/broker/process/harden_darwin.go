package process

import "syscall"

// harden disables core files.
func harden() (lacks []string, err error) {
	syscall.Umask(0o077)
	return []string{"nothing keeps other processes of the same user from reading this one's memory"}, syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}

func ready() {}
