// Package hostapply is the program bailey-apply on a source host: it runs exactly one approved playbook, as root, and
// reports each task.
//
// A host has it only if an operator prepared it with `bailey source prepare --apply`. sshd starts the program as the
// login shell of the account bailey-apply, with the force-command of a certificate for that account: a [Request]. The
// program belongs to root, and the account alone may start it, with the rights of root. It refuses every content but
// the
// one of the digest in the request, every host but the one in it, a request after its time, and a request that was used
// before. Once it has begun it continues even if the connection closes, because a half-applied playbook is worse.
package hostapply

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// Names on a host.
const (
	Name     = "bailey-apply"           // of the program and of the account
	Path     = "/usr/local/bin/" + Name // of the program
	HostFile = "/etc/bailey-apply/host" // the identity of the host, as HostID returns it
	StateDir = "/var/lib/bailey-apply"
)

// MaxContent limits a playbook, in bytes.
const MaxContent = 8 << 20

// maxAhead is how far in the future the time of a request may be.
const maxAhead = 2 * time.Hour

// Exit codes of the program itself. A playbook whose task failed ends with ExitFailed.
const (
	ExitFailed  = 1
	ExitRefused = 126 // nothing was started
)

// Request is the force-command of a certificate: what a person approved. The signature of the certificate protects it.
type Request struct {
	SHA256 string // of the only content that may run, in hexadecimal
	Host   string // HostID of the only host
	Call   string // a random name in hexadecimal; each is accepted once
	Until  time.Time
}

// Digest returns the digest of a content for Request.SHA256.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// HostID returns the identity of a host from its public key in wire format.
func HostID(hostKey []byte) string { return Digest(hostKey) }

// Options returns the words of the force-command after the path of the program.
func (r Request) Options() []string {
	return []string{"--sha256=" + r.SHA256, "--host=" + r.Host, "--call=" + r.Call,
		"--until=" + strconv.FormatInt(r.Until.Unix(), 10)}
}

// ParseCommand returns the request of a force-command. Each option must be there once, and no other.
func ParseCommand(text string) (r Request, err error) {
	invalid := func(format string, args ...any) (Request, error) {
		return Request{}, bailey.Invalid.Errorf("prepare the host again with the version of Bailey that issued the certificate",
			"the force-command of the certificate is invalid: "+format, args...)
	}
	words := strings.Split(text, " ")
	if path.Base(words[0]) != Name {
		return invalid("it does not start %s", Name)
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		if seen[name] {
			return invalid("the option %.80q occurs twice", name)
		}
		seen[name] = true
		seconds, timeErr := strconv.ParseInt(value, 10, 64)
		switch {
		case name == "--sha256" && isHex(value, sha256.Size):
			r.SHA256 = value
		case name == "--host" && isHex(value, sha256.Size):
			r.Host = value
		case name == "--call" && isHex(value, 16):
			r.Call = value
		case name == "--until" && timeErr == nil && seconds > 0:
			r.Until = time.Unix(seconds, 0)
		default:
			return invalid("the option %.80q is not known, or its value is not valid", w)
		}
	}
	if len(seen) != len(r.Options()) {
		return invalid("it lacks an option")
	}
	return r, nil
}

func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes && strings.ToLower(s) == s
}

// Report tells what became of each task. Names are those of the playbook.
type Report struct {
	OK         bool     `json:"ok"`
	SHA256     string   `json:"sha256"`
	Kind       string   `json:"kind"`              // ansible or shell
	Changed    []string `json:"changed"`           // of a script: steps that ran to their end
	Unchanged  []string `json:"unchanged"`         // also tasks that were skipped
	Ignored    []string `json:"ignored,omitempty"` // failed, which the playbook permits
	Failed     []string `json:"failed"`            // at most one of a script
	NotReached []string `json:"not_reached"`       // after the one that failed
	Output     string   `json:"output,omitempty"`  // the end of the output, if it failed
}
