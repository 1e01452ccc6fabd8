package jail

import "syscall"

// newBare is the runner of macOS. PATH begins with the command line tools: /usr/bin/git and its like are
// stubs that look for the program there and execute it, which a profile would not let them.
func newBare(cfg Config) (*bare, error) {
	return &bare{path: "/Library/Developer/CommandLineTools/usr/bin:/usr/bin:/bin:/usr/sbin:/sbin", mask: cfg.Mask, seatbelt: "/usr/bin/sandbox-exec"}, nil
}

// bareSession does nothing: here nobody without rights learns the session of others' processes, and what left the group of
// its leader is not found.
func bareSession(int, syscall.Signal) {}
