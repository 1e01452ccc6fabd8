//go:build linux

package vmhost

import (
	"cmp"
	"context"
	"crypto/rand"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/hostapi"
)

// A caller is the owner that a query names, and the user who sent it. Users do not see each other's sandboxes, whatever
// names they send.
type caller struct {
	hostapi.Owner
	uid int
}

const maxOwner = 256 // bytes of each name

func (c caller) checkNames() error {
	for _, name := range []string{c.Person, c.Agent, c.Session} {
		if len(name) > maxOwner || strings.ContainsFunc(name, unicode.IsControl) {
			return bailey.Invalid.Errorf("use names of at most 256 bytes", "%.40q cannot be the name of an owner", name)
		}
	}
	if c.Person == "" {
		return bailey.Invalid.New("the query does not name a person", "set Owner.Person")
	}
	return nil
}

// isOwner reports whether something belongs to exactly this owner.
func (c caller) isOwner(o hostapi.Owner, uid int) bool {
	return uid == c.uid && o.Person == c.Person && o.Agent == c.Agent
}

// maySee reports whether the caller may use something.
func (c caller) maySee(o hostapi.Owner, uid int) bool {
	return c.isOwner(o, uid) || c.Operator && uid == c.uid && o.Person == c.Person
}

func missingSandbox(ref string) error {
	return bailey.NotFound.Errorf("bailey sandbox list shows the sandboxes", "there is no sandbox %.60s",
		printableName(ref))
}

// printableName replaces control characters of a name that a client sent.
func printableName(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func (h *Host) allBoxes() (list []*box) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.boxes {
		list = append(list, b)
	}
	return list
}

// findBox returns a sandbox that the caller sees, by its id or its name.
func (h *Host) findBox(c caller, ref string) (*box, error) {
	var found []*box
	for _, b := range h.allBoxes() {
		if r := b.recordNow(); c.maySee(r.Owner, r.UID) && (r.ID == ref || r.Name == ref) {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 0:
		return nil, missingSandbox(ref)
	case 1:
		return found[0], nil
	}
	return nil, bailey.Conflict.Errorf("use the id: bailey sandbox list", "%d sandboxes have the name %s",
		len(found), ref)
}

func (h *Host) listBoxes(ctx context.Context, c caller, _ hostapi.None) ([]hostapi.Sandbox, error) {
	list := []hostapi.Sandbox{}
	for _, b := range h.allBoxes() {
		if r := b.recordNow(); c.maySee(r.Owner, r.UID) {
			list = append(list, b.describeBox(ctx))
		}
	}
	slices.SortFunc(list, func(a, b hostapi.Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func (h *Host) showBox(ctx context.Context, c caller, r hostapi.Target) (hostapi.Sandbox, error) {
	b, err := h.findBox(c, r.Sandbox)
	if err != nil {
		return hostapi.Sandbox{}, err
	}
	return b.describeBox(ctx), nil
}

// visibleSnapshots returns the snapshots that the caller sees.
func (h *Host) visibleSnapshots(c caller) (list []*template) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		if r := t.recordNow(); r.Kind == snapshot && r.Ready && c.maySee(r.Owner, r.UID) {
			list = append(list, t)
		}
	}
	return list
}

// holdSnapshot returns a snapshot that the caller sees, by its id or its name, held.
func (h *Host) holdSnapshot(c caller, ref string) (*template, func(), error) {
	var found []*template
	for _, t := range h.visibleSnapshots(c) {
		if r := t.recordNow(); r.ID == ref || r.Name == ref {
			found = append(found, t)
		}
	}
	if len(found) > 1 {
		return nil, nil, bailey.Conflict.Errorf("use the id", "%d snapshots have the name %s", len(found), ref)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(found) == 0 || h.templates[found[0].recordNow().ID] != found[0] {
		return nil, nil, bailey.NotFound.Errorf("bailey sandbox snapshots shows the snapshots",
			"there is no snapshot %.60s", printableName(ref))
	}
	return found[0], found[0].holdTemplate(), nil
}

func (h *Host) listSnapshots(_ context.Context, c caller, _ hostapi.None) ([]hostapi.Snapshot, error) {
	list := []hostapi.Snapshot{}
	for _, t := range h.visibleSnapshots(c) {
		list = append(list, t.recordNow().Snapshot)
	}
	slices.SortFunc(list, func(a, b hostapi.Snapshot) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// removeSnapshot gives up a snapshot. Its files stay while a sandbox needs its disk.
func (h *Host) removeSnapshot(ctx context.Context, c caller, r hostapi.Target) (hostapi.None, error) {
	t, done, err := h.holdSnapshot(c, r.Sandbox)
	if err != nil {
		return hostapi.None{}, err
	}
	err = t.setKind(anonymous)
	done()
	h.removeTemplates(ctx)
	return hostapi.None{}, err
}

// setKind changes the kind of a template on disk, and then in memory.
func (t *template) setKind(kind string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record
	r.Kind = kind
	if err := writeRecord(t.dir, r, true); err != nil {
		return err
	}
	t.record = r
	return nil
}

func newMarker() (m guestclient.Marker) {
	rand.Read(m[:])
	return m
}

// allocatedBytes returns how much of the disk a file has.
func allocatedBytes(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
