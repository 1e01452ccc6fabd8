package jail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/jail/inside"
)

// Limits on warm helpers and their use.
const (
	maxHelpers  = 4
	maxCalls    = 256                  // of one helper
	idleTime    = 60 * time.Second     // without a call
	soonEnough  = 5 * time.Millisecond // how long a call waits for a helper that is arming; a new cage takes as long
	rememberFor = 64                   // plans
)

// warmCages implements [warmth].
type warmCages struct {
	helperPool
	stock initPool
}

func newWarmCages(j *Jail, cfg Config) *warmCages {
	return &warmCages{helperPool{jail: j, onDemand: cfg.OnDemand, warn: cfg.Warn}, initPool{jail: j}}
}

func (w *warmCages) takeFirstProcess(lesser bool) *child { return w.stock.takePreforked(lesser) }

func (w *warmCages) prepareNext(r *run) {
	w.stock.refillPool(r.plan.lesser)
	w.startFor(r)
}

func (w *warmCages) close() {
	w.helperPool.close()
	w.stock.close()
}

// Waiting returns how many warm helpers have prepared everything that they prepare ahead of a call. It is for
// measurements.
func (j *Jail) Waiting() int { return j.warm.(*warmCages).countWaiting() }

// helperPool holds the helpers that wait for calls of their plans. A plan that is seen a second time gets a helper, and
// another if all of its helpers are busy. It needs only its jail.
type helperPool struct {
	jail     *Jail
	mu       sync.Mutex
	closed   bool               // guarded by mu, as all below
	onDemand bool               // arms no cage ahead
	warn     func(error)        // called when calls lose their helpers; may be nil
	seen     []string           // digests of plans, the latest last
	helpers  []*helper          // all helpers, the least recently used first
	starting int                // helpers being started
	busy     sync.WaitGroup     // helpers being started or armed
	failed   map[string]failure // plans whose helpers failed
	idle     *time.Timer        // dismisses unused helpers
}

// isWarmable tells whether a helper can serve the plan. A control group must bound the cage, no file of the host may lie
// beneath a directory that is made anew for each call, and no mount may lie in a directory of the host. Such a mount
// goes away if the host replaces the file beneath it (rename(2), in another mount namespace), and with it a mask or a
// read-only bind: a plan for one call has that risk for one call, a helper would have it for all.
func isWarmable(p *plan) bool {
	if p.lesser || p.bounds.layer != layerCgroup || !inside.Walks {
		return false
	}
	over := []string{tmpDir[1:] + "/", homeDir[1:] + "/"}
	for _, s := range p.steps {
		if ofFrozen(s.Step) || s.Op == inside.Loopback { // a namespace that had a network must serve only one call
			return false
		}
		at := 0
		switch s.Op {
		case inside.Bind, inside.Donated:
			at = 1
		case inside.Dir, inside.File, inside.Link:
		default:
			continue
		}
		for _, o := range over {
			if strings.HasPrefix(s.S[at], o) {
				return false
			}
		}
		if at == 1 {
			over = append(over, s.S[at]+"/") // a path inside a bind is bound after it
		}
	}
	return inside.Warmable(p.wireSteps())
}

// takeHelper returns a helper for a call of this plan, or nil if none is available soon. The helper belongs to the caller
// until renew.
func (w *helperPool) takeHelper(ctx context.Context, digest string) *helper {
	w.sweepStale()
	for {
		h := w.pickHelper(digest)
		if h == nil {
			return nil
		}
		if !h.waitUntilReady(ctx) {
			w.releaseHelper(h)
			return nil
		}
		if h.isUsable() {
			return h
		}
		w.dropHelper(h)
	}
}

// waitUntilReady waits for a helper that is arming, if that takes little time. A helper that is ready is taken however late
// this process is.
func (h *helper) waitUntilReady(ctx context.Context) bool {
	if h.isReady() {
		return true
	}
	soon := time.NewTimer(soonEnough)
	defer soon.Stop()
	select {
	case <-h.ready:
		return true
	case <-soon.C:
		return false
	case <-ctx.Done():
		return false
	}
}

func (w *helperPool) releaseHelper(h *helper) {
	w.mu.Lock()
	h.taken = false
	w.mu.Unlock()
}

// sweepStale ends the helpers that show outdated mounts: they would keep busy a file system that was unmounted.
func (w *helperPool) sweepStale() {
	w.mu.Lock()
	var stale []*helper
	for _, h := range w.helpers {
		if !h.taken && h.isReady() && !h.isUsable() {
			h.taken = true
			stale = append(stale, h)
		}
	}
	w.mu.Unlock()
	for _, h := range stale {
		w.dropHelper(h)
	}
}

// pickHelper prefers an armed helper to one that is arming.
func (w *helperPool) pickHelper(digest string) *helper {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found *helper
	for _, h := range w.helpers {
		if h.digest == digest && !h.taken && (found == nil || h.isReady() && !found.isReady()) {
			found = h
		}
	}
	if found != nil {
		found.taken = true
	}
	return found
}

// reserveStart tells, after a call without a helper, whether to start one. If so, the caller must call started.
func (w *helperPool) reserveStart(digest string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	again := slices.Contains(w.seen, digest)
	w.seen = append(slices.DeleteFunc(w.seen, func(d string) bool { return d == digest }), digest)
	w.seen = w.seen[max(0, len(w.seen)-rememberFor):]
	if !again || w.starting > 0 || w.failed[digest].isTooSoon() {
		return false
	}
	if len(w.helpers) >= maxHelpers {
		k := slices.IndexFunc(w.helpers, func(h *helper) bool { return !h.taken && h.isReady() && h.digest != digest })
		if k < 0 {
			return false
		}
		h := w.helpers[k]
		w.helpers = slices.Delete(w.helpers, k, k+1)
		w.busy.Go(h.closeAndWait)
	}
	w.starting++
	w.busy.Add(1)
	return true
}

// finishStart takes the helper that was started after want, or the error.
func (w *helperPool) finishStart(digest string, h *helper, err error) {
	defer w.busy.Done()
	if err != nil {
		w.recordFailure(digest, err)
	}
	w.mu.Lock()
	w.starting--
	keep := err == nil && !w.closed
	if keep {
		h.taken = true
		w.helpers = append(w.helpers, h)
	}
	w.mu.Unlock()
	switch {
	case keep:
		w.offerHelper(h)
	case h != nil:
		h.closeAndWait()
	}
}

// A failure counts the helpers of a plan that could not be started, or could not build a cage, since the last success.
type failure struct {
	times int
	last  time.Time
}

// isTooSoon tells whether it is too soon to start another helper. The wait doubles with each failure.
func (f failure) isTooSoon() bool {
	return f.times > 0 && time.Since(f.last) < min(50*time.Millisecond<<min(f.times, 12), idleTime)
}

// lenience is the number of failures before a warning. A single failure may be chance: for example, the helper was
// killed.
const lenience = 3

// recordFailure makes calls of a plan do without a helper for a while: if the helper failed once, it must not fail again for
// each call.
func (w *helperPool) recordFailure(digest string, err error) {
	w.mu.Lock()
	if w.failed == nil || len(w.failed) >= rememberFor {
		w.failed = map[string]failure{}
	}
	f := failure{w.failed[digest].times + 1, time.Now()}
	w.failed[digest] = f
	w.mu.Unlock()
	if f.times == lenience && w.warn != nil {
		w.warn(fmt.Errorf("calls of plan %.12s have no warm helper for now: %w", digest, err))
	}
}

// takeBackHelper takes a helper back after its call, for another call or to be ended. The caller must count it in busy.
func (w *helperPool) takeBackHelper(h *helper) {
	if h.isWornOut() {
		w.dropHelper(h)
		return
	}
	w.mu.Lock()
	delete(w.failed, h.digest)
	if k := slices.Index(w.helpers, h); k >= 0 { // the most recently used is the last
		w.helpers = append(slices.Delete(w.helpers, k, k+1), h)
	}
	w.mu.Unlock()
	w.offerHelper(h)
}

// offerHelper offers the helper for its next call. That call may wait until the cage is armed.
func (w *helperPool) offerHelper(h *helper) {
	w.mu.Lock()
	h.ready, h.taken, h.used = make(chan struct{}), false, time.Now()
	if w.idle == nil && !w.closed {
		w.idle = time.AfterFunc(idleTime, w.dismissUnused)
	}
	ahead := !w.onDemand
	w.mu.Unlock()
	h.prepareNext(ahead)
	w.mu.Lock()
	useless := h.spoilt != nil && !h.taken // if a call has taken it, that call notices
	h.taken = h.taken || useless
	w.mu.Unlock()
	close(h.ready)
	if useless {
		w.dropHelper(h)
	}
}

// dropHelper ends a helper that its caller has taken.
func (w *helperPool) dropHelper(h *helper) {
	if errors.Is(h.spoilt, errUnbuilt) {
		w.recordFailure(h.digest, h.spoilt)
	}
	w.mu.Lock()
	w.helpers = slices.DeleteFunc(w.helpers, func(o *helper) bool { return o == h })
	w.mu.Unlock()
	w.busy.Go(h.closeAndWait)
}

// dismissUnused dismisses the helpers that were not used for a while.
func (w *helperPool) dismissUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle = nil; w.closed {
		return
	}
	w.helpers = slices.DeleteFunc(w.helpers, func(h *helper) bool {
		tired := !h.taken && time.Since(h.used) >= idleTime
		if tired {
			w.busy.Go(func() { <-h.ready; h.closeAndWait() })
		}
		return tired
	})
	if len(w.helpers) > 0 {
		w.idle = time.AfterFunc(idleTime, w.dismissUnused)
	}
}

// close ends all helpers. Calls must have ended.
func (w *helperPool) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.busy.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.helpers {
		h.closeAndWait()
	}
	w.helpers = nil
	if w.idle != nil {
		w.idle.Stop()
	}
}

// serve implements [warmth]: it runs the call in the cage of a helper, if one is available soon.
func (w *helperPool) serve(ctx context.Context, r *run, words []string, s bailey.Streams,
	p *pipes) (e cageResult, begun bool) {
	if r.cage.PlanDigest == "" || !r.plan.warm {
		return cageResult{}, false
	}
	h := w.takeHelper(ctx, r.cage.PlanDigest)
	if h == nil {
		return cageResult{}, false
	}
	defer w.busy.Go(func() { w.takeBackHelper(h) })
	if !h.hasArmedCage() {
		h.spoilt = h.armCage()
	}
	mail, ok := inside.Mail(h.base, words[1:1+r.argc], words[1+r.argc:])
	r.large = !ok
	if !ok || !h.sendCall(mail, p.inner[:]) {
		return cageResult{}, false
	}
	e = h.waitForTool(ctx, p, s, r.timeout)
	return e, e.started
}

// startFor starts a helper for later calls of the run's plan if the plan qualifies.
func (w *helperPool) startFor(r *run) {
	if r.cage.PlanDigest == "" || !r.plan.warm || r.large || !w.reserveStart(r.cage.PlanDigest) {
		return
	}
	if textDigest(r.plan.String()) != r.cage.PlanDigest { // a helper is identified by the plan it was built from
		w.finishStart(r.cage.PlanDigest, nil, errors.New("the plan has changed since its digest was computed"))
		return
	}
	steps := r.plan.wireSteps()
	last := &steps[len(steps)-1]
	last.S = slices.Clone(last.S[:1+last.N[0]]) // without the environment
	for i := range last.S[1:] {
		last.S[1+i] = "" // and without arguments: both come with each call
	}
	if err := r.numberDescriptors(steps); err != nil {
		w.finishStart(r.cage.PlanDigest, nil, err)
		return
	}
	as := w.jail.acquireUser()
	files, err := r.openDescriptors(steps, as.uid)
	if err != nil {
		as.releaseUser()
		closeAll(files)
		w.finishStart(r.cage.PlanDigest, nil, err)
		return
	}
	sum, bounds := r.cage.PlanDigest, r.plan.bounds
	go func() {
		h, err := w.startHelper(sum, bounds, as, steps, files)
		closeAll(files)
		w.finishStart(sum, h, err)
	}()
}

// countWaiting returns how many helpers have prepared everything that they prepare ahead of a call.
func (w *helperPool) countWaiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.helpers {
		if !h.taken && h.isReady() && h.spoilt == nil {
			n++
		}
	}
	return n
}

// warmSteps returns the steps of [run.Warm].
func warmSteps(p *plan) (all []bailey.WarmStep) {
	steps := p.wireSteps()
	before := len(p.lineLayers()) - len(p.lent) - len(steps)
	for _, when := range []string{"once", "call"} {
		for i, s := range steps {
			if inside.When(s.Op) == when {
				all = append(all, bailey.WarmStep{When: when, Line: before + i + 1})
			}
		}
	}
	init, tool := inside.Tables(steps)
	for _, c := range init {
		all = append(all, bailey.WarmStep{When: "init", Text: c.Text})
	}
	for _, c := range tool {
		all = append(all, bailey.WarmStep{When: "tool", Line: before + c.Step + 1, Text: c.Text})
	}
	return all
}
