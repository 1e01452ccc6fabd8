// Package jail runs a checked call in a fresh cage: Linux namespaces, a root that contains only declared binds, no
// capabilities, no network, bounded resources. No process, mount or temporary file of a call survives it.
//
// A cage is planned, then applied. [Jail.Plan] turns a [bailey.Job] into an ordered list of steps: pure data that
// prints one step per line and has a digest. Everything that can be known, opened or refused in advance is settled
// there. Start re-executes this program as PID 1 of new namespaces (package inside), sends it the steps, and returns
// when that PID 1, and with it every process of the cage, is gone. If a step fails, the error names the layer and the
// remedy.
//
// There are two cages. The full one is described above. If a host denies namespaces, or mounts in them, which the jail
// finds out once, calls get the lesser cage, of kind landlock: no namespaces, Landlock on the host's files, a keeper in
// place of PID 1. [bailey.Cage.Lesser] says why, so that policy can refuse it.
//
// Identity of the tool: inside it has uid and gid 1000; outside it has an id without rights. If the gateway runs as an
// ordinary user, the cage has that user's uid (without help the kernel lets a user map no other) and keeps the user's
// supplementary groups, which the kernel does not let it drop. If the gateway was started as root, it maps
// [DefaultHostUID] or one of the ids that follow, which no daemon uses, drops all groups, and idmaps the places that it
// binds.
//
// Order matters where two layers interact, and the plan keeps it: proc is mounted before the old root goes, binds are
// made before the root turns read-only, and the bounding set is emptied before the capabilities that permit this are
// dropped. Then follow no_new_privs, Landlock, under which no process can mount, and seccomp, which forbids the system
// calls themselves. The gateway makes the control group between the clone and the first step.
package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"bailey"
)

// Config holds the settings that all cages of a Jail share. Its zero value is safe.
type Config struct {
	// HostUID is the first user and group id that cages have outside if the gateway is root: each cage has one of the
	// 512 from there on, or all have the first if the others are not mapped. Zero is [DefaultHostUID]. The first must
	// be mapped where the gateway runs; none may belong to a user.
	HostUID int
	// Mask lists absolute paths that no cage may show: a place at or below one is refused, and one below a place is
	// covered by an empty file or directory.
	Mask []string
	// Warn is told why calls that could have had a warm helper have none; it may be nil.
	Warn func(error)
	// OnDemand makes warm helpers prepare nothing for a call before that call arrives.
	OnDemand bool
	// Grace is the time between SIGTERM and SIGKILL. Zero is [DefaultGrace].
	Grace time.Duration
	// Answer is how long a warm helper may take for each of its answers. Zero is [DefaultAnswer].
	Answer time.Duration
	// Reluctance is how long the keeper of a lesser cage may take to end a call when it is told to. Zero is
	// [DefaultReluctance].
	Reluctance time.Duration
}

// Times that apply if the Config of a Jail does not set them.
const (
	DefaultGrace      = time.Second
	DefaultAnswer     = 10 * time.Second // an answer takes milliseconds
	DefaultReluctance = 5 * time.Second  // ending a call takes milliseconds
)

// cleanMasks returns the absolute paths of Mask, cleaned.
func (c Config) cleanMasks() (list []string, err error) {
	for _, m := range c.Mask {
		if !filepath.IsAbs(m) {
			return nil, bailey.Invalid.Errorf("", "mask %q is not an absolute path", m)
		}
		list = append(list, filepath.Clean(m))
	}
	return list, nil
}

// DefaultHostUID lies above the ranges systemd allocates to containers (524288 to 1879048191, systemd's UIDS-GIDS.md)
// and below 2^31, since some tools treat ids as signed.
const DefaultHostUID = 1979000000

// never is the exit of a tool that did not run.
var never = bailey.Exit{Code: bailey.NeverRan}

// textDigest returns the SHA-256 of the canonical text of a plan, or of a profile, in hex.
func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// searchPath is PATH, for looking up commands outside and for the tool inside. The caller's PATH is never used.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
