package jail

import "strings"

// Rights of Landlock (landlock(7), linux/landlock.h): the operations that a thread and its descendants may still do on
// files, TCP ports and each other. A right that is handled and that no rule grants is refused.
const (
	mayExecute uint64 = 1 << iota
	mayWriteFile
	mayReadFile
	mayReadDir
	mayRemoveDir
	mayRemoveFile
	mayMakeChar
	mayMakeDir
	mayMakeReg
	mayMakeSock
	mayMakeFifo
	mayMakeBlock
	mayMakeSym
	mayRefer
	mayTruncate
	mayIoctlDev
	mayResolveUnix
)

// resolveEdition is the ABI that added the last of these: to connect to a socket by its path if it was made outside the
// domain. Seccomp denies tools such sockets: only cages that may use Unix sockets need this right.
const resolveEdition = 9

const (
	mayRead = mayReadFile | mayReadDir
	// mayChange is granted on a writable tree in addition to reading. No device or socket may be made there.
	mayChange = mayWriteFile | mayTruncate | mayRefer | mayRemoveDir | mayRemoveFile | mayMakeDir | mayMakeReg | mayMakeSym
	// mayOwn is granted on the cage's own empty directories.
	mayOwn = mayRead | mayChange | mayMakeFifo
)

var fileRights = [...]string{"execute", "write-file", "read-file", "read-dir", "remove-dir", "remove-file", "make-char",
	"make-dir",
	"make-reg", "make-sock", "make-fifo", "make-block", "make-sym", "refer", "truncate", "ioctl-dev", "resolve-unix"}
var portRights = [...]string{"bind", "connect"}
var scopes = [...]string{"abstract-unix-socket", "signal"}

// A ruleset is everything that Landlock controls: rights on files, rights on TCP ports, and interactions that must stay
// within the domain.
type ruleset struct{ files, ports, scoped uint64 }

// editions lists the additions of each Landlock ABI, in order: Linux 5.13, 5.19, 6.2, 6.7, 6.10, 6.12.
var editions = [...]ruleset{
	{files: mayMakeSym<<1 - 1},
	{files: mayRefer},
	{files: mayTruncate},
	{ports: 1<<len(portRights) - 1},
	{files: mayIoctlDev},
	{scoped: 1<<len(scopes) - 1},
}

// supportedRuleset returns the widest ruleset that a kernel with this ABI supports, and names the rights that it lacks. A newer
// ABI never handles less than an older one, so every right that a kernel cannot refuse is named.
func supportedRuleset(abi int) (r ruleset, lacks []string) {
	for i, e := range editions {
		if i < abi {
			r = ruleset{r.files | e.files, r.ports | e.ports, r.scoped | e.scoped}
			continue
		}
		for _, name := range e.rightNames() {
			lacks = append(lacks, "landlock "+name)
		}
	}
	return r, lacks
}

// scopesSignals reports whether signals must stay in the domain.
func (r ruleset) scopesSignals() bool { return r.scoped>>1&1 != 0 }

// rightNames returns the names of the rights in r.
func (r ruleset) rightNames() []string {
	list := bitNames(r.files, fileRights[:])
	for _, n := range bitNames(r.ports, portRights[:]) {
		list = append(list, "tcp-"+n)
	}
	for _, n := range bitNames(r.scoped, scopes[:]) {
		list = append(list, "scope-"+n)
	}
	return list
}

func bitNames(bits uint64, words []string) (list []string) {
	for i, w := range words {
		if bits>>i&1 != 0 {
			list = append(list, w)
		}
	}
	return list
}

func appendRights(b []byte, bits uint64) []byte {
	return append(append(b, ' '), strings.Join(bitNames(bits, fileRights[:]), ",")...)
}
