// Package jail runs a checked call in a fresh cage: Linux namespaces, a root made of declared binds
// alone, no capabilities, no network, bounded resources. Nothing of a call survives it.
//
// A cage is planned, then applied. [Jail.Plan] turns a [bailey.Job] into an ordered list of steps,
// pure data that prints one step a line and has a digest; everything that can be known, opened or
// refused happens there. Start re-executes this program as PID 1 of new namespaces (package inside),
// hands it the steps, and returns when that PID 1, and with it everything it contained, is gone. A
// step that does not succeed is an error that names the layer and the cure.
//
// There are two cages. The full one is this. Where a host gives no namespaces, or no mounts in them, which
// is found out once, calls get the lesser one, of kind landlock, and [bailey.Cage.Lesser] says why, so that
// policy can refuse it: no namespaces, Landlock before the host's files, a keeper in place of PID 1.
//
// Who the tool is: inside uid and gid 1000; outside an id without rights. An ordinary user's cage
// has that user's own uid (the kernel lets nobody map another one without help) and keeps the user's
// supplementary groups, which the kernel does not let it drop. A gateway started as root maps
// [DefaultHostUID], an id no daemon has, drops all groups, and idmaps the places it binds.
//
// Order matters where two layers meet, and the plan keeps it: proc before the old root goes, binds
// before the root turns read-only, the bounding set before the capabilities that may shrink it,
// no_new_privs last of these, then Landlock, under which nobody mounts, then seccomp, which forbids the
// calls themselves. A control group is the gateway's to make, between the clone and the steps.
package jail

import (
	"fmt"
	"path/filepath"
	"time"

	"bailey"
)

// Config is what every cage of a Jail has in common. Its zero value is safe.
type Config struct {
	// HostUID is the first user and group id that cages have outside when the gateway is root: each cage has one of the 512 from there on,
	// or all have the first where the others are not mapped. Zero is [DefaultHostUID]. The first must be mapped where the gateway runs;
	// none may belong to a user.
	HostUID int
	// Mask lists absolute paths no cage may show: a place at or beneath one is refused, one beneath a
	// place is covered by something empty.
	Mask []string
	// Warn is told why calls that could have had a warm helper have none; nil is nobody.
	Warn func(error)
	// OnDemand has warm helpers make nothing of a call before it comes.
	OnDemand bool
	// Grace is the time between SIGTERM and SIGKILL. Zero is [DefaultGrace].
	Grace time.Duration
	// Answer is how long a warm helper may take for each of its answers. Zero is [DefaultAnswer].
	Answer time.Duration
	// Reluctance is how long a lesser cage's keeper may take to end a call when it is told to. Zero is [DefaultReluctance].
	Reluctance time.Duration
}

// What a Jail waits for unless its Config says otherwise.
const (
	DefaultGrace      = time.Second
	DefaultAnswer     = 10 * time.Second // answers come in milliseconds
	DefaultReluctance = 5 * time.Second  // an end takes milliseconds
)

// masks are Mask, clean.
func (c Config) masks() (list []string, err error) {
	for _, m := range c.Mask {
		if !filepath.IsAbs(m) {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("mask %q is not an absolute path", m)}
		}
		list = append(list, filepath.Clean(m))
	}
	return list, nil
}

// DefaultHostUID lies above the ranges systemd allocates to containers (524288 to 1879048191,
// systemd's UIDS-GIDS.md) and below 2^31, which some tools still take for a sign.
const DefaultHostUID = 1979000000

// searchPath is PATH, outside when a command is looked up and inside for the tool. Never the caller's.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
