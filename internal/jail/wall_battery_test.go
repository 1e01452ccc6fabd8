//go:build linux

package jail

import (
	"regexp"
	"testing"

	"bailey/internal/jail/battery"
)

// granted are the probes whose answer is another one in the cage of an agent, and what it is there, by design. Any other
// answer of theirs is a hole, and so is every probe that is open and does not stand here.
var granted = map[string]string{
	// bailey.Wall.Run: what the agent may write it may execute.
	"mount/attributes":           `^(/home/bailey|/\S+/rw) lacks 0x8, (/home/bailey|/\S+/rw) lacks 0x8$`,
	"exec/place-writable":        `^another program ran`,
	"exec/copy-in-home":          `^another program ran`,
	"exec/copy-in-place":         `^another program ran`,
	"exec/unnamed-file-in-place": `^another program ran`,
	"exec/loader-place-writable": `/rw/true\] ran$`,
	// bailey.Wall.Trees: the host's programs, with no more rights than any other.
	"exec/library":        `^something ran`,
	"exec/host-sh":        `^something ran`,
	"exec/host-bash":      `^something ran`,
	"exec/host-python3":   `^something ran`,
	"exec/host-perl":      `^something ran`,
	"exec/host-busybox":   `^something ran`,
	"exec/host-env":       `^something ran`,
	"exec/host-sudo":      `^something ran`,
	"exec/host-newuidmap": `^something ran`,
	"exec/host-mount":     `^something ran`,
	// bailey.Wall.Pty, and names that shells look for, which lead to the cage's own.
	"device/list":          `^/dev/(fd|ptmx|pts|shm|std(in|out|err))$`,
	"device/open-ptmx":     `/dev/ptmx is open`,
	"device/open-pts-ptmx": `/dev/pts/ptmx is open`,
	"device/open-shm":      `/dev/shm is open`,
	"device/open-fd":       `/dev/fd is open`,
	// bailey.Wall.Unix: sockets, and nobody of the host's at the other end.
	"network/families":                 `^1/1: a socket; 1/2: a socket; 1/5: a socket$`,
	"network/pairs":                    `^1/2: a socket$`,
	"network/abstract-socket":          `connection refused$`,
	"network/socket-in-readonly-place": `connection refused$`,
	"network/socket-in-writable-place": `connection refused$`,
	"network/datagrams-in-place":       `connection refused$`,
	"network/pair-redirected":          `^send to datagrams: connection refused; .*connection refused`,
	// An agent's directories are larger, and all of its memory bounds them.
	"resource/home":   `^more than its size$`,
	"resource/inodes": `^20000 of them$`,
	// Its programs watch files, within what its user may have.
	"resource/watches": `^16 of them$`,
}

// grants tells whether a wall makes a probe's answer what it is.
func (s *stage) grants(name string, r battery.Result) bool {
	want, ok := granted[name]
	return s.Wall && ok && regexp.MustCompile(want).MatchString(r.Open+r.Odd)
}

// wallStage has every probe run in the cage of an agent.
func wallStage(t *testing.T) (*Jail, *stage) {
	j, s := full(t, true)
	s.Wall = true
	return j, s
}

// TestWallGrantsProbes: each probe that may answer otherwise is one.
func TestWallGrantsProbes(t *testing.T) {
	probes := map[string]bool{}
	for _, p := range battery.Probes() {
		probes[p.Name] = true
	}
	for name := range granted {
		if !probes[name] {
			t.Errorf("%s is no probe", name)
		}
	}
}
