package localapi

import (
	"bailey/internal/peer"
	"os"
	"slices"
	"strings"
)

// ReadyVariable names the descriptor on which a starting client waits for the gateway.
const ReadyVariable = "BAILEY_READY_FD"

// Spawn starts program as the home's gateway, in a session of its own, so that it survives the client and gets no
// signals from the client's terminal.
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
	number, err := detachProcess(attr, ready)
	if err != nil {
		return nil, err
	}
	attr.Env = append(gatewayEnv(os.Environ()), "BAILEY_HOME="+string(h), ReadyVariable+"="+number)
	return os.StartProcess(program, []string{"bailey", "gateway"}, attr)
}

// gatewayEnv returns the part of a client's environment that a gateway started by it gets. The client of the first call
// may hold secrets there, which would stay in the gateway's /proc/PID/environ while it runs. `bailey gateway` keeps its
// whole environment, because a user chose it.
func gatewayEnv(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name = foldVariable(name)
		return isClientOnly(name) || !isInherited(name)
	})
}

// isInherited reports whether the gateway reads a variable: it names programs, homes, scratch space or sockets that cages
// hide, or the format of times and text.
func isInherited(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "GOCOVERDIR":
		return true
	}
	return strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "BAILEY_") ||
		slices.Contains(peer.SocketVariables(), name) || inheritsHere(name)
}

// isClientOnly reports whether a variable must not pass from the client of the first call into the gateway, which serves all
// clients.
func isClientOnly(name string) bool {
	return slices.Contains([]string{"BAILEY_HOME", "BAILEY_OPERATOR", SessionVariable, TokenVariable, TraceVariable,
		ReadyVariable}, name)
}

// TraceVariable names the file for the spans of calls. Only a gateway in the foreground uses it, because the client of
// the first call must not choose the file.
const TraceVariable = "BAILEY_TRACE"
