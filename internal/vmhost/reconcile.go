//go:build linux

package vmhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/vm"
)

// adoptAll reads what the former host left: it adopts every sandbox that its record names, and removes everything else.
func (h *Host) adoptAll(ctx context.Context) error {
	if err := h.readTemplates(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(h.boxDir("x"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !idPattern().MatchString(e.Name()) {
			h.Log.Warn("a file does not belong to the host", "file", filepath.Join(dir, e.Name()))
			continue
		}
		if err := h.adoptBox(ctx, e.Name()); err != nil {
			h.Log.Error("a sandbox can be neither adopted nor removed yet", "sandbox", e.Name(), "error", err)
			h.removeLater(e.Name())
		}
	}
	h.useImages()
	h.removeTemplates(ctx)
	return nil
}

// removeLater lets the janitor remove a sandbox, unless it was adopted.
func (h *Host) removeLater(id string) {
	if h.boxes[id] != nil {
		return
	}
	r := boxRecord{UID: -1}
	r.ID, r.Name, r.State = id, "box-"+id[3:11], hostapi.Destroying
	h.boxes[id] = h.newBox(r)
}

// useImages keeps the images of the adopted sandboxes from being removed.
func (h *Host) useImages() {
	names := map[string]bool{}
	for _, b := range h.boxes {
		names[b.record.Image] = true
	}
	for name := range names {
		if _, err := h.images.useImage(name); err != nil {
			h.Log.Warn("the image of a sandbox cannot be used any more", "image", name, "error", err)
		}
	}
}

// readTemplates reads the records of the templates, and removes those that are not complete.
func (h *Host) readTemplates(ctx context.Context) error {
	dir := filepath.Dir(h.templateDir("x"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Name()
		if !idPattern().MatchString(id) {
			h.Log.Warn("a file does not belong to the host", "file", filepath.Join(dir, id))
			continue
		}
		t := &template{dir: h.templateDir(id), used: time.Now()}
		err := readRecord(t.dir, &t.record)
		if err == nil {
			err = t.record.checkFields(id)
		}
		switch {
		case err != nil && !errors.Is(err, errRecord):
			return err
		case err != nil || !t.record.Ready:
			if err := h.removeTemplateFiles(ctx, t.dir); err != nil {
				h.Log.Error("a half-made template cannot be removed yet", "template", id, "error", err)
			}
		default:
			if err := h.vm.Remove(ctx, filepath.Join(t.dir, "boot")); err != nil {
				return err
			}
			h.templates[id] = t
		}
	}
	return nil
}

// adoptBox adopts a sandbox, or removes it if it was not created whole, is being destroyed, or belonged to a connection.
func (h *Host) adoptBox(ctx context.Context, id string) error {
	var r boxRecord
	dir := h.boxDir(id)
	err := readRecord(dir, &r)
	if err == nil {
		err = r.checkFields(id)
	}
	if err != nil && !errors.Is(err, errRecord) {
		return err
	}
	if err != nil || r.State == hostapi.Creating || r.State == hostapi.Destroying || r.Attended {
		return h.removeBoxFiles(ctx, dir)
	}
	if err := h.removeMachines(ctx, dir, r.Generation); err != nil {
		return err
	}
	b := h.newBox(r)
	h.boxes[id] = b
	if r.Generation == 0 {
		return nil
	}
	m, err := h.vm.Open(ctx, b.machineDir(r.Generation))
	if err != nil {
		return h.giveUpMachine(ctx, b, err)
	}
	b.replaceMachine(m, nil)
	st, err := m.Status(ctx)
	switch {
	case err != nil:
		h.Log.Warn("an adopted machine does not answer", "sandbox", id, "error", err)
	case r.State == hostapi.Running && st.State == vm.Paused: // a snapshot was interrupted
		return m.Resume(ctx)
	case r.State == hostapi.Paused && st.State == vm.Running:
		return m.Pause(ctx)
	case r.State == hostapi.Running && r.Reach != nil: // its programs need the network before the next command
		go func() {
			if _, err := b.openSession(context.WithoutCancel(ctx)); err != nil {
				h.Log.Warn("the network of an adopted sandbox is not open yet", "sandbox", id, "error", err)
			}
		}()
	}
	return nil
}

// giveUpMachine records that a machine cannot be adopted, and removes it.
func (h *Host) giveUpMachine(ctx context.Context, b *box, why error) error {
	if bailey.KindOf(why) == bailey.Conflict {
		return why // another process owns it
	}
	h.Log.Warn("a machine cannot be adopted", "sandbox", b.record.ID, "error", why)
	if err := b.setRecord(false, func(r *boxRecord) { endRecord(r, why) }); err != nil {
		return err
	}
	return h.removeMachines(ctx, b.dir, 0)
}

// machinePrefix begins the names of the directories of machines.
const machinePrefix = "machine-"

// removeMachines removes the machines in the directory of a sandbox, except that of one generation.
func (h *Host) removeMachines(ctx context.Context, dir string, except int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), machinePrefix) || e.Name() == fmt.Sprint(machinePrefix, except) {
			continue
		}
		if err := h.vm.Remove(ctx, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeBoxFiles removes a sandbox. Its record is removed after its machines, so that this can be repeated.
func (h *Host) removeBoxFiles(ctx context.Context, dir string) error {
	h.step("remove machines")
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := h.removeMachines(ctx, dir, 0); err != nil {
		return err
	}
	h.step("remove sandbox")
	return os.RemoveAll(dir)
}
