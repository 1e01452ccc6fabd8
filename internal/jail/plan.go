//go:build linux

package jail

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// A step is what PID 1 does and the layer that rests on it; scaffolding has no layer.
type step struct {
	inside.Step
	layer string
}

// plan is all that will be done to a cage, in order. It is pure data: Start applies it as it stands.
type plan struct {
	bounds bounds // of the cage as a whole, held from outside
	steps  []step
	lent   []string // names that join the environment at the start; their values never enter the plan

	warm    bool                      // a warm helper can serve it
	ceiling func(resource int) uint64 // what this process may raise a limit to
	lesser  bool                      // for a keeper and its stage
}

// planVersion heads the canonical text. It changes when the meaning of a line does.
const planVersion = "bailey cage plan 3"

// cloneLayers are what the clone itself sets up, before the first step.
var cloneLayers = []string{"userns", "mountns", "pidns", "netns", "ipcns", "utsns", "session"}

// namespaceNames are those that PID 1 leaves by itself.
var namespaceNames = map[uint64]string{unix.CLONE_NEWCGROUP: "cgroup"}

const cloneFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

func (p *plan) add(layer string, op uint8, n []uint64, s ...string) {
	p.steps = append(p.steps, step{inside.Step{Op: op, N: n, S: s}, layer})
}

// maxDonations is how many descriptors a plan may want, besides the three streams.
const maxDonations = inside.MaxDescriptors - 3

// donations counts the steps that want a descriptor.
func (p *plan) donations() (n int) {
	for _, s := range p.steps {
		if s.Op == inside.Donated || s.Op == inside.Copy || s.Op == inside.Home || s.Op == inside.Lend || s.Op == inside.Grant && s.N[0] != inside.ByPath {
			n++
		}
	}
	return n
}

// first are the layers that stand before the first step.
func (p *plan) first() []string {
	if p.lesser {
		return keeperLayers
	}
	return cloneLayers
}

// layers names what the plan applies, once each, in the order in which it holds.
func (p *plan) layers() []string {
	names := slices.Clone(p.first())
	if p.bounds.layer != "" {
		names = append(names, p.bounds.layer)
	}
	seen := map[string]bool{"": true}
	for _, name := range names {
		seen[name] = true
	}
	for _, s := range p.steps {
		if !seen[s.layer] {
			seen[s.layer] = true
			names = append(names, s.layer)
		}
	}
	return names
}

// String is the canonical text: the version, the namespaces, the bounds, then one step a line. Device and inode
// of what is bound are part of it, for they are what was checked; descriptor numbers are not. Of what
// the tool is started with only the file and the names of its variables are: arguments and values stand
// elsewhere in a receipt, redacted, and this text is kept as it is. Words are quoted, so no two plans
// share a text.
func (p *plan) String() string {
	head := "\nclone "
	if p.lesser {
		head = "\nkind landlock "
	}
	b := append(make([]byte, 0, 8<<10), planVersion+head+strings.Join(p.first(), " ")+"\n"...)
	b = p.bounds.append(b)
	for _, s := range p.steps {
		b = append(s.append(b), '\n')
	}
	for _, name := range p.lent {
		b = append(strconv.AppendQuote(append(b, "lend "...), name), '\n')
	}
	return string(b)
}

// bounded is the canonical text, unless it is too long to be kept.
func (p *plan) bounded() (string, error) {
	text := p.String()
	n := len(text)
	for _, twice := range []string{`"`, `\`, "\n"} { // what JSON writes as two bytes; String quotes all other controls
		n += strings.Count(text, twice)
	}
	if n > bailey.PlanCap {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the plan of the cage takes %d bytes, and %d fit into the ledger", n, bailey.PlanCap),
			Hint: "name fewer paths, or some that lie less deep"}
	}
	return text, nil
}

// lines names the layer of each line of the canonical text, "" for scaffolding.
func (p *plan) lines() []string {
	layers := append(make([]string, 0, 3+len(p.steps)+len(p.lent)), "", p.first()[0])
	if p.bounds.layer != "" {
		layers = append(layers, p.bounds.layer)
	}
	for _, s := range p.steps {
		layers = append(layers, s.layer)
	}
	for range p.lent {
		layers = append(layers, "env-listed")
	}
	return layers
}

// digest is the SHA-256 of a canonical text, in hex.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// verbs name the operations in the canonical text.
var verbs = map[uint8]string{
	inside.Undump: "undump", inside.Signals: "signals", inside.Private: "private", inside.Tmpfs: "tmpfs", inside.Fresh: "tmpfs",
	inside.Proc: "proc", inside.Enter: "enter", inside.Dir: "dir", inside.File: "file", inside.Link: "link",
	inside.Bind: "bind", inside.Donated: "donated", inside.Copy: "copy", inside.Seal: "seal", inside.Pivot: "pivot", inside.Host: "host",
	inside.Rlimit: "rlimit", inside.Keyring: "keyring", inside.Bounding: "bounding", inside.Securebits: "securebits",
	inside.NoNewPrivs: "no_new_privs", inside.Filter: "seccomp", inside.Narrow: "seccomp", inside.Caps: "caps", inside.Descriptors: "descriptors", inside.Umask: "umask",
	inside.Ruleset: "landlock", inside.Rule: "may", inside.Restrict: "restrict",
	inside.Chdir: "chdir", inside.Exec: "exec", inside.Done: "done", inside.Unshare: "unshare",
	inside.Ids: "ids", inside.Reach: "reach", inside.Grant: "grant", inside.Home: "home", inside.Tasks: "tasks", inside.Leash: "leash",
	inside.Once: "once", inside.Become: "become", inside.Lend: "lent",
	inside.Loopback: "loopback", inside.Listen: "listen", inside.Terminals: "terminals",
}

// text is one line: the verb, the words quoted, the numbers.
func (s step) text() string { return string(s.append(nil)) }

func (s step) append(b []byte) []byte {
	b = append(b, verbs[s.Op]...)
	if s.Op == inside.Exec || s.Op == inside.Become {
		return s.appendExec(b)
	}
	for _, w := range s.S {
		b = strconv.AppendQuote(append(b, ' '), w)
	}
	switch n := s.N; s.Op {
	case inside.Bind:
		b = appendAttributes(appendIdentity(b, n), n[2])
	case inside.Donated: // the descriptor comes first in N, so that the rest reads as it does for a bind
		b = appendAttributes(appendIdentity(b, n[1:]), n[3])
		b = appendNumbers(append(b, " idmap"...), n[4:])
	case inside.Copy: // the descriptor comes first in N
		b = fmt.Appendf(b, " %04o %d", n[1], n[2])
	case inside.Lend: // as with Copy; how long a secret is nobody needs to know
		b = fmt.Appendf(b, " %04o", n[1])
	case inside.Seal:
		b = appendAttributes(b, n[0])
	case inside.Grant: // as with Donated, the descriptor comes first
		b = appendRights(appendIdentity(b, n[1:]), n[3])
	case inside.Home: // of which descriptor is no part of the plan
	case inside.Tasks: // nor is how many the user has already
		b = appendNumbers(b, n[1:])
	case inside.Listen:
		if s.S[0] == "" {
			a := s.N[1]
			b = fmt.Appendf(b, " %d.%d.%d.%d:%d", byte(a>>24), byte(a>>16), byte(a>>8), byte(a), s.N[2])
		}
	case inside.Reach:
		b = fmt.Appendf(b, " %o", n[0])
	case inside.Dir, inside.File, inside.Umask:
		b = fmt.Appendf(b, " %04o", n[0])
	case inside.Rlimit:
		b = appendNumbers(append(append(b, ' '), rlimitNames[int(n[0])]...), n[1:])
	case inside.Filter, inside.Narrow, inside.Once:
		b = appendProgram(b, n)
	case inside.Ruleset:
		b = append(append(b, ' '), strings.Join(ruleset{n[0], n[1], n[2]}.names(), ",")...)
	case inside.Rule:
		b = appendRights(b, n[0])
	case inside.Unshare:
		b = fmt.Appendf(b, " %s", namespaceNames[n[0]])
	case inside.Tmpfs, inside.Fresh, inside.Proc, inside.Terminals:
		b = appendAttributes(b, n[0]) // MS_RDONLY to MS_NOEXEC equal the attributes' bits
	default:
		b = appendNumbers(b, n)
	}
	return b
}

// appendExec adds the file, the bytes of memory and the names of the environment.
func (s step) appendExec(b []byte) []byte {
	b = strconv.AppendQuote(append(b, ' '), s.S[0])
	b = strconv.AppendUint(append(b, " memory "...), s.N[1], 10)
	if len(s.N) > 2 && s.N[2] == 1 {
		b = append(b, " tty"...)
	}
	b = append(b, " env"...)
	for _, v := range s.S[1+s.N[0]:] {
		name, _, _ := strings.Cut(v, "=")
		b = strconv.AppendQuote(append(b, ' '), name)
	}
	return b
}

func appendNumbers(b []byte, numbers []uint64) []byte {
	for _, n := range numbers {
		b = strconv.AppendUint(append(b, ' '), n, 10)
	}
	return b
}

// appendProgram adds the number of instructions and their SHA-256, 8 bytes each, the lowest first.
func appendProgram(b []byte, instructions []uint64) []byte {
	text := make([]byte, 0, 8*len(instructions))
	for _, i := range instructions {
		text = binary.LittleEndian.AppendUint64(text, i)
	}
	return fmt.Appendf(b, " %d sha256 %x", len(instructions), sha256.Sum256(text))
}

// appendIdentity adds device and inode as stat(1) shows them, "any" where none is compared.
func appendIdentity(b []byte, n []uint64) []byte {
	if n[1] == 0 {
		return append(b, " any"...)
	}
	b = strconv.AppendUint(append(b, ' '), uint64(unix.Major(n[0])), 10)
	b = strconv.AppendUint(append(b, ':'), uint64(unix.Minor(n[0])), 10)
	return strconv.AppendUint(append(b, ':'), n[1], 10)
}

// Mount attributes as binds use them.
const (
	readOnly = unix.MOUNT_ATTR_RDONLY
	inert    = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
)

func appendAttributes(b []byte, bits uint64) []byte {
	word := " rw"
	if bits&unix.MOUNT_ATTR_RDONLY != 0 {
		word = " ro"
	}
	b = append(b, word...)
	for _, a := range [...]struct {
		bit  uint64
		word string
	}{{unix.MOUNT_ATTR_NOSUID, ",nosuid"}, {unix.MOUNT_ATTR_NODEV, ",nodev"}, {unix.MOUNT_ATTR_NOEXEC, ",noexec"}} {
		if bits&a.bit != 0 {
			b = append(b, a.word...)
		}
	}
	return b
}
