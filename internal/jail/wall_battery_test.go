//go:build linux

package jail

import (
	"regexp"
	"testing"

	"bailey/internal/jail/battery"
)

// granted lists the probes whose result differs in an agent jail by design, with that result. Any other result of
// theirs, and any open probe that is not listed, is a hole.
var granted = map[string]string{
	// bailey.Wall.Run: the agent may execute files that it may write.
	"mount/attributes":           `^(/home/bailey|/\S+/rw) lacks 0x8, (/home/bailey|/\S+/rw) lacks 0x8$`,
	"exec/place-writable":        `^another program ran`,
	"exec/copy-in-home":          `^another program ran`,
	"exec/copy-in-place":         `^another program ran`,
	"exec/unnamed-file-in-place": `^another program ran`,
	"exec/loader-place-writable": `/rw/true\] ran$`,
	// bailey.Wall.Trees: programs of the host, without additional rights.
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
	// bailey.Wall.Pty, and names that shells expect, which lead to the cage's own.
	"device/list":          `^/dev/(fd|ptmx|pts|shm|std(in|out|err))$`,
	"device/open-ptmx":     `/dev/ptmx is open`,
	"device/open-pts-ptmx": `/dev/pts/ptmx is open`,
	"device/open-shm":      `/dev/shm is open`,
	"device/open-fd":       `/dev/fd is open`,
	// bailey.Wall.Unix: sockets, but no process of the host at the other end.
	"network/families":                 `^1/1: a socket; 1/2: a socket; 1/5: a socket$`,
	"network/pairs":                    `^1/2: a socket$`,
	"network/abstract-socket":          `connection refused$`,
	"network/socket-in-readonly-place": `connection refused$`,
	"network/socket-in-writable-place": `connection refused$`,
	"network/datagrams-in-place":       `connection refused$`,
	"network/pair-redirected":          `^send to datagrams: connection refused; .*connection refused`,
	// The directories of an agent are larger, and limited only by its memory.
	"resource/home":   `^more than its size$`,
	"resource/inodes": `^20000 of them$`,
	// Programs of the agent watch files, within the limit of its user.
	"resource/watches": `^16 of them$`,
}

// grants tells whether an agent jail explains a probe's result.
func (s *stage) grants(name string, r battery.Result) bool {
	want, ok := granted[name]
	return s.Wall && ok && regexp.MustCompile(want).MatchString(r.Open+r.Odd)
}

// wallStage runs every probe in an agent jail.
func wallStage(t *testing.T) (*Jail, *stage) {
	j, s := full(t, true)
	s.Wall = true
	return j, s
}

// TestWallGrantsProbes checks that each entry of granted names a probe.
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
