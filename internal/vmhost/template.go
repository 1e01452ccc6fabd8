//go:build linux

package vmhost

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/hostapi"
	"bailey/internal/vm"
)

// loadedTime is how long the memory of a template stays loaded without use.
const loadedTime = 5 * time.Minute

// A template is the origin of machines.
type template struct {
	dir string

	mu      sync.Mutex // guards what follows
	record  templateRecord
	users   int       // operations that need it now
	used    time.Time // the last time
	loading sync.Mutex
	loaded  *vm.Template // nil if it is not in memory
}

func (t *template) recordNow() templateRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.record
}

func (t *template) vmDir() string { return filepath.Join(t.dir, "vm") }

// holdTemplate keeps the template from being removed until done is called.
func (t *template) holdTemplate() (done func()) {
	t.mu.Lock()
	t.users++
	t.used = time.Now()
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		t.users--
		t.used = time.Now()
		t.mu.Unlock()
	}
}

// loadMemory reads the template into memory unless it is there. The caller holds the template.
func (t *template) loadMemory(ctx context.Context, h *Host) (*vm.Template, error) {
	t.loading.Lock()
	defer t.loading.Unlock()
	t.mu.Lock()
	loaded := t.loaded
	t.mu.Unlock()
	if loaded != nil {
		return loaded, nil
	}
	loaded, err := h.vm.OpenTemplate(ctx, t.vmDir())
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.loaded = loaded
	t.mu.Unlock()
	return loaded, nil
}

// unloadMemory frees the memory of the template if nothing uses it.
func (t *template) unloadMemory() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loaded != nil && t.users == 0 {
		t.loaded.Close()
		t.loaded = nil
	}
}

// A warmKey says which sandboxes can be clones of the same warm template.
type warmKey struct {
	Digest, Accelerator string
	CPUs, MemoryMB      int
}

func (r templateRecord) warmKey() warmKey {
	return warmKey{r.ImageDigest, r.Accelerator, r.CPUs, r.MemoryMB}
}

// findWarm returns the warm template for the image, held, or nil.
func (h *Host) findWarm(key warmKey) (t *template, done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		if r := t.recordNow(); r.Kind == warm && r.Ready && r.warmKey() == key {
			return t, t.holdTemplate()
		}
	}
	return nil, nil
}

// warmTemplate returns the warm template for an image, held. It boots the image if there is none.
func (h *Host) warmTemplate(ctx context.Context, i Image, cpus, memory int) (t *template, done func(), err error) {
	s := vm.Spec{Arch: i.Arch, Machine: machineType(i.Arch), MemoryMB: memory, CPUs: cpus, Kernel: i.Kernel, Initrd: i.Initrd,
		Append: i.Append, Layers: i.Layers, DiskBytes: i.DiskBytes}
	if len(i.Layers) == 0 {
		s.DiskBytes = 0
	}
	if s.Accel, err = h.chooseAccelerator(ctx, s); err != nil {
		return nil, nil, err
	}
	key := warmKey{i.Digest, nameAccelerator(s.Accel), cpus, memory}
	free, err := h.lockWarm(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	defer free()
	if t, done := h.findWarm(key); t != nil {
		if _, err := t.loadMemory(ctx, h); err == nil || bailey.KindOf(err) != bailey.Conflict {
			return t, done, nil
		}
		h.Log.Warn("a damaged warm template is made again", "template", t.recordNow().ID)
		done()
		h.releaseWarm(t)
	}
	return h.bootTemplate(ctx, i, s)
}

// releaseWarm makes a warm template one that is removed when nothing needs it.
func (h *Host) releaseWarm(t *template) {
	if err := t.setKind(anonymous); err != nil {
		h.Log.Error("a warm template cannot be given up", "directory", t.dir, "error", err)
	}
}

// lockWarm waits until no other operation makes the warm template of that key.
func (h *Host) lockWarm(ctx context.Context, key warmKey) (free func(), err error) {
	h.mu.Lock()
	turn := h.warming[key]
	if turn == nil {
		turn = make(chan struct{}, 1)
		h.warming[key] = turn
	}
	h.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// bootTemplate boots an image, and makes a warm template of its machine.
func (h *Host) bootTemplate(ctx context.Context, i Image, s vm.Spec) (t *template, done func(), err error) {
	r := templateRecord{Kind: warm, Accelerator: nameAccelerator(s.Accel), Machine: s.Machine, DiskBytes: s.DiskBytes,
		Snapshot: hostapi.Snapshot{ID: newID("sn"), Name: "warm", Image: i.Name, ImageDigest: i.Digest, CPUs: s.CPUs,
			MemoryMB: s.MemoryMB}}
	t, done, err = h.makeTemplate(r, func(t *template) (guestState, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, h.BootTime,
			bailey.Unavailable.Errorf("check the image with bailey image show",
				"the image %s does not start within %v", i.Name, h.BootTime))
		defer cancel()
		h.step("boot")
		m, err := h.vm.Start(ctx, filepath.Join(t.dir, "boot"), s)
		if err != nil {
			return guestState{}, err
		}
		defer m.Destroy(context.WithoutCancel(ctx))
		session, err := dialGuest(ctx, m, guestclient.Config{OpTime: h.GuestTime})
		if err != nil {
			return guestState{}, err
		}
		defer session.Close()
		return h.saveMachine(ctx, m, session, t)
	})
	if err != nil {
		err = bailey.Unavailable.Wrapf(err, hintOr(err, "check the image: bailey image show "+i.Name),
			"cannot start the image %s", i.Name)
	}
	return t, done, err
}

func hintOr(err error, other string) string {
	if hint := bailey.HintOf(err); hint != "" {
		return hint
	}
	return other
}

// A guestState is what a clone must know of the guest in its template.
type guestState struct {
	marker     guestclient.Marker // of the session in which it is
	interfaces []string           // that get new addresses
}

// saveMachine writes the state of a machine to a template.
func (h *Host) saveMachine(ctx context.Context, m *vm.Machine, s *guestclient.Session,
	t *template) (g guestState, err error) {
	id, err := s.Identity(ctx)
	if err != nil {
		return g, err
	}
	for _, i := range id.Network {
		if i.Name != "lo" {
			g.interfaces = append(g.interfaces, i.Name)
		}
	}
	h.step("prepare guest")
	if g.marker, err = s.Snapshot(ctx); err == nil {
		h.step("snapshot")
		err = m.Snapshot(ctx, t.vmDir())
	}
	return g, err
}

// makeTemplate makes a template, which is held. fill writes its machine. If it fails, nothing remains.
func (h *Host) makeTemplate(r templateRecord, fill func(t *template) (guestState, error)) (*template, func(), error) {
	if err := h.checkDisk(int64(r.MemoryMB)<<20 + 64<<20); err != nil {
		return nil, nil, err
	}
	r.Created = time.Now().UTC()
	t := &template{dir: h.templateDir(r.ID), record: r}
	done := t.holdTemplate()
	if err := h.addTemplate(t, r); err != nil {
		return nil, nil, err
	}
	err := h.fillTemplate(t, fill)
	if err != nil {
		done()
		h.mu.Lock()
		delete(h.templates, r.ID)
		h.mu.Unlock()
		return nil, nil, errors.Join(err, h.removeTemplateFiles(context.Background(), t.dir))
	}
	return t, done, nil
}

// addTemplate adds a template that is being made, so that quotas count it.
func (h *Host) addTemplate(t *template, r templateRecord) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Kind == snapshot {
		if err := h.checkSnapshotLocked(r); err != nil {
			return err
		}
	}
	h.templates[r.ID] = t
	return nil
}

func (h *Host) fillTemplate(t *template, fill func(t *template) (guestState, error)) error {
	h.step("template directory")
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return explainDisk(err, filepath.Dir(t.dir))
	}
	r := t.recordNow()
	h.step("template record")
	if err := writeRecord(t.dir, r, false); err != nil {
		return err
	}
	guest, err := fill(t)
	if err != nil {
		return err
	}
	r.Marker, r.Interfaces, r.Ready, r.Bytes = guest.marker, guest.interfaces, true, diskUsage(t.vmDir())
	h.step("template ready")
	if err := writeRecord(t.dir, r, true); err != nil {
		return err
	}
	t.mu.Lock()
	t.record = r
	t.mu.Unlock()
	return nil
}

// removeTemplateFiles removes a template, with the machine from which it was made, in whatever state it is.
func (h *Host) removeTemplateFiles(ctx context.Context, dir string) error {
	h.step("remove template")
	for _, part := range []string{"boot", "vm"} {
		if err := h.vm.Remove(ctx, filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	h.step("remove template record")
	return os.RemoveAll(dir)
}

// removeTemplates removes the templates that nothing needs, and unloads those that are not used.
func (h *Host) removeTemplates(ctx context.Context) {
	h.retireWarm()
	for _, t := range h.takeUnneeded() {
		t.unloadMemory()
		if err := h.removeTemplateFiles(ctx, t.dir); err != nil {
			h.Log.Error("a template cannot be removed", "directory", t.dir, "error", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		t.mu.Lock()
		idle := time.Since(t.used) > loadedTime
		t.mu.Unlock()
		if idle {
			t.unloadMemory()
		}
	}
	h.images.releaseExcept(h.disksInUse())
}

// disksInUse returns the digests of the images whose disks something needs. It requires h.mu. A warm template that
// nothing uses does not keep its image, and a machine without disk has all of its image in memory.
func (h *Host) disksInUse() map[string]bool {
	digests := map[string]bool{}
	for _, t := range h.templates {
		t.mu.Lock()
		if t.record.DiskBytes > 0 && (t.record.Kind != warm || t.users > 0) {
			digests[t.record.ImageDigest] = true
		}
		t.mu.Unlock()
	}
	for _, b := range h.boxes {
		if r := b.recordNow(); r.DiskBytes > 0 {
			digests[r.ImageDigest] = true
		}
	}
	return digests
}

// retireWarm gives up the warm templates that were not used for a long time, and those whose image was removed or
// replaced.
func (h *Host) retireWarm() {
	for _, t := range h.allTemplates() {
		t.mu.Lock()
		r, idle := t.record, time.Since(t.used)
		retire := r.Kind == warm && t.users == 0 && idle > h.WarmTime
		check := r.Kind == warm && t.users == 0 && r.Ready
		t.mu.Unlock()
		if !retire && check {
			i, err := h.FindImage(r.Image)
			if err == nil {
				releaseImage(i)
			}
			retire = errors.Is(err, bailey.NotFound) || err == nil && i.Digest != r.ImageDigest
		}
		if retire {
			h.releaseWarm(t)
		}
	}
}

func (h *Host) allTemplates() (list []*template) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		list = append(list, t)
	}
	return list
}

// takeUnneeded takes the templates from the map that no sandbox, no snapshot, no warm template and no operation needs.
func (h *Host) takeUnneeded() (list []*template) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var needed []string
	for _, b := range h.boxes {
		r := b.recordNow()
		needed = append(needed, r.Template, r.Saved)
	}
	for id, t := range h.templates {
		t.mu.Lock()
		if t.record.Kind != anonymous || t.users > 0 {
			needed = append(needed, id)
		}
		t.mu.Unlock()
	}
	reached := map[string]bool{}
	for len(needed) > 0 {
		id := needed[0]
		needed = needed[1:]
		if t := h.templates[id]; t != nil && !reached[id] {
			reached[id] = true
			needed = append(needed, t.recordNow().Parent)
		}
	}
	for id, t := range h.templates {
		if !reached[id] {
			list = append(list, t)
			delete(h.templates, id)
		}
	}
	return list
}

// diskUsage returns how many bytes of the disk the files below dir have.
func diskUsage(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			bytes += allocatedBytes(info)
		}
		return nil
	})
	return bytes
}
