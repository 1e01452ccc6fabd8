//go:build linux

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
)

// The files of a template's directory. The disk has the name of a machine's overlay.
const (
	templateFile = "template.json"
	memoryFile   = "memory"
	stateFile    = "state"
)

const (
	partialSuffix = ".partial" // a template that is being written
	flatSuffix    = ".flat"    // a machine that makes one file of a clone's memory
	maxState      = 64 << 20   // bytes of the state of the devices
)

// templateRecord is the content of template.json.
type templateRecord struct {
	Spec        Spec   // of a clone
	Disk        string // SHA-256 of the overlay; "" without disk
	Memory      string // digest of copySparse
	State       string // digest of copySparse
	MemoryBytes int64
	StateBytes  int64
}

// Snapshot writes a template of the machine to a new directory. The machine is paused meanwhile, and afterwards in the
// state that it had before.
func (m *Machine) Snapshot(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return bailey.Conflict.New("a template or another file exists at "+dir, "choose another name, or remove it")
	}
	if err := m.host.Remove(ctx, dir); err != nil { // an earlier attempt that was interrupted
		return err
	}
	state, err := m.queryState(ctx)
	if err != nil {
		return m.preferEnd(err)
	}
	m.host.step("pause")
	if err := m.Pause(ctx); err != nil {
		return err
	}
	err = m.whileRunning(ctx, "cannot write the template", func(ctx context.Context, m *Machine) error {
		return m.writeTemplate(ctx, dir)
	})
	m.host.step("continue")
	if state == "running" && m.Err() == nil {
		err = errors.Join(err, m.Resume(context.WithoutCancel(ctx)))
	}
	return err
}

func (m *Machine) writeTemplate(ctx context.Context, dir string) error {
	partial := dir + partialSuffix
	m.host.step("template directory")
	if err := os.Mkdir(partial, 0o700); err != nil {
		return explainDisk(err, filepath.Dir(dir))
	}
	lock, err := lockDirectory(partial)
	if err != nil {
		return err
	}
	if err = m.fillTemplate(ctx, dir, partial); err == nil {
		m.host.step("rename template")
		err = errors.Join(lock.Sync(), os.Rename(partial, dir), syncDirectory(filepath.Dir(dir)))
	}
	if err != nil {
		err = errors.Join(explainDisk(err, filepath.Dir(dir)), m.host.removeMachine(partial, record{}))
	}
	lock.Close()
	return err
}

func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (m *Machine) fillTemplate(ctx context.Context, dir, partial string) error {
	t := templateRecord{Spec: m.record.Spec, MemoryBytes: int64(m.record.Spec.MemoryMB) << 20}
	t.Spec.Private = true
	state := filepath.Join(partial, stateFile)
	m.host.step("save state")
	if err := m.saveState(ctx, state); err != nil {
		return err
	}
	if len(t.Spec.Layers) > 0 {
		m.host.step("copy disk")
		var err error
		if t.Disk, err = m.copyOverlay(ctx, filepath.Join(partial, overlayFile)); err != nil {
			return err
		}
	}
	memory := m.memory
	if m.record.Spec.Private {
		m.host.step("flatten")
		flat, err := m.flattenMemory(ctx, dir+flatSuffix, state)
		if err != nil {
			return err
		}
		defer flat.Destroy(context.WithoutCancel(ctx))
		memory = flat.memory
	}
	m.host.step("copy memory")
	var err error
	if t.Memory, err = copyDisk(ctx, filepath.Join(partial, memoryFile), memory); err != nil {
		return err
	}
	if t.State, t.StateBytes, err = digestState(ctx, state); err != nil {
		return err
	}
	m.host.step("write template.json")
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return safefile.Create(filepath.Join(partial, templateFile), text, 0o600)
}

// copyOverlay copies the overlay of a paused machine, and returns the SHA-256 of the copy.
func (m *Machine) copyOverlay(ctx context.Context, to string) (digest string, err error) {
	disk, err := os.Open(filepath.Join(m.dir, overlayFile))
	if err != nil {
		return "", err
	}
	defer disk.Close()
	if _, err := copyDisk(ctx, to, disk); err != nil {
		return "", err
	}
	return m.host.digestPath(to)
}

// flattenMemory starts a machine that loads the whole memory of m from its state into a new memory file, and writes the state
// again without the memory. The machine never runs. Its disk is not that of m, which nobody reads.
func (m *Machine) flattenMemory(ctx context.Context, dir, state string) (*Machine, error) {
	s := m.record.Spec
	s.Private = false
	f, err := os.Open(state)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	flat, err := m.host.createMachine(ctx, dir, s, origin{state: f, paused: true})
	if err != nil {
		return nil, err
	}
	if err = os.Remove(state); err == nil {
		err = flat.saveState(ctx, state)
	}
	if err != nil {
		return nil, errors.Join(err, flat.Destroy(context.WithoutCancel(ctx)))
	}
	return flat, nil
}

// saveState writes the state of the devices, and of private memory, to a new file. QEMU writes to a pipe, so that it
// cannot fill the disk.
func (m *Machine) saveState(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := m.ignoreShared(ctx, !m.record.Spec.Private); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = m.commandQEMU(ctx, w, "getfd", map[string]string{"fdname": "state"}, nil)
	w.Close()
	if err != nil {
		return err
	}
	most := int64(maxState)
	if m.record.Spec.Private {
		most += int64(m.record.Spec.MemoryMB)<<20 + int64(m.record.Spec.MemoryMB)<<12 // each page has a header
	}
	copied := make(chan error, 1)
	go func() { copied <- receiveState(f, r, most) }()
	if err := m.commandQEMU(ctx, nil, "migrate", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	ended := m.waitMigration(ctx)
	if ended != nil {
		r.Close() // a migration that still runs ends too, and the machine cannot continue before
		finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.host.QEMUTime)
		defer cancel()
		m.waitMigration(finishing)
	}
	if err := <-copied; err != nil && !errors.Is(err, os.ErrClosed) {
		return err // the cause of the other error
	}
	return errors.Join(ended, f.Sync())
}

// receiveState copies at most most bytes and closes the pipe. If QEMU writes more, its migration fails.
func receiveState(to io.Writer, from io.ReadCloser, most int64) error {
	defer from.Close()
	n, err := io.Copy(to, io.LimitReader(from, most+1))
	if err == nil && n > most {
		err = errors.New("QEMU wrote more than the state of such a machine has")
	}
	return err
}

// ignoreShared sets whether states are without the memory that is shared. Both sides of a state must agree on it, and a
// state with memory cannot be loaded into shared memory otherwise.
func (m *Machine) ignoreShared(ctx context.Context, on bool) error {
	type capability struct {
		Capability string `json:"capability"`
		State      bool   `json:"state"`
	}
	return m.commandQEMU(ctx, nil, "migrate-set-capabilities", map[string]any{"capabilities": []capability{
		{"x-ignore-shared", on}}}, nil)
}

// loadState loads a state from a descriptor that QEMU has inherited: that of a template into private memory, or that of a
// clone, with all its memory, into shared memory.
func (m *Machine) loadState(ctx context.Context, fd int) error {
	err := m.ignoreShared(ctx, m.record.Spec.Private)
	if err == nil {
		err = m.commandQEMU(ctx, nil, "migrate-incoming", map[string]string{"uri": "fd:" + strconv.Itoa(fd)}, nil)
	}
	if err == nil {
		err = m.waitWhile(ctx, "inmigrate")
	}
	return err
}

func (m *Machine) waitMigration(ctx context.Context) error {
	for {
		var answer struct {
			Status string
			Desc   string `json:"error-desc"`
		}
		if err := m.commandQEMU(ctx, nil, "query-migrate", nil, &answer); err != nil {
			return err
		}
		switch answer.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return errors.New("QEMU could not save its state: " + printableText(answer.Desc, 200))
		}
		if err := sleepShortly(ctx); err != nil {
			return err
		}
	}
}

func digestState(ctx context.Context, path string) (digest string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	digest, err = copySparse(ctx, discard{}, f, info.Size())
	return digest, info.Size(), err
}

type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// A Template is a template whose memory and state are loaded.
type Template struct {
	dir           string
	spec          Spec
	memory, state *os.File
}

// OpenTemplate loads a template and checks that it is complete and unchanged.
func (h *Host) OpenTemplate(ctx context.Context, dir string) (*Template, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r, err := readTemplate(dir)
	if err != nil {
		return nil, err
	}
	t := &Template{dir: dir, spec: r.Spec}
	if r.Disk != "" {
		t.spec.Layers = append(slices.Clone(r.Spec.Layers), Layer{filepath.Join(dir, overlayFile), "qcow2", r.Disk})
	}
	for _, l := range t.spec.Layers {
		f, err := h.checkLayer(l)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	if t.memory, err = loadSealed(ctx, filepath.Join(dir, memoryFile), r.MemoryBytes, r.Memory); err == nil {
		t.state, err = loadSealed(ctx, filepath.Join(dir, stateFile), r.StateBytes, r.State)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func readTemplate(dir string) (r templateRecord, err error) {
	text, err := safefile.Read(filepath.Join(dir, templateFile), maxRecord)
	if err == nil && text == nil {
		return r, bailey.NotFound.New("there is no template in "+dir, "take a snapshot of a machine")
	}
	if err == nil {
		err = strictjson.Decode(text, &r)
	}
	if err == nil {
		err = r.Spec.Check()
	}
	if err == nil && (!r.Spec.Private || r.MemoryBytes != int64(r.Spec.MemoryMB)<<20 || r.StateBytes < 0 ||
		r.StateBytes > maxState || (r.Disk == "") != (len(r.Spec.Layers) == 0)) {
		err = errors.New("its fields contradict each other")
	}
	if err != nil {
		return r, damagedTemplate(dir, "template.json cannot be read: "+err.Error())
	}
	return r, nil
}

func damagedTemplate(dir, how string) error {
	return bailey.Conflict.Errorf("remove the template and take the snapshot again", "the template in %s is refused: %s", dir,
		how)
}

// loadSealed copies a file to a sealed memfd and compares its size and digest.
func loadSealed(ctx context.Context, path string, size int64, digest string) (*os.File, error) {
	dir, name := filepath.Split(path)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damagedTemplate(dir, "its "+name+" is missing")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // before anything is copied
	if err != nil {
		return nil, err
	}
	if info.Size() != size || !info.Mode().IsRegular() {
		return nil, damagedTemplate(dir, "its "+name+" has another size: it is damaged")
	}
	sealed, err := newMemory("template-"+name, size)
	if err != nil {
		return nil, err
	}
	got, err := copySparse(ctx, sealed, f, size)
	switch {
	case err != nil:
	case got != digest:
		err = damagedTemplate(dir, "its "+name+" has changed since the snapshot")
	default:
		err = sealMemory(sealed)
	}
	if err != nil {
		sealed.Close()
		return nil, err
	}
	return sealed, nil
}

// Close frees the memory of the template. Its clones continue to run.
func (t *Template) Close() {
	for _, f := range []*os.File{t.memory, t.state} {
		if f != nil {
			f.Close()
		}
	}
}

// Spec describes the clones of the template.
func (t *Template) Spec() Spec { return t.spec }

// Clone creates a machine in a new directory that continues where the template was taken. Config.Renew has given it an
// identity of its own when Clone returns.
func (h *Host) Clone(ctx context.Context, t *Template, dir string) (*Machine, error) {
	return h.createMachine(ctx, dir, t.spec, origin{memory: t.memory, state: t.state, welcome: h.Renew})
}
