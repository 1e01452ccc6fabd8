package main

import (
	"os"
	"slices"
	"strings"

	"bailey/internal/gateway"
)

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
		slices.Contains(gateway.SocketVariables(), name) || inheritsHere(name)
}

// own are variables that must not pass from whoever made the first call into the gateway of all.
func own(name string) bool {
	return name == "BAILEY_HOME" || name == "BAILEY_OPERATOR" || name == gateway.SessionVariable || name == gateway.TokenVariable || name == traceEnv || name == readyEnv
}

// gatewayEnv is the environment of a gateway that a client starts.
func gatewayEnv(h gateway.Home, ready string) []string {
	return append(environ(os.Environ()), "BAILEY_HOME="+string(h), readyEnv+"="+ready)
}
