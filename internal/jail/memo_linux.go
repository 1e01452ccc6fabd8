package jail

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"bailey"
	"bailey/internal/jail/inside"
)

// A sketch holds everything besides the layout on which a plan depends. If both are the same as last time, so is the
// plan. The layout itself is made again for each call, with all its checks.
type planKey struct {
	command, dir string
	env          string // names only
	lent         string
	limits       bailey.Limits
	ceilings     [len(boundedResources)]uint64
	bounds       bounds
	tty, wall    bool
}

// A memo is the plan that was made from a sketch and a layout. It is immutable.
type cachedPlan struct {
	layout *layout
	plan   *plan
	cage   bailey.Cage // without programs
}

// planCache is a cache of plans.
type planCache struct {
	mu   sync.Mutex
	seen map[planKey]*cachedPlan // guarded by mu
}

const maxMemos = 128

func (m *planCache) findPlan(s planKey, l *layout) *cachedPlan {
	m.mu.Lock()
	found := m.seen[s]
	m.mu.Unlock()
	if found == nil || !l.isCacheable() || !found.layout.hasSameSteps(l) {
		return nil
	}
	return found
}

func (m *planCache) storePlan(s planKey, made *cachedPlan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil || len(m.seen) >= maxMemos {
		m.seen = map[planKey]*cachedPlan{}
	}
	m.seen[s] = made
}

// isCacheable reports whether the layout and a sketch hold everything on which the plan depends. That is not so for a
// network, or for an agent jail with more than trees.
func (l *layout) isCacheable() bool {
	var more bailey.Wall
	if l.wall != nil {
		more = *l.wall
	}
	more.Trees = nil // trees are binds
	return l.net == nil && reflect.ValueOf(more).IsZero()
}

// hasSameSteps reports whether two layouts result in the same steps, whatever descriptors their places have.
func (l *layout) hasSameSteps(o *layout) bool {
	return l.proc == o.proc && l.empty == o.empty && slices.Equal(l.masks, o.masks) && slices.Equal(l.lent, o.lent) &&
		maps.Equal(l.links, o.links) &&
		maps.Equal(l.files, o.files) && maps.EqualFunc(l.binds, o.binds, bind.isSameBind)
}

func (b bind) isSameBind(o bind) bool {
	if (b.place == nil) != (o.place == nil) || (b.copy == nil) != (o.copy == nil) || b.copy != nil &&
		*b.copy != *o.copy {
		return false
	}
	if (b.frozen == nil) != (o.frozen == nil) || b.frozen != nil && b.frozen.Size != o.frozen.Size {
		return false
	}
	b.place, b.copy, b.frozen, o.place, o.copy, o.frozen = nil, nil, nil, nil, nil, nil
	return b == o
}

// planWithExec returns the plan of a memo with the exec step of one call.
func (m *cachedPlan) planWithExec(exec step) *plan {
	p := *m.plan
	steps := make([]step, len(p.steps)) // append would reserve twice the room, for as long as the call waits
	copy(steps, p.steps)
	steps[len(steps)-1] = exec
	p.steps = steps
	return &p
}

// withoutArgs returns the plan without the arguments and environment of the call for which it was made.
func (p *plan) withoutArgs() *plan {
	q := *p
	q.steps = slices.Clone(p.steps)
	n := len(q.steps) - 1
	q.steps[n] = step{inside.Step{Op: q.steps[n].Op}, q.steps[n].layer}
	return &q
}
