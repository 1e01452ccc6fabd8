//go:build linux

package vmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/vm"
)

const maxBranches = 16

// createBox makes a sandbox from an image or from a snapshot.
func (h *Host) createBox(ctx context.Context, c caller, r hostapi.CreateRequest) (hostapi.Sandbox, error) {
	none := hostapi.Sandbox{}
	ttl, err := h.ttlOf(r.TTL)
	if err != nil {
		return none, err
	}
	if err := checkNetwork(c, r.Network); err != nil {
		return none, err
	}
	if (r.Image == "") == (r.Snapshot == "") {
		return none, bailey.Invalid.New("a sandbox is made from an image or from a snapshot", "name one of them")
	}
	made := boxRecord{Sandbox: hostapi.Sandbox{Name: r.Name, Expires: time.Now().UTC().Add(ttl)},
		Attended: r.Attended, Reach: r.Network}
	var t *template
	var done func()
	if r.Snapshot != "" {
		t, done, err = h.useSnapshot(c, r)
	} else {
		t, done, err = h.useWarm(ctx, c, r)
	}
	if err != nil {
		return none, err
	}
	defer done()
	if r.Snapshot != "" {
		made.From = t.recordNow().ID
	}
	b, err := h.reserveBox(c, made, t)
	if err != nil {
		return none, err
	}
	if err := h.fillBox(ctx, b, t); err != nil {
		return none, err
	}
	return b.describeBox(ctx), nil
}

// useSnapshot returns the snapshot of a request, held.
func (h *Host) useSnapshot(c caller, r hostapi.CreateRequest) (*template, func(), error) {
	if r.CPUs != 0 || r.MemoryMB != 0 {
		return nil, nil, bailey.Invalid.New("the processors and the memory of a snapshot cannot be changed",
			"leave them out")
	}
	return h.holdSnapshot(c, r.Snapshot)
}

// useWarm returns the warm template for a request, held.
func (h *Host) useWarm(ctx context.Context, c caller, r hostapi.CreateRequest) (*template, func(), error) {
	if err := h.checkQuota(c, r.Name, 1); err != nil { // before something boots
		return nil, nil, err
	}
	cpus, memory := cmp.Or(r.CPUs, 1), r.MemoryMB
	if cpus < 0 || cpus > h.MaxCPUs {
		return nil, nil, bailey.Invalid.Errorf(fmt.Sprintf("use 1 to %d", h.MaxCPUs),
			"a sandbox cannot have %d processors", cpus)
	}
	i, err := h.images.useImage(r.Image)
	if err != nil {
		return nil, nil, err
	}
	if r.Digest != "" && r.Digest != i.Digest {
		return nil, nil, bailey.Conflict.Errorf("try again, so that the new one is decided about",
			"the image %s was replaced meanwhile", i.Name)
	}
	memory = cmp.Or(memory, max(256, i.MemoryMB))
	if memory < max(32, i.MemoryMB) || memory > h.MaxMemoryMB {
		return nil, nil, bailey.Invalid.Errorf(fmt.Sprintf("use %d to %d", max(32, i.MemoryMB), h.MaxMemoryMB),
			"a sandbox of the image %s cannot have %d MB of memory", i.Name, memory)
	}
	free, err := h.claimMemory(memory)
	if err != nil {
		return nil, nil, err
	}
	defer free()
	return h.warmTemplate(ctx, i, cpus, memory)
}

// checkQuota returns an error if the owner may not have n more sandboxes, or one with that name.
func (h *Host) checkQuota(c caller, name string, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkQuotaLocked(c, name, n)
}

// checkQuotaLocked requires h.mu.
func (h *Host) checkQuotaLocked(c caller, name string, n int) error {
	if name != "" {
		if err := checkName(name); err != nil {
			return err
		}
	}
	has, ofUser := 0, 0
	for _, b := range h.boxes {
		r := b.recordNow()
		if r.UID == c.uid {
			ofUser++
		}
		if !c.isOwner(r.Owner, r.UID) {
			continue
		}
		if has++; r.Name == name {
			return bailey.Conflict.Errorf("choose another name, or destroy it",
				"a sandbox with the name %s exists", name)
		}
	}
	if has+n > h.PerOwner {
		return bailey.Unavailable.Errorf("destroy a sandbox first: bailey sandbox list",
			"%d sandboxes would be more than the %d that an owner may have", has+n, h.PerOwner)
	}
	return h.checkUser(c, ofUser+n, "sandboxes")
}

// checkUser returns an error if a user may not have n sandboxes or snapshots in all. The person and the agent of an
// owner are words of the client, which could invent them. The user of the host can have everything anyway.
func (h *Host) checkUser(c caller, n int, things string) error {
	if n > h.PerUser && !isHostUser(c.uid) {
		return bailey.Unavailable.Errorf("destroy some first: bailey sandbox list, bailey sandbox snapshots",
			"%d %s would be more than the %d that a user of this host may have", n, things, h.PerUser)
	}
	return nil
}

// reserveBox adds a sandbox that is being created, so that quotas count it. It will be a clone of t.
func (h *Host) reserveBox(c caller, r boxRecord, t *template) (*box, error) {
	tr := t.recordNow()
	if err := h.checkDisk(64 << 20); err != nil {
		return nil, err
	}
	r.ID, r.Owner, r.UID, r.State = newID("sb"), c.Owner, c.uid, hostapi.Creating
	r.Owner.Operator = false
	r.Name = cmp.Or(r.Name, "box-"+r.ID[3:11])
	r.Image, r.ImageDigest, r.CPUs, r.MemoryMB, r.DiskBytes = tr.Image, tr.ImageDigest, tr.CPUs, tr.MemoryMB, tr.DiskBytes
	r.Accelerator, r.Machine, r.Network = tr.Accelerator, tr.Machine, hostapi.NoNetwork
	if r.Reach != nil {
		r.Network, r.Egress = hostapi.NamesNetwork, r.Reach.Endpoints
	}
	r.Created, r.Template, r.MachineID = time.Now().UTC(), tr.ID, randomHex()
	r.Marker = newMarker()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkQuotaLocked(c, r.Name, 1); err != nil {
		return nil, err
	}
	if err := h.checkPromisesLocked(tr.MemoryMB); err != nil {
		return nil, err
	}
	b := h.newBox(r)
	<-b.turn // until fillBox or dropBox
	h.boxes[r.ID] = b
	return b, nil
}

// fillBox gives a reserved sandbox its machine. If that fails, nothing remains.
func (h *Host) fillBox(ctx context.Context, b *box, t *template) error {
	err := b.makeDirectory()
	if err == nil {
		err = h.giveMachine(ctx, b, t)
	}
	if err != nil {
		return errors.Join(err, h.dropBox(context.WithoutCancel(ctx), b))
	}
	b.turn <- struct{}{}
	return nil
}

// giveMachine clones a template as the next machine of the sandbox. Only the record makes it the sandbox's machine; an
// old one must be removed afterwards. The caller has the turn.
func (h *Host) giveMachine(ctx context.Context, b *box, t *template) error {
	loaded, err := t.loadMemory(ctx, h)
	if err != nil {
		return err
	}
	n := b.nextGeneration()
	h.step("clone")
	m, err := h.vm.Clone(ctx, loaded, b.machineDir(n))
	if err != nil {
		return err
	}
	h.step("renew")
	tr := t.recordNow()
	s, err := b.renewGuest(ctx, m, tr)
	if err == nil {
		h.step("network")
		if err = b.startNetwork(ctx, s); err != nil {
			s.Close()
		}
	}
	if err == nil {
		h.step("record running")
		err = b.setRecord(false, func(r *boxRecord) {
			r.State, r.Generation, r.Template, r.Saved, r.Problem, r.Hint = hostapi.Running, n, tr.ID, "", "", ""
			r.ImageDigest, r.Image, r.Accelerator, r.Machine = tr.ImageDigest, tr.Image, tr.Accelerator, tr.Machine
			r.CPUs, r.MemoryMB, r.DiskBytes = tr.CPUs, tr.MemoryMB, tr.DiskBytes
		})
		if err != nil {
			s.Close()
		}
	}
	if err != nil {
		return errors.Join(err, m.Destroy(context.WithoutCancel(ctx)))
	}
	b.replaceMachine(m, s)
	return nil
}

// nextGeneration returns a number for which no directory exists.
func (b *box) nextGeneration() int {
	for n := b.recordNow().Generation + 1; ; n++ {
		if _, err := os.Lstat(b.machineDir(n)); err != nil {
			return n
		}
	}
}

// dropBox removes a sandbox and everything that it has. The caller has the turn and loses it.
func (h *Host) dropBox(ctx context.Context, b *box) error {
	defer func() { b.turn <- struct{}{} }() // waiting operations see that it is gone
	b.closeSession()
	b.mu.Lock()
	m := b.machine
	b.machine, b.record.State = nil, hostapi.Destroying // if this fails, the janitor repeats it
	id := b.record.ID
	b.mu.Unlock()
	if m != nil {
		h.step("destroy machine")
		if err := m.Destroy(ctx); err != nil {
			return err
		}
	}
	if err := h.removeBoxFiles(ctx, b.dir); err != nil {
		return err
	}
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	h.mu.Lock()
	delete(h.boxes, id)
	h.mu.Unlock()
	return nil
}

// destroyBox destroys a sandbox.
func (h *Host) destroyBox(ctx context.Context, b *box) error {
	_, err := b.takeTurn(ctx)
	if err != nil {
		return err
	}
	h.step("record destroying")
	if err := b.setRecord(false, func(r *boxRecord) { r.State = hostapi.Destroying }); err != nil {
		h.Log.Warn("the record of a sandbox cannot be written before it is destroyed", "error",
			err) // a full disk must not keep it
	}
	if err := h.dropBox(context.WithoutCancel(ctx), b); err != nil {
		return err
	}
	h.removeTemplates(ctx)
	return nil
}

func (h *Host) destroyNamed(ctx context.Context, c caller, r hostapi.Target) (hostapi.None, error) {
	b, err := h.findBox(c, r.Sandbox)
	if err == nil {
		err = h.destroyBox(ctx, b)
	}
	return hostapi.None{}, err
}

// changeBox finds a sandbox, takes the turn, and calls f, which changes it.
func (h *Host) changeBox(ctx context.Context, c caller, ref string, f func(b *box, r boxRecord,
	m *vm.Machine) error) (hostapi.Sandbox, error) {
	b, err := h.findBox(c, ref)
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	done, err := b.takeTurn(ctx)
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	err = f(b, b.recordNow(), b.machineNow())
	done()
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	return b.describeBox(ctx), nil
}

// pauseBox stops the processors of a sandbox.
func (h *Host) pauseBox(ctx context.Context, c caller, r hostapi.Target) (hostapi.Sandbox, error) {
	return h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, m *vm.Machine) error {
		if r.State == hostapi.Paused {
			return nil
		}
		if err := mustRun(r.Sandbox, m); err != nil {
			return err
		}
		h.step("record paused")
		if err := b.setRecord(false, func(r *boxRecord) { r.State = hostapi.Paused }); err != nil {
			return err
		}
		return m.Pause(ctx)
	})
}

// resumeBox continues a paused sandbox, also one that is paused because its disk was full.
func (h *Host) resumeBox(ctx context.Context, c caller, r hostapi.Target) (hostapi.Sandbox, error) {
	return h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, m *vm.Machine) error {
		if m == nil || r.State != hostapi.Paused && r.State != hostapi.Running {
			return bailey.Conflict.Errorf("bailey sandbox start "+r.Name, "the sandbox %s is %s, not paused",
				r.Name, r.State)
		}
		if err := m.Resume(ctx); err != nil {
			return err
		}
		return b.setRecord(false, func(r *boxRecord) { r.State = hostapi.Running })
	})
}

// stopBox saves the memory and the disk of a sandbox, and ends its machine.
func (h *Host) stopBox(ctx context.Context, c caller, r hostapi.Target) (hostapi.Sandbox, error) {
	return h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, m *vm.Machine) error {
		if r.State == hostapi.Stopped {
			return nil
		}
		t, done, err := h.snapshotBox(ctx, b, templateRecord{Kind: anonymous,
			Snapshot: hostapi.Snapshot{Name: "stopped"}})
		if err != nil {
			return err
		}
		defer done()
		h.step("record stopped")
		err = b.setRecord(true, func(r *boxRecord) {
			r.State, r.Generation, r.Saved = hostapi.Stopped, 0, t.recordNow().ID
		})
		if err != nil {
			return err
		}
		b.replaceMachine(nil, nil)
		h.step("destroy machine")
		return m.Destroy(context.WithoutCancel(ctx))
	})
}

// startBox continues a stopped sandbox where it was stopped.
func (h *Host) startBox(ctx context.Context, c caller, r hostapi.Target) (hostapi.Sandbox, error) {
	s, err := h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, _ *vm.Machine) error {
		if r.State == hostapi.Running {
			return nil
		}
		if r.State != hostapi.Stopped {
			return bailey.Conflict.Errorf("bailey sandbox show "+r.Name, "the sandbox %s is %s, not stopped",
				r.Name, r.State)
		}
		return h.cloneInto(ctx, b, r.Saved)
	})
	h.removeTemplates(ctx)
	return s, err
}

// cloneInto gives a sandbox another machine, from a template.
func (h *Host) cloneInto(ctx context.Context, b *box, id string) error {
	h.mu.Lock()
	t := h.templates[id]
	if t == nil {
		h.mu.Unlock()
		return bailey.NotFound.Errorf("restore the sandbox to a snapshot, or destroy it",
			"the saved state %.40s does not exist", id)
	}
	done := t.holdTemplate()
	h.mu.Unlock()
	defer done()
	free, err := h.claimMemory(t.recordNow().MemoryMB)
	if err != nil {
		return err
	}
	defer free()
	return h.giveMachine(ctx, b, t)
}

// snapshotBox makes a template of a running sandbox, held. The caller has the turn.
func (h *Host) snapshotBox(ctx context.Context, b *box, tr templateRecord) (*template, func(), error) {
	r := b.recordNow()
	s, err := b.openSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	m := b.machineNow()
	tr.ID, tr.Sandbox, tr.Image, tr.ImageDigest, tr.Owner, tr.UID = newID("sn"), r.ID, r.Image, r.ImageDigest, r.Owner, r.UID
	tr.CPUs, tr.MemoryMB, tr.DiskBytes, tr.Accelerator, tr.Machine = r.CPUs, r.MemoryMB, r.DiskBytes, r.Accelerator, r.Machine
	if r.DiskBytes > 0 || len(m.Spec().Layers) > 0 {
		tr.Parent = r.Template
	}
	return h.makeTemplate(tr, func(t *template) (guestState, error) { return h.saveMachine(ctx, m, s, t) })
}

// takeSnapshot makes a snapshot of a running sandbox, which continues.
func (h *Host) takeSnapshot(ctx context.Context, c caller, r hostapi.SnapshotRequest) (hostapi.Snapshot, error) {
	var made hostapi.Snapshot
	tr := templateRecord{Kind: snapshot, Snapshot: hostapi.Snapshot{Name: r.Name}}
	if tr.Name == "" {
		tr.Name = "snap-" + newID("sn")[3:11]
	} else if err := checkName(tr.Name); err != nil {
		return made, err
	}
	_, err := h.changeBox(ctx, c, r.Sandbox, func(b *box, _ boxRecord, _ *vm.Machine) error {
		t, done, err := h.snapshotBox(ctx, b, tr)
		if err != nil {
			return err
		}
		done()
		made = t.recordNow().Snapshot
		return nil
	})
	return made, err
}

// checkSnapshotLocked returns an error if the owner of a snapshot may not have it. Those that are not ready count, too.
// It requires h.mu.
func (h *Host) checkSnapshotLocked(made templateRecord) error {
	c, has, ofUser := caller{made.Owner, made.UID}, 0, 0
	for _, t := range h.templates {
		r := t.recordNow()
		if r.Kind != snapshot || r.UID != c.uid {
			continue
		}
		if ofUser++; !c.isOwner(r.Owner, r.UID) {
			continue
		}
		if has++; r.Name == made.Name {
			return bailey.Conflict.Errorf("choose another name, or remove it",
				"a snapshot with the name %s exists", r.Name)
		}
	}
	if has >= h.PerOwner {
		return bailey.Unavailable.Errorf("remove a snapshot first", "an owner may have %d snapshots", h.PerOwner)
	}
	return h.checkUser(c, ofUser+1, "snapshots")
}

// restoreBox returns a sandbox to a snapshot.
func (h *Host) restoreBox(ctx context.Context, c caller, r hostapi.RestoreRequest) (hostapi.Sandbox, error) {
	t, done, err := h.holdSnapshot(c, r.Snapshot)
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	defer done()
	s, err := h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, old *vm.Machine) error {
		free, err := h.claimMemory(t.recordNow().MemoryMB)
		if err != nil {
			return err
		}
		defer free()
		if err := h.giveMachine(ctx, b, t); err != nil {
			return err
		}
		if old == nil {
			return nil
		}
		h.step("destroy machine")
		return old.Destroy(context.WithoutCancel(ctx))
	})
	h.removeTemplates(ctx)
	return s, err
}

// branchBox makes n clones of a running sandbox. If one fails, none remains.
func (h *Host) branchBox(ctx context.Context, c caller, r hostapi.BranchRequest) ([]hostapi.Sandbox, error) {
	ttl, err := h.ttlOf(r.TTL)
	if err != nil {
		return nil, err
	}
	if r.N < 1 || r.N > maxBranches {
		return nil, bailey.Invalid.Errorf(fmt.Sprintf("use 1 to %d", maxBranches),
			"a sandbox cannot have %d branches at once", r.N)
	}
	if err := h.checkQuota(c, r.Name, r.N); err != nil {
		return nil, err
	}
	var t *template
	var done func()
	source, err := h.changeBox(ctx, c, r.Sandbox, func(b *box, _ boxRecord, _ *vm.Machine) (err error) {
		t, done, err = h.snapshotBox(ctx, b, templateRecord{Kind: anonymous,
			Snapshot: hostapi.Snapshot{Name: "branch"}})
		return err
	})
	if err != nil {
		return nil, err
	}
	defer h.removeTemplates(context.WithoutCancel(ctx))
	defer done()
	var boxes []*box
	from, err := h.findBox(c, source.ID)
	if err != nil {
		return nil, err
	}
	for n := range r.N {
		made := boxRecord{Sandbox: hostapi.Sandbox{Name: branchName(r.Name, n), From: source.ID,
			Expires: time.Now().UTC().Add(ttl)}, Reach: from.recordNow().Reach}
		b, err := h.reserveBox(c, made, t)
		if err != nil {
			return nil, errors.Join(err, h.dropReserved(boxes))
		}
		boxes = append(boxes, b)
	}
	return h.fillBranches(ctx, boxes, t)
}

func branchName(name string, n int) string {
	if name == "" || n == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", strings.TrimSuffix(name[:min(len(name), 28)], "-"), n+1)
}

// dropReserved removes sandboxes whose turn the caller has.
func (h *Host) dropReserved(boxes []*box) (err error) {
	for _, b := range boxes {
		err = errors.Join(err, h.dropBox(context.Background(), b))
	}
	return err
}

// fillBranches gives all branches their machines, a few at a time.
func (h *Host) fillBranches(ctx context.Context, boxes []*box, t *template) ([]hostapi.Sandbox, error) {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(h.MaxCPUs)
	for _, b := range boxes {
		g.Go(func() error { return h.fillBox(within, b, t) })
	}
	if err := g.Wait(); err != nil {
		for _, b := range boxes { // those that were made
			if e := h.destroyBox(context.WithoutCancel(ctx), b); e != nil && bailey.KindOf(e) != bailey.NotFound {
				err = errors.Join(err, e)
			}
		}
		return nil, err
	}
	list := []hostapi.Sandbox{}
	for _, b := range boxes {
		list = append(list, b.describeBox(ctx))
	}
	return list, nil
}

// extendBox sets when a sandbox expires.
func (h *Host) extendBox(ctx context.Context, c caller, r hostapi.ExtendRequest) (hostapi.Sandbox, error) {
	ttl, err := h.ttlOf(r.TTL)
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	return h.changeBox(ctx, c, r.Sandbox, func(b *box, r boxRecord, _ *vm.Machine) error {
		return b.setRecord(r.State == hostapi.Stopped, func(r *boxRecord) { r.Expires = time.Now().UTC().Add(ttl) })
	})
}
