//go:build linux

package jail

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// A step is one action of PID 1 and the layer that it belongs to. A preparatory step has no layer.
type step struct {
	inside.Step
	layer string
}

// plan is everything that will be done to a cage, in order. It is pure data: Start applies it unchanged.
type plan struct {
	bounds bounds // of the cage as a whole, enforced from outside
	steps  []step
	lent   []string // names that join the environment at the start; their values never enter the plan

	warm    bool                      // whether a warm helper can serve it
	ceiling func(resource int) uint64 // the highest value to which this process may raise a limit
	lesser  bool                      // for a keeper and its stage
}

// planVersion begins the canonical text. It must change when the meaning of a line does.
const planVersion = "bailey cage plan 3"

// cloneLayers are the layers that the clone itself sets up, before the first step.
var cloneLayers = []string{"userns", "mountns", "pidns", "netns", "ipcns", "utsns", "session"}

// namespaceNames are the namespaces that PID 1 leaves by itself.
var namespaceNames = map[uint64]string{unix.CLONE_NEWCGROUP: "cgroup"}

const cloneFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

func (p *plan) addStep(layer string, op uint8, n []uint64, s ...string) {
	p.steps = append(p.steps, step{inside.Step{Op: op, N: n, S: s}, layer})
}

// maxDonations is the maximum number of descriptors of a plan, besides the three streams.
const maxDonations = inside.MaxDescriptors - 3

// countDescriptors counts the steps that need a descriptor.
func (p *plan) countDescriptors() (n int) {
	for i := range p.steps {
		if hasDescriptor(&p.steps[i].Step) {
			n++
		}
	}
	return n
}

// initialLayers returns the layers that exist before the first step.
func (p *plan) initialLayers() []string {
	if p.lesser {
		return supervisorLayers
	}
	return cloneLayers
}

// layerNames returns the names of the layers that the plan applies, each once, in the order in which they take effect.
func (p *plan) layerNames() []string {
	names := slices.Clone(p.initialLayers())
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

// String returns the canonical text: the version, the namespaces, the bounds, then one step per line. It contains the
// device and inode of each bind, since those were checked, but no descriptor numbers. Of the start of the tool it
// contains only the file and the names of the variables: a receipt has arguments and values elsewhere, redacted,
// whereas this text is stored as it is. Strings are quoted, so no two plans share a text.
func (p *plan) String() string {
	head := "\nclone "
	if p.lesser {
		head = "\nkind landlock "
	}
	b := append(make([]byte, 0, 8<<10), planVersion+head+strings.Join(p.initialLayers(), " ")+"\n"...)
	b = p.bounds.appendText(b)
	for _, s := range p.steps {
		b = append(s.appendText(b), '\n')
	}
	for _, name := range p.lent {
		b = append(strconv.AppendQuote(append(b, "lend "...), name), '\n')
	}
	return string(b)
}

// checkedText returns the canonical text, or an error if it is too long for the ledger.
func (p *plan) checkedText() (string, error) {
	text := p.String()
	n := len(text)
	// JSON writes these as two bytes; String quotes all other control characters
	for _, twice := range []string{`"`, `\`, "\n"} {
		n += strings.Count(text, twice)
	}
	if n > bailey.PlanCap {
		return "", bailey.Invalid.Errorf("name fewer paths, or paths of less depth",
			"the plan of the jail has %d bytes, but at most %d fit into the ledger", n, bailey.PlanCap)
	}
	return text, nil
}

// lineLayers returns the layer of each line of the canonical text, "" for preparatory steps.
func (p *plan) lineLayers() []string {
	layers := append(make([]string, 0, 3+len(p.steps)+len(p.lent)), "", p.initialLayers()[0])
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

// opNames are the names of the operations in the canonical text.
var opNames = map[uint8]string{
	inside.Undump: "undump", inside.Signals: "signals", inside.Private: "private", inside.Tmpfs: "tmpfs",
	inside.Fresh: "tmpfs",
	inside.Proc:  "proc", inside.Enter: "enter", inside.Dir: "dir", inside.File: "file", inside.Link: "link",
	inside.Bind: "bind", inside.Donated: "donated", inside.Copy: "copy", inside.Seal: "seal", inside.Pivot: "pivot",
	inside.Host:   "host",
	inside.Rlimit: "rlimit", inside.Keyring: "keyring", inside.Bounding: "bounding", inside.Securebits: "securebits",
	inside.NoNewPrivs: "no_new_privs", inside.Filter: "seccomp", inside.Narrow: "seccomp", inside.Caps: "caps",
	inside.Descriptors: "descriptors", inside.Umask: "umask",
	inside.Ruleset: "landlock", inside.Rule: "may", inside.Restrict: "restrict",
	inside.Chdir: "chdir", inside.Exec: "exec", inside.Done: "done", inside.Unshare: "unshare",
	inside.Ids: "ids", inside.Reach: "reach", inside.Grant: "grant", inside.Home: "home", inside.Tasks: "tasks",
	inside.Leash: "leash",
	inside.Once:  "once", inside.Become: "become", inside.Lend: "lent",
	inside.Loopback: "loopback", inside.Listen: "listen", inside.Terminals: "terminals",
}

// formatLine returns one line: the verb, the quoted strings, the numbers.
func (s step) formatLine() string { return string(s.appendText(nil)) }

func (s step) appendText(b []byte) []byte {
	b = append(b, opNames[s.Op]...)
	if s.Op == inside.Exec || s.Op == inside.Become {
		return s.appendExec(b)
	}
	for _, w := range s.S {
		b = strconv.AppendQuote(append(b, ' '), w)
	}
	switch n := s.N; s.Op {
	case inside.Bind:
		b = appendAttributes(appendIdentity(b, n), n[2])
	case inside.Donated: // N begins with the descriptor; the rest is as for a bind
		b = appendAttributes(appendIdentity(b, n[1:]), n[3])
		b = appendNumbers(append(b, " idmap"...), n[4:])
	case inside.Copy: // N begins with the descriptor
		b = fmt.Appendf(b, " %04o %d", n[1], n[2])
	case inside.Lend: // as with Copy; the length of a secret is left out
		b = fmt.Appendf(b, " %04o", n[1])
	case inside.Seal:
		b = appendAttributes(b, n[0])
	case inside.Grant: // as with Donated, N begins with the descriptor
		b = appendRights(appendIdentity(b, n[1:]), n[3])
	case inside.Home: // the descriptor number is not part of the plan
	case inside.Tasks: // nor is the number of tasks that the user already has
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
		b = append(append(b, ' '), strings.Join(ruleset{n[0], n[1], n[2]}.rightNames(), ",")...)
	case inside.Rule:
		b = appendRights(b, n[0])
	case inside.Unshare:
		b = fmt.Appendf(b, " %s", namespaceNames[n[0]])
	case inside.Tmpfs, inside.Fresh, inside.Proc, inside.Terminals:
		b = appendAttributes(b, n[0]) // MS_RDONLY to MS_NOEXEC equal the bits of the attributes
	default:
		b = appendNumbers(b, n)
	}
	return b
}

// appendExec adds the file, the bytes of memory and the names of the environment variables.
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

// appendProgram adds the number of instructions and the SHA-256 of the instructions, 8 bytes each, in little-endian
// order.
func appendProgram(b []byte, instructions []uint64) []byte {
	text := make([]byte, 0, 8*len(instructions))
	for _, i := range instructions {
		text = binary.LittleEndian.AppendUint64(text, i)
	}
	return fmt.Appendf(b, " %d sha256 %x", len(instructions), sha256.Sum256(text))
}

// appendIdentity adds device and inode as stat(1) shows them, or "any" if none is compared.
func appendIdentity(b []byte, n []uint64) []byte {
	if n[1] == 0 {
		return append(b, " any"...)
	}
	b = strconv.AppendUint(append(b, ' '), uint64(unix.Major(n[0])), 10)
	b = strconv.AppendUint(append(b, ':'), uint64(unix.Minor(n[0])), 10)
	return strconv.AppendUint(append(b, ':'), n[1], 10)
}

// Mount attributes of binds.
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
