package apitype

// Version is set by releases (-ldflags "-X main.version=…").
var Version = "dev"

// Exit codes (README.md).
const (
	ExitOK          = 0
	ExitDenied      = 1
	ExitInput       = 2  // bad input, or an approval is needed
	ExitTool        = 3  // the tool failed; its own code is in the result
	exitBlocked     = 77 // denied by the active profiles
	exitNoMatch     = 126
	ExitUnreachable = 127
)
