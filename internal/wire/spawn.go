package wire

import (
	"os"
	"slices"
	"strings"
)

// ReadyVariable names the descriptor on which a starting client waits for a word.
const ReadyVariable = "BAILEY_READY_FD"

// Spawn starts program as the home's gateway, in a session of its own, so that neither the client's terminal nor its end reaches it.
func Spawn(h Home, program string, ready *os.File) (*os.Process, error) {
	log, err := os.OpenFile(h.LogFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	attr := &os.ProcAttr{Dir: string(h), Files: []*os.File{null, log, log}}
	number, err := detach(attr, ready)
	if err != nil {
		return nil, err
	}
	attr.Env = append(environ(os.Environ()), "BAILEY_HOME="+string(h), ReadyVariable+"="+number)
	return os.StartProcess(program, []string{"bailey", "gateway"}, attr)
}

// environ is what of a client's environment the gateway that it starts gets. The rest stays behind: whoever makes the
// first call may hold secrets there, and they would stand in the gateway's /proc/PID/environ for as long as it lives.
// `bailey gateway` keeps what it is started with: a person chose it.
func environ(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name = variable(name)
		return own(name) || !inherits(name)
	})
}

// inherits lists what the gateway reads: where programs, homes, sockets that cages hide and scratch space are, and
// how times and words are written.
func inherits(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "GOCOVERDIR":
		return true
	}
	return strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "BAILEY_") ||
		slices.Contains(SocketVariables(), name) || inheritsHere(name)
}

// own are variables that must not pass from whoever made the first call into the gateway of all.
func own(name string) bool {
	return slices.Contains([]string{"BAILEY_HOME", "BAILEY_OPERATOR", SessionVariable, TokenVariable, TraceVariable, ReadyVariable}, name)
}

// TraceVariable names the file that the spans of calls are written to. It counts for a gateway in the foreground alone: whoever
// makes the first call must not choose it.
const TraceVariable = "BAILEY_TRACE"

// SocketVariables name the variables in which a session says where its sockets are. The gateway needs them, or it
// would not know what to hide.
func SocketVariables() []string {
	return []string{"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}
}
