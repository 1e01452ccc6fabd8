//go:build linux

package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"bailey"
)

// A pinned file is executed in place. The hashed file stays open, and is compared when the run starts.
type pinned struct {
	file *os.File
	id   ident
}

// addHelpers adds the other programs that the tool may execute.
func (r *run) addHelpers(l *layout, job bailey.Job) error {
	for _, name := range job.Exec {
		for name != "" {
			h, err := r.jail.tools.findIn(name, jobPath(job))
			if err != nil {
				return err
			}
			if err := r.pinTool(job, h); err != nil {
				return err
			}
			l.addTool(h, true)
			name = h.env
		}
	}
	return nil
}

// pinTool holds the files of a tool until the run is closed, and lists them in the cage. None of them may be in a place
// where the call itself could replace it.
func (r *run) pinTool(job bailey.Job, t *tool) error {
	for _, f := range t.pinnedFiles() {
		for _, p := range job.Places {
			if p.Write && containsPath(p.Path, f.path) {
				return bailey.Denied.New(f.path+" lies in "+p.Path+", which the call may write",
					"install the program outside the workspace")
			}
		}
		if slices.ContainsFunc(r.cage.Programs, func(p bailey.Program) bool { return p.Path == f.path }) {
			continue
		}
		if err := r.holdFile(f); err != nil {
			return err
		}
		r.cage.Programs = append(r.cage.Programs, bailey.Program{Path: f.path, SHA256: f.digest, Copied: f.copied})
	}
	return nil
}

// holdFile takes the copy of a file, or opens the file in place. The content must be the one that was hashed.
func (r *run) holdFile(f toolFile) error {
	if f.copied {
		c, err := r.jail.tools.copies.acquireCopy(f.path, f.id)
		if err != nil {
			return err
		}
		r.copied[f.path] = c
		if c.digest != f.digest {
			return changedError(f.path, nil)
		}
		return nil
	}
	file, err := openProgram(f.path)
	if err != nil {
		return changedError(f.path, err)
	}
	r.pinned = append(r.pinned, pinned{file, f.id})
	if now, err := fileIdent(file); err != nil || now != f.id {
		return changedError(f.path, err)
	}
	return nil
}

// copyOf returns a descriptor of the run's copy of a file, for PID 1.
func (r *run) copyOf(path string) (*os.File, error) {
	c := r.copied[path]
	if c == nil {
		return nil, bailey.Internal.New("no copy of "+path+" was made", "")
	}
	return duplicateFile(c.file)
}

// maxCopies limits, in bytes, all copies that a jail holds at once, and therefore each of them.
const maxCopies = 512 << 20

// copies holds files that users other than root could write, as they were when they were hashed: in sealed memory, so
// that no process, including this one, can change them between the hash and the run. Its zero value is ready.
type copies struct {
	mu    sync.Mutex // must not be held while a file is read
	held  map[ident]*copied
	total int64 // bytes of the copies that are held or being made
	turn  uint64
	limit int64 // zero means maxCopies
}

// A copied file is a sealed memfd (memfd_create(2)). It must be read at offsets, because its descriptors share one
// position.
type copied struct {
	file   *os.File
	size   int64
	digest string // SHA-256, hex
	users  int    // callers that have not released it; guarded by copies.mu, as last is
	last   uint64 // turn in which it was last taken
}

// acquireCopy returns the copy of the file at path that has this identity, and makes it if none is held. It stays until the
// caller releases it.
func (c *copies) acquireCopy(path string, id ident) (*copied, error) {
	if held := c.acquireIfHeld(id); held != nil {
		return held, nil
	}
	if err := c.reserveSpace(path, id.size); err != nil {
		return nil, err
	}
	made, err := duplicateSealed(path, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.total -= id.size
		return nil, err
	}
	if other := c.held[id]; other != nil { // another call was faster
		c.total -= id.size
		made.file.Close()
		return c.retainCopy(other), nil
	}
	if c.held == nil {
		c.held = map[ident]*copied{}
	}
	c.held[id] = made
	return c.retainCopy(made), nil
}

func (c *copies) acquireIfHeld(id ident) *copied {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held := c.held[id]; held != nil {
		return c.retainCopy(held)
	}
	return nil
}

// retainCopy adds one user. The caller must hold c.mu.
func (c *copies) retainCopy(held *copied) *copied {
	c.turn++
	held.users, held.last = held.users+1, c.turn
	return held
}

func (c *copies) releaseCopy(held *copied) {
	c.mu.Lock()
	held.users--
	c.mu.Unlock()
}

// reserveSpace makes room for size bytes. If necessary, it evicts unused copies, least recently used first.
func (c *copies) reserveSpace(path string, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.limit
	if limit == 0 {
		limit = maxCopies
	}
	if size > limit {
		return bailey.Unavailable.Errorf("install it as root, with its directories, so that it needs no copy",
			"%s has %d bytes and can be written by users other than root; a jail copies such files up to %d bytes", path, size, limit)
	}
	for c.total+size > limit {
		if !c.evictOldest() {
			return bailey.Unavailable.Errorf("call again when they have ended, or install it as root",
				"cannot copy %s: running calls use %d bytes for such copies", path, c.total)
		}
	}
	c.total += size
	return nil
}

// evictOldest removes one unused copy and reports whether there was one. The caller must hold c.mu.
func (c *copies) evictOldest() bool {
	var oldest ident
	var found *copied
	for id, held := range c.held {
		if held.users == 0 && (found == nil || held.last < found.last) {
			oldest, found = id, held
		}
	}
	if found == nil {
		return false
	}
	delete(c.held, oldest)
	c.total -= found.size
	found.file.Close()
	return true
}

// removeAll removes all copies. They must not be in use.
func (c *copies) removeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.evictOldest() {
	}
}

// duplicateSealed copies the file at path into sealed memory and hashes the bytes that it copies.
func duplicateSealed(path string, id ident) (*copied, error) {
	f, err := openProgram(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := fileIdent(f); err != nil || now != id {
		return nil, changedError(path, err)
	}
	h := sha256.New()
	memory, n, err := sealInMemory(io.TeeReader(io.LimitReader(f, id.size+1), h))
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot create a memory file for a copy of "+path,
			"install it as root, with its directories, so that it needs no copy")
	}
	if n != id.size {
		memory.Close()
		return nil, changedError(path, nil)
	}
	return &copied{file: memory, size: n, digest: hex.EncodeToString(h.Sum(nil))}, nil
}

// sealInMemory writes content to a memory file that no process can change from then on, and returns its length.
func sealInMemory(content io.Reader) (memory *os.File, n int64, err error) {
	if memory, err = createMemfd(); err != nil {
		return nil, 0, err
	}
	if n, err = io.Copy(memory, content); err == nil {
		_, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, sealed)
	}
	if err != nil {
		memory.Close()
		return nil, 0, err
	}
	return memory, n, nil
}

// createMemfd returns a memory file. The file is never executed itself, but kernels before 6.3 cannot enforce that.
func createMemfd() (*os.File, error) {
	const name, flags = "bailey-copy", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// changedError returns the error that a file differs from the one that was checked.
func changedError(path string, err error) error {
	return bailey.Conflict.Wrap(err, path+" has changed since it was checked", "call again")
}
