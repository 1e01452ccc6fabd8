//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"bailey"
)

// bounds limit a cage as a whole, all its processes together. They are enforced from outside: by a control group, or by
// the watcher if no group can be made.
type bounds struct {
	layer  string // layerCgroup or layerWatcher
	memory uint64 // bytes
	tasks  uint64 // processes and threads, including those of PID 1
	weight uint64 // share of the processors, by default 100; 0 if not weighted
	spared bool   // if the machine runs out of memory, the kernel may kill others before this cage's processes
}

const (
	layerCgroup  = "cgroup"
	layerWatcher = "watcher"
	usualWeight  = 100
)

// A hold enforces the bounds of one cage, from before its start request until its PID 1 is gone.
type boundsEnforcer interface {
	layerName() string
	setBounds(bounds) error // must be called once, before the start request
	stopEnforcing() string  // must be called once; returns the bound that was exceeded, or ""
}

// appendText adds the bounds to the canonical text of a plan.
func (b bounds) appendText(text []byte) []byte {
	if b.layer == "" {
		return text
	}
	text = append(append(text, b.layer...), " memory "...)
	text = strconv.AppendUint(text, b.memory, 10)
	text = strconv.AppendUint(append(text, " tasks "...), b.tasks, 10)
	if b.weight > 0 {
		text = strconv.AppendUint(append(text, " cpu "...), b.weight, 10)
	}
	if !b.spared {
		text = append(text, " oom-first"...)
	}
	return append(text, '\n')
}

// absentLayers returns the layers that a cage with these bounds does not have.
func (b bounds) absentLayers() []string {
	if b.layer == layerWatcher {
		return []string{layerCgroup}
	}
	return nil
}

// protectionGaps returns the protections that the layer lacks.
func (b bounds) protectionGaps() (parts []string) {
	switch {
	case b.layer == layerWatcher:
		parts = append(parts, "watcher: System V segments that no process maps, what the kernel keeps for the tool (buffers of sockets and pipes, file locks), and a bound for all calls together")
	case b.layer == layerCgroup && b.weight == 0:
		parts = append(parts, "cgroup: CPU weight")
	}
	if b.spared {
		parts = append(parts, b.layer+": an end before other processes when the machine runs out of memory")
	}
	return parts
}

// overMemory and overTasks return the message that a bound was exceeded.
func (b bounds) overMemory() string {
	return fmt.Sprintf("the tool used more than %d MiB of memory in all", b.memory>>20)
}

func (b bounds) overTasks() string {
	return fmt.Sprintf("the tool used more than %d tasks", b.tasks)
}

// A holder knows whether this gateway can make control groups. It looks for a site when it is first asked.
type enforcerFactory struct {
	mu     sync.Mutex
	asked  bool           // guarded by mu
	groups *cgroupManager // nil if cages are watched; guarded by mu
	why    error          // reason if groups is nil; guarded by mu
	spares bool           // oom_score_adj cannot be set; guarded by mu

	looking sync.WaitGroup // watchers that run
}

func (h *enforcerFactory) openCgroups() (*cgroupManager, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked {
		h.groups, h.why = openGroups(os.Geteuid())
		h.spares = writeKnob("/proc/self/oom_score_adj", strings.TrimSpace(readKnob("/proc/self/oom_score_adj"))) != nil
		h.asked = true
	}
	return h.groups, h.why
}

// removeCgroups removes all groups. A later call looks for a site again.
func (h *enforcerFactory) removeCgroups() {
	h.looking.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups != nil {
		h.groups.removeAll()
	}
	h.asked, h.groups, h.why = false, nil, nil
}

// boundsFor returns those of a call on this host.
func (h *enforcerFactory) boundsFor(l bailey.Limits) bounds {
	b := bounds{layer: layerWatcher, memory: defaultData, tasks: defaultTasks + ownTasks}
	if g, _ := h.openCgroups(); g != nil {
		b = g.defaultBounds()
	}
	b.spared = h.isOOMSpared()
	if l.MemoryBytes > 0 {
		b.memory = uint64(l.MemoryBytes)
	}
	if l.Tasks > 0 {
		b.tasks = uint64(l.Tasks) + ownTasks
	}
	return b
}

// checkLayers completes the results for the layers. If cages are watched, it adds the missing cgroup layer with the reason.
// If control groups hold them, it makes a group for this test and reads its limits back.
func (h *enforcerFactory) checkLayers(layers []Layer) []Layer {
	g, why := h.openCgroups()
	if g == nil {
		return append(layers, Layer{Name: layerCgroup, How: "looked for a place to create control groups", Err: noCgroupError(why)})
	}
	for i := range layers {
		if l := &layers[i]; l.Name == layerCgroup && l.Err == nil {
			l.How = "created a group and read its limits back, " + g.describePaths()
			if err := g.testLimits(); err != nil {
				l.Err = layerUnavailable(layerCgroup, err)
			}
		}
	}
	return layers
}

// errUnheld marks a PID 1 that was started but could not be bounded.
var errUnheld = errors.New("the new jail")

func (h *enforcerFactory) isOOMSpared() bool {
	h.openCgroups()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spares
}

// firstToGo is the highest value of proc_pid_oom_score_adj(5): if the machine runs out of memory, the kernel kills
// these processes first. That also frees kernel memory that the tool uses and that no bound counts.
const firstToGo = "1000"

// newEnforcer puts a PID 1 that waits for its start request under a control group or a watcher. Its descendants inherit that.
func (h *enforcerFactory) newEnforcer(p *os.Process) (boundsEnforcer, error) {
	g, _ := h.openCgroups()
	if !h.isOOMSpared() {
		if err := writeKnob("/proc/"+strconv.Itoa(p.Pid)+"/oom_score_adj", firstToGo); err != nil {
			return nil, layerUnavailable(layerWatcher, fmt.Errorf("%w: %w", errUnheld, err))
		}
	}
	if g != nil {
		held, err := g.createCgroup(p.Pid)
		if err != nil {
			return nil, layerUnavailable(layerCgroup, fmt.Errorf("%w: %w", errUnheld, err))
		}
		return held, nil
	}
	w, err := newWatch(p, &h.looking)
	if err != nil {
		return nil, layerUnavailable(layerWatcher, fmt.Errorf("%w: %w", errUnheld, err))
	}
	return w, nil
}

// applyBounds applies the plan's bounds to the child. The plan must name the layer that holds the child.
func (c *child) applyBounds(b bounds) error {
	if b.layer != c.hold.layerName() {
		return layerUnavailable(layerCgroup,
			fmt.Errorf("the plan requires %q, but the jail has %s", b.layer, c.hold.layerName()))
	}
	if err := c.hold.setBounds(b); err != nil {
		return layerUnavailable(b.layer, err)
	}
	return nil
}
