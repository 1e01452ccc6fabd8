//go:build linux

package jail

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A hierarchy is one mounted tree of control groups (cgroups(7)) as this process sees it. In version 2 all controllers
// share one tree. In version 1 a controller has its own tree or shares one with a few others.
type hierarchy struct {
	version     int
	controllers []string // those of wanted that it has
	mount       string   // mount point
	own         string   // this process's group, an absolute path below mount; "" if it is not visible
	readOnly    bool
}

// wantedControllers lists the controllers of a cage, the indispensable ones first.
var wantedControllers = [...]string{"memory", "pids", "cpu"}

// needed is how many of wanted must exist.
const needed = 2

// findHierarchies finds the hierarchies with the wanted controllers. Its arguments are the texts of /proc/self/cgroup and
// /proc/self/mountinfo.
func findHierarchies(groups, mountinfo string) ([]hierarchy, error) {
	mounts := cgroupMounts(mountinfo)
	var found []hierarchy
	for i, c := range wantedControllers {
		version, own, ok := ownCgroup(groups, c)
		h, mounted := pickMount(mounts, version, c)
		if !ok || !mounted {
			if i < needed {
				return nil, fmt.Errorf("the controller %s is not mounted", c)
			}
			continue
		}
		if k := slices.IndexFunc(found, func(f hierarchy) bool { return f.mount == h.point }); k >= 0 {
			found[k].controllers = append(found[k].controllers, c)
			continue
		}
		found = append(found, hierarchy{version: version, controllers: []string{c}, mount: h.point,
			own: relativeTo(h.root, own), readOnly: h.readOnly})
	}
	return found, nil
}

// ownCgroup returns the hierarchy's version and this process's group for a controller. A line of version 1 names its
// controllers. A controller that no line names belongs to version 2, whose line begins with 0:: (cgroups(7)).
func ownCgroup(groups, controller string) (version int, own string, ok bool) {
	for line := range strings.Lines(groups) {
		w := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(w) != 3 {
			continue
		}
		if slices.Contains(strings.Split(w[1], ","), controller) {
			return 1, w[2], true
		}
		if w[0] == "0" && w[1] == "" {
			version, own, ok = 2, w[2], true
		}
	}
	return version, own, ok
}

// A cgroupMount is a line of mountinfo that describes a mount of control groups.
type cgroupMount struct {
	version     int
	root, point string
	readOnly    bool
	options     []string // in version 1 they include the controllers
}

// cgroupMounts returns the mounts that no later mount covers (proc_pid_mountinfo(5)).
func cgroupMounts(mountinfo string) (mounts []cgroupMount) {
	for line := range strings.Lines(mountinfo) {
		head, tail, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		w, super := strings.Split(head, " "), strings.Split(tail, " ")
		if len(w) < 6 || len(super) < 3 {
			continue
		}
		m := cgroupMount{root: decodeOctal(w[3]), point: decodeOctal(w[4]), options: strings.Split(super[2], ",")}
		if !path.IsAbs(m.point) || path.Clean(m.point) != m.point {
			continue
		}
		mounts = slices.DeleteFunc(mounts, func(old cgroupMount) bool {
			return old.point == m.point || relativeTo(m.point, old.point) != ""
		})
		m.readOnly = slices.Contains(strings.Split(w[5], ","), "ro") || slices.Contains(m.options, "ro")
		switch super[0] {
		case "cgroup":
			m.version = 1
		case "cgroup2":
			m.version = 2
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// pickMount returns the first mount of a controller, but prefers a writable one.
func pickMount(mounts []cgroupMount, version int, controller string) (found cgroupMount, ok bool) {
	for _, m := range mounts {
		if m.version != version || version == 1 && !slices.Contains(m.options, controller) {
			continue
		}
		if !m.readOnly {
			return m, true
		}
		if !ok {
			found, ok = m, true
		}
	}
	return found, ok
}

// relativeTo returns p relative to root as an absolute path: "/" if p is root, and "" if p is not in root. A group outside
// the cgroup namespace begins with /.. (cgroup_namespaces(7)).
func relativeTo(root, p string) string {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/.." || strings.HasPrefix(p, "/../") ||
		strings.HasSuffix(p, " (deleted)") {
		return ""
	}
	if root == "/" {
		return p
	}
	if rest, ok := strings.CutPrefix(p, root); ok && (rest == "" || rest[0] == '/') {
		return path.Join("/", rest)
	}
	return ""
}

// decodeOctal decodes the octal escapes of space, tab, newline and backslash.
func decodeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Names within a hierarchy: PARENT/bailey-UID/GATEWAY/CALL. If the gateway had to leave its group, it is in
// GATEWAY/self, since in version 2 only leaves may hold processes.
const (
	basePrefix = "bailey-"
	selfName   = "self"
	callPrefix = "call-"
)

// parentCandidates returns the groups below which a gateway may make its groups, best first: for root the top of the mounted
// tree, for every user the gateway's own group, which must have been delegated.
func (h hierarchy) parentCandidates(root bool) ([]string, error) {
	if h.readOnly {
		return nil, fmt.Errorf("%s: %w", h.mount, errReadOnly)
	}
	var dirs []string
	if root {
		dirs = append(dirs, h.mount)
	}
	if h.own != "" {
		dirs = append(dirs, path.Join(h.mount, originalGroup(h.own)))
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s does not show the gateway's own group", h.mount)
	}
	return slices.Compact(dirs), nil
}

var errReadOnly = errors.New("control groups are mounted read-only")

// originalGroup returns the group in which a gateway was started, even if it has moved to a leaf of its own.
func originalGroup(own string) string {
	gateway := path.Dir(own)
	base := path.Dir(gateway)
	if path.Base(own) == selfName && strings.HasPrefix(path.Base(base), basePrefix) {
		return path.Dir(base)
	}
	return own
}

// A setting is a file of a group and the value to write.
type setting struct {
	file, value string
	optional    bool // skipped if the kernel does not have the file
}

// sharedSettings returns the settings that the groups of all calls share.
func (h hierarchy) sharedSettings() (list []setting) {
	for _, c := range h.controllers {
		switch {
		case c == "memory" && h.version == 2:
			list = append(list, setting{"memory.swap.max", "0", true}, // missing if swap is not accounted
				setting{"memory.oom.group", "1", true}) // since Linux 4.19
		case c == "cpu" && h.version == 2:
			list = append(list, setting{"cpu.weight", "100", false})
		case c == "cpu":
			list = append(list, setting{"cpu.shares", "1024", false}) // equals weight 100 of version 2
		}
	}
	return list
}

// limitSettings returns the settings of one call, in the order for lowering them: in version 1 the limit of memory and swap
// together must never be below that of memory. To raise them, the caller must reverse the order.
func (h hierarchy) limitSettings(b bounds) (list []setting) {
	memory, tasks := strconv.FormatUint(b.memory, 10), strconv.FormatUint(b.tasks, 10)
	for _, c := range h.controllers {
		switch {
		case c == "memory" && h.version == 2:
			list = append(list, setting{"memory.max", memory, false})
		case c == "memory":
			list = append(list, setting{"memory.limit_in_bytes", memory, false},
				setting{"memory.memsw.limit_in_bytes", memory, true},
				setting{"memory.kmem.tcp.limit_in_bytes", memory, true}) // which version 1 counts separately
		case c == "pids":
			list = append(list, setting{"pids.max", tasks, false})
		}
	}
	return list
}

// mostTasks is the highest value that pids.max accepts (PID_MAX_LIMIT in linux/threads.h).
const mostTasks = 4 << 20

// gatewayBounds returns the bounds of all calls of a gateway: three quarters of the machine's memory and half of its tasks.
// Its arguments are the texts of /proc/meminfo and /proc/sys/kernel/threads-max.
func gatewayBounds(meminfo, threads string) (b bounds, err error) {
	if n, found := sumKilobytes([]byte(meminfo), "MemTotal:"); found == 1 {
		b.memory = n / 4 * 3 &^ 0xffff // a multiple of any page size, so that it reads back unchanged
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(threads), 10, 64)
	if b.tasks = min(n/2, mostTasks); b.memory == 0 || b.tasks == 0 {
		return b, errors.New("/proc does not show this machine's memory and task limit")
	}
	return b, nil
}

// oomKillCount reads how many processes of a group the kernel killed for lack of memory, from memory.events of version 2 or
// memory.oom_control of version 1.
func oomKillCount(events string) (n uint64) {
	for line := range strings.Lines(events) {
		if number, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ = strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		}
	}
	return n
}
