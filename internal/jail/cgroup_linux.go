package jail

import (
	"crypto/rand"
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

// A site is the group of one gateway in one hierarchy. Its lock is held as long as the gateway lives, so that other
// gateways can recognize the site of a dead gateway and sweep it. The base above it, one per user, is locked only while
// sites are made and removed.
type gatewayCgroup struct {
	hierarchy
	parent string // the group that contains base
	base   string
	dir    string // the site itself
	lock   int    // descriptor of dir with a flock(2)
	moved  bool   // this process is in dir/self
	all    bounds // of all calls together
}

// openSite makes a site below the first parent that permits it.
func openSite(h hierarchy, uid int) (*gatewayCgroup, error) {
	parents, err := h.parentCandidates(uid == 0)
	if err != nil {
		return nil, err
	}
	if err := h.checkCgroupFS(); err != nil {
		return nil, err
	}
	var errs []error
	for _, parent := range parents {
		s := &gatewayCgroup{hierarchy: h, parent: parent, base: path.Join(parent, basePrefix+strconv.Itoa(uid)),
			lock: -1}
		if err := s.createGroup(); err != nil {
			errs = append(errs, err)
			continue
		}
		return s, nil
	}
	return nil, errors.Join(errs...)
}

// checkCgroupFS refuses a directory that is not a control group: a limit written to an ordinary file limits nothing.
func (h hierarchy) checkCgroupFS() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(h.mount, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: h.mount, Err: err}
	}
	if want := map[int]int64{1: unix.CGROUP_SUPER_MAGIC,
		2: unix.CGROUP2_SUPER_MAGIC}[h.version]; int64(fs.Type) != want {
		return fmt.Errorf("%s is not a hierarchy of control groups of version %d", h.mount, h.version)
	}
	return nil
}

func (s *gatewayCgroup) createGroup() error {
	base, err := s.lockBase()
	if err != nil {
		return err
	}
	defer unix.Close(base)
	s.sweepDead()
	var random [4]byte
	rand.Read(random[:])
	s.dir = path.Join(s.base, fmt.Sprintf("%d-%x", os.Getpid(), random))
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		unix.Rmdir(s.base)
		return err
	}
	if s.lock, err = openLocked(s.dir); err == nil && s.version == 2 {
		err = s.enableControllers()
	}
	if err == nil {
		err = s.boundAll()
	}
	if err != nil {
		s.removeLocked()
	}
	return err
}

// boundAll bounds the use of all calls of this gateway together.
func (s *gatewayCgroup) boundAll() error {
	var err error
	if s.all, err = gatewayBounds(readKnob("/proc/meminfo"), readKnob("/proc/sys/kernel/threads-max")); err != nil {
		return err
	}
	if s.version == 1 && slices.Contains(s.controllers, "memory") { // otherwise only processes in the site itself count
		if file := path.Join(s.dir, "memory.use_hierarchy"); strings.TrimSpace(readKnob(file)) != "1" {
			if err := writeKnob(file, "1"); err != nil {
				return err
			}
		}
	}
	return writeSettings(s.dir, s.limitSettings(s.all))
}

// lockBase makes the base if it does not exist, and returns it locked. No other user may open the base, or that user
// could hold the lock. The last holder may have removed the base meanwhile: then the locked directory is no longer the
// one with this name.
func (s *gatewayCgroup) lockBase() (int, error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Mkdir(s.base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return -1, err
		}
		fd, err := openLocked(s.base)
		if err == nil && isSameDir(fd, s.base) {
			return fd, nil
		}
		if err == nil {
			unix.Close(fd)
		}
		if time.Now().After(end) {
			return -1, fmt.Errorf("%s stays locked by another process: %w", s.base, unix.EAGAIN)
		}
	}
}

// openLocked opens a directory and locks it, or fails at once if it is locked.
func openLocked(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return fd, nil
}

func isSameDir(fd int, name string) bool {
	var opened, named unix.Stat_t
	return unix.Fstat(fd, &opened) == nil && unix.Lstat(name, &named) == nil && opened.Dev == named.Dev &&
		opened.Ino == named.Ino
}

// sweepDead removes the sites of dead gateways; the lock of a live one cannot be taken. The caller must hold the base
// locked.
func (s *gatewayCgroup) sweepDead() {
	entries, err := os.ReadDir(s.base)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := path.Join(s.base, e.Name())
		if !e.IsDir() {
			continue
		}
		if fd, err := openLocked(dir); err == nil {
			clearSite(dir)
			unix.Close(fd)
		}
	}
}

// clearSite removes a site with the groups in it. It ends only the processes that are left in the group of a call: self
// may contain a live process that is no longer a gateway.
func clearSite(dir string) error {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && strings.HasPrefix(e.Name(), callPrefix):
			clearGroup(name, sweepPatience)
		case e.IsDir():
			unix.Rmdir(name)
		}
	}
	return unix.Rmdir(dir)
}

// enableControllers makes the controllers available to the groups of calls. The needed controllers must exist; a CPU weight is
// used if it is available.
func (s *gatewayCgroup) enableControllers() error {
	offered := strings.Fields(readKnob(path.Join(s.parent, "cgroup.controllers")))
	var have []string
	for _, c := range s.controllers {
		if slices.Contains(offered, c) {
			have = append(have, c)
		} else if slices.Contains(wantedControllers[:needed], c) {
			return fmt.Errorf("%s has no controller %s: %w", s.parent, c, unix.ENODEV)
		}
	}
	err := s.delegateControllers(have)
	if k := slices.Index(have, "cpu"); err != nil && k >= 0 { // cpu fails if there are realtime processes
		have = slices.Delete(have, k, k+1)
		err = s.delegateControllers(have)
	}
	s.controllers = have
	return err
}

// delegateControllers enables the controllers in parent, base and site in turn.
func (s *gatewayCgroup) delegateControllers(controllers []string) error {
	value := "+" + strings.Join(controllers, " +")
	for _, dir := range []string{s.parent, s.base, s.dir} {
		file := path.Join(dir, "cgroup.subtree_control")
		err := writeKnob(file, value)
		if errors.Is(err, unix.EBUSY) && !s.moved { // the parent has processes: perhaps only this one
			if err = s.moveToLeaf(); err == nil {
				err = writeKnob(file, value)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveToLeaf moves this process into a leaf group: in version 2 a group that enables controllers for its children must not
// have processes itself, except the root (cgroups(7), "no internal processes").
func (s *gatewayCgroup) moveToLeaf() error {
	leaf := path.Join(s.dir, selfName)
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	s.moved = true
	return writeKnob(path.Join(leaf, "cgroup.procs"), strconv.Itoa(os.Getpid()))
}

// removeGroup removes the site, and the base if no other gateway has a site there. A process that moved into its site cannot
// leave it, since the parent may enable controllers for others: it stays there, locked, until it ends.
func (s *gatewayCgroup) removeGroup() {
	if s.moved {
		entries, _ := os.ReadDir(s.dir)
		for _, e := range entries {
			if e.IsDir() && e.Name() != selfName {
				clearGroup(path.Join(s.dir, e.Name()), patience)
			}
		}
		return
	}
	if base, err := s.lockBase(); err == nil {
		s.sweepDead()
		s.removeLocked()
		unix.Close(base)
	}
}

// removeLocked removes an incomplete site. The caller must hold the base locked.
func (s *gatewayCgroup) removeLocked() {
	if s.moved { // the parent enables no controllers, or this process could not have been in its way
		writeKnob(path.Join(s.parent, "cgroup.procs"), strconv.Itoa(os.Getpid()))
	}
	clearSite(s.dir)
	unix.Rmdir(s.base)
	if s.lock >= 0 {
		unix.Close(s.lock)
	}
	s.lock = -1
}

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
