package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupManager holds the sites of one gateway, one in each hierarchy, where it makes a group for each call.
type cgroupManager struct {
	sites []*gatewayCgroup
	next  atomic.Uint64
	gone  sync.WaitGroup // removals that run

	closing chan struct{} // closed when the gateway no longer needs the groups
}

// openGroups opens a site in every hierarchy that a cage needs, or returns why it cannot.
func openGroups(uid int) (*cgroupManager, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	hierarchies, err := findHierarchies(string(own), string(mountinfo))
	if err != nil {
		return nil, err
	}
	g := &cgroupManager{closing: make(chan struct{})}
	for _, h := range hierarchies {
		s, err := openSite(h, uid)
		switch {
		case err == nil:
			g.sites = append(g.sites, s)
		// a hierarchy of version 1 without an indispensable controller
		case slices.Equal(h.controllers, wantedControllers[needed:]):
		default:
			g.removeAll()
			return nil, err
		}
	}
	g.gone.Go(g.sweepAgain)
	return g, nil
}

// sweepAgain removes groups that were not yet empty when the sites were opened: the cages of a killed gateway end only
// when they notice its death.
func (g *cgroupManager) sweepAgain() {
	select {
	case <-g.closing:
		return
	case <-time.After(secondSweep):
	}
	for _, s := range g.sites {
		if base, err := s.lockBase(); err == nil {
			s.sweepDead()
			unix.Close(base)
		}
	}
}

// describePaths describes for a person where the groups are.
func (g *cgroupManager) describePaths() string {
	var words []string
	for _, s := range g.sites {
		words = append(words, fmt.Sprintf("%s in %s (version %d)", strings.Join(s.controllers, ", "), s.base, s.version))
	}
	return strings.Join(words, "; ")
}

// testLimits makes a group, limits it, and compares the limits that it reads back.
func (g *cgroupManager) testLimits() error {
	c := g.nextCgroup()
	defer c.removeDirs()
	for _, s := range g.sites {
		dir := path.Join(s.dir, c.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		list := append(s.sharedSettings(), s.limitSettings(c.bounds)...)
		if err := writeSettings(dir, list); err != nil {
			return err
		}
		if err := verifySettings(dir, list); err != nil {
			return err
		}
		if err := verifySettings(s.dir, s.limitSettings(s.all)); err != nil {
			return err
		}
	}
	return nil
}

// verifySettings compares settings with the values that were written.
func verifySettings(dir string, list []setting) error {
	for _, want := range list {
		if got := strings.TrimSpace(readKnob(path.Join(dir, want.file))); got != want.value && !want.optional {
			return fmt.Errorf("%s says %q after %s was written", path.Join(dir, want.file), got, want.value)
		}
	}
	return nil
}

// removeAll removes everything that the gateway made. Its cages must have ended.
func (g *cgroupManager) removeAll() {
	close(g.closing)
	g.gone.Wait()
	for _, s := range g.sites {
		s.removeGroup()
	}
}

// A cgroup is the control group of one cage: a directory in each hierarchy.
type cgroup struct {
	groups *cgroupManager
	name   string
	bounds bounds
}

// defaultBounds returns the bounds of a call whose manifest sets none. A group is made with them before its call is known.
func (g *cgroupManager) defaultBounds() bounds {
	b := bounds{layer: layerCgroup, memory: defaultData, tasks: defaultTasks + ownTasks}
	if slices.ContainsFunc(g.sites, func(s *gatewayCgroup) bool { return slices.Contains(s.controllers, "cpu") }) {
		b.weight = usualWeight
	}
	return b
}

// nextCgroup returns a group that has not been made yet.
func (g *cgroupManager) nextCgroup() *cgroup {
	return &cgroup{groups: g, name: callPrefix + strconv.FormatUint(g.next.Add(1), 10), bounds: g.defaultBounds()}
}

// createCgroup makes a group and puts a process into it. The cage's other processes start in that group.
func (g *cgroupManager) createCgroup(pid int) (*cgroup, error) {
	c := g.nextCgroup()
	for _, s := range g.sites {
		dir := path.Join(s.dir, c.name)
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			err = writeSettings(dir, append(s.sharedSettings(), s.limitSettings(c.bounds)...))
		}
		if err == nil {
			err = writeKnob(path.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
		}
		if err != nil {
			// The process must leave the groups before they can be removed. The caller must end it.
			g.gone.Go(c.removeDirs)
			return nil, err
		}
	}
	return c, nil
}

func (c *cgroup) layerName() string { return layerCgroup }

func (c *cgroup) setBounds(b bounds) error {
	if b == c.bounds {
		return nil
	}
	for _, s := range c.groups.sites {
		list := s.limitSettings(b)
		if b.memory > c.bounds.memory {
			slices.Reverse(list)
		}
		if err := writeSettings(path.Join(s.dir, c.name), list); err != nil {
			return err
		}
	}
	c.bounds = b
	return nil
}

// stopEnforcing returns the result of over, and has the group removed: that takes longer than a call should wait.
func (c *cgroup) stopEnforcing() (over string) {
	over = c.exceededBound()
	c.groups.gone.Go(c.removeDirs)
	return over
}

// exceededBound returns a message if the kernel had to kill processes for lack of memory.
func (c *cgroup) exceededBound() (over string) {
	for _, s := range c.groups.sites {
		if slices.Contains(s.controllers, "memory") &&
			oomKillCount(readKnob(path.Join(s.dir, c.name, s.eventsFile()))) > 0 {
			over = c.bounds.overMemory()
		}
	}
	return over
}

func (c *cgroup) removeDirs() {
	for _, s := range c.groups.sites {
		clearGroup(path.Join(s.dir, c.name), patience)
	}
}

// eventsFile returns the name of the file that counts kills for lack of memory.
func (h hierarchy) eventsFile() string {
	if h.version == 1 {
		return "memory.oom_control"
	}
	return "memory.events"
}

// How long a removal is tried: of a call's group, which its processes have just left, and of groups of a dead gateway,
// while others wait for the base. secondSweep is the delay of sweepAgain.
const (
	patience      = 2 * time.Second
	sweepPatience = 20 * time.Millisecond
	secondSweep   = 2 * time.Second
)

// clearGroup removes one group. If processes live in it although its PID 1 is gone (no case is known), they are killed
// if the kernel can do so (version 2, Linux 5.14). A group that stays is left to the next gateway's sweep.
func clearGroup(dir string, patience time.Duration) {
	end := time.Now().Add(patience)
	for wait := time.Millisecond; unix.Rmdir(dir) == unix.EBUSY && time.Now().Before(end); wait *= 2 {
		writeKnob(path.Join(dir, "cgroup.kill"), "1")
		time.Sleep(wait)
	}
}

// writeSettings writes all settings. If one fails, the error names it.
func writeSettings(dir string, list []setting) error {
	for _, s := range list {
		if err := writeKnob(path.Join(dir, s.file), s.value); err != nil &&
			!(s.optional && errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

// writeKnob writes a value to an existing file. Control group files take one write and answer with its errno.
func writeKnob(file, value string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Write(fd, []byte(value))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write " + value + " to", Path: file, Err: err}
		}
		return nil
	}
}

// readKnob returns the content of a short file, or "" if it cannot.
func readKnob(file string) string {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [4096]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return ""
	}
	return string(b[:n])
}
