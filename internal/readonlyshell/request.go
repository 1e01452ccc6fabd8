// Package readonlyshell is the login shell of the account bailey-readonly on a source host. It is the second of three
// layers between an agent and the host: package readonly has validated the line in the gateway, and the account has no
// right to change anything.
//
// sshd starts the shell with the force-command of the certificate, and passes the line of the agent in
// SSH_ORIGINAL_COMMAND. The shell validates the line again and starts itself once more to set up the limits of
// [jail.HostReader]: Landlock without a file that may be written and with the programs of the line as the only ones that
// may be executed, no capabilities, no_new_privs, seccomp without Internet sockets, and resource limits. Then /bin/sh
// runs the rendered line. The first process stays outside of the limits: it bounds time and output, and ends all
// processes of the line when the connection closes.
package readonlyshell

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// Name is the name of the program.
const Name = "bailey-readonly-shell"

// OwnPath is the file with the commands of the operator on a host. Only root may write it.
const OwnPath = "/etc/bailey-readonly/commands.json"

// StatusLine makes the shell describe the host as a [Status] instead of running a command.
const StatusLine = Name + " --status"

// Exit codes of the shell itself. A message on standard error begins with the name of the program.
const (
	ExitOutput  = 120 // the output exceeded its limit, and the command was ended
	ExitTimeout = 121 // the time was over, and the command was ended
	ExitFailed  = 125 // a limit could not be set up; the command was not started
	ExitRefused = 126 // the line was refused; nothing was started
)

// Limits of a command if the certificate sets no others.
const (
	DefaultTimeout = 10 * time.Minute
	DefaultOutput  = 16 << 20 // bytes of standard output and standard error together
	maxTimeout     = time.Hour
)

// Request is the force-command of a certificate: what the gateway permits for the commands of this certificate. The
// signature of the certificate protects it.
type Request struct {
	Timeout         time.Duration // 0 means DefaultTimeout
	Output          int64         // bytes; 0 means DefaultOutput
	WithoutLandlock bool          // an operator accepted this host although its kernel has no Landlock
	// Approved is the SHA-256 digest of the only line that may run, in hexadecimal. A person approved the line, so it is
	// not validated; the limits are the same, but it may execute any program of the system. It is empty for lines that
	// are validated.
	Approved string
	// Own is the digest of the file at OwnPath ([readonly.Own]), if the line uses a command that an operator added. The
	// shell accepts such a command only with the file that the gateway had.
	Own string
}

// Digest returns the digest of a line for Request.Approved.
func Digest(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:])
}

// Command returns the force-command: the path of the shell and its options.
func (r Request) Command(shell string) string {
	words := []string{shell}
	if r.Timeout != 0 {
		words = append(words, "--timeout="+strconv.FormatInt(int64(r.Timeout/time.Second), 10))
	}
	if r.Output != 0 {
		words = append(words, "--output="+strconv.FormatInt(r.Output, 10))
	}
	if r.WithoutLandlock {
		words = append(words, "--without-landlock")
	}
	if r.Approved != "" {
		words = append(words, "--approved="+r.Approved)
	}
	if r.Own != "" {
		words = append(words, "--own="+r.Own)
	}
	return strings.Join(words, " ")
}

// ParseCommand returns the request of a force-command. An unknown option is an error: it could be a limit that this
// version does not know.
func ParseCommand(text string) (r Request, err error) {
	invalid := func(format string, args ...any) (Request, error) {
		return Request{}, bailey.Invalid.Errorf(
			"prepare the host again with the version of Bailey that issued the certificate",
			"the force-command of the certificate is invalid: "+format,
			args...)
	}
	words := strings.Split(text, " ")
	if path.Base(words[0]) != Name {
		return invalid("it does not start %s", Name)
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		if seen[name] {
			return invalid("the option %q occurs twice", name)
		}
		seen[name] = true
		n, nerr := strconv.ParseInt(value, 10, 64)
		switch {
		case name == "--timeout" && nerr == nil && n > 0 && n <= int64(maxTimeout/time.Second):
			r.Timeout = time.Duration(n) * time.Second
		case name == "--output" && nerr == nil && n > 0 && n <= 1<<30:
			r.Output = n
		case w == "--without-landlock":
			r.WithoutLandlock = true
		case name == "--approved" && isDigest(value):
			r.Approved = value
		case name == "--own" && isDigest(value):
			r.Own = value
		default:
			return invalid("the option %.80q is not known, or its value is not valid", w)
		}
	}
	return r, nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

// Status describes a host to the gateway.
type Status struct {
	Version      string   `json:"version"`
	Architecture string   `json:"architecture"`
	Kernel       string   `json:"kernel"`
	System       string   `json:"system"`       // PRETTY_NAME of os-release(5)
	LandlockABI  int      `json:"landlock_abi"` // 0: not enforced
	Groups       []string `json:"groups"`       // of the account
	Host         string   `json:"host"`
	// OwnCommands is the digest of the file at OwnPath, or "" if there is none that the shell accepts.
	OwnCommands string `json:"own_commands,omitempty"`
}
