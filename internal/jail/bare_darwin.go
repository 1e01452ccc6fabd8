package jail

import "syscall"

// newBare returns the runner of macOS. PATH begins with the command line tools, because /usr/bin/git and similar files
// are stubs that look for the program there and execute it, which a profile would not permit.
func newBare(cfg Config) (*bare, error) {
	return &bare{path: "/Library/Developer/CommandLineTools/usr/bin:/usr/bin:/bin:/usr/sbin:/sbin", mask: cfg.Mask,
		seatbelt: "/usr/bin/sandbox-exec"}, nil
}

// bareSession does nothing: on macOS an unprivileged process cannot learn the session of other users' processes. A
// process that left the group of its leader is not found.
func bareSession(int, syscall.Signal) {}
