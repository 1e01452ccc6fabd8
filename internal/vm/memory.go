//go:build linux

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"bailey"
)

const chunk = 1 << 20 // bytes that are copied at once; divides the size of every memory

// fixedSize are the seals of a memfd that may be written (fcntl(2)).
const fixedSize = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newMemory creates an empty memfd. QEMU, which may run under another user id, opens it through /proc/self/fd.
func newMemory(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the kernel gives no memory file", "use Linux 3.17 or newer")
	}
	f := os.NewFile(uintptr(fd), name)
	err = errors.Join(f.Chmod(0o666), f.Truncate(size)) // no name leads to it, so only its holders can open it
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sealMemory forbids every change for ever. A process can still map it privately.
func sealMemory(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, fixedSize|unix.F_SEAL_WRITE)
	return err
}

// copySparse copies size bytes. It writes no zeros, into a file that must be empty, and skips holes. The digest covers
// the data with its offsets, so that two copies are equal if and only if their digests are.
func copySparse(ctx context.Context, to io.WriterAt, from *os.File, size int64) (digest string, err error) {
	sum, buffer, zero := sha256.New(), make([]byte, chunk), make([]byte, 4096)
	for at := int64(0); at < size; {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err == nil { // files without holes are one piece of data
			at = min(data/chunk*chunk, size)
		}
		n, err := from.ReadAt(buffer[:min(chunk, size-at)], at)
		if err != nil && !(errors.Is(err, io.EOF) && int64(n) == size-at) {
			return "", err
		}
		for part := 0; part < n; part += len(zero) {
			page := buffer[part:min(part+len(zero), n)]
			if bytes.Equal(page, zero[:len(page)]) {
				continue
			}
			addPage(sum, at+int64(part), page)
			if _, err := to.WriteAt(page, at+int64(part)); err != nil {
				return "", err
			}
		}
		at += int64(n)
	}
	addPage(sum, size, nil)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addPage(sum hash.Hash, at int64, page []byte) {
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	sum.Write(page)
}

// fileID changes when the content of a file does.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// checkLayer opens an image and compares its digest. A digest is computed once, until the file changes.
func (h *Host) checkLayer(l Layer) (*os.File, error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return nil, bailey.NotFound.Wrap(err, "cannot open the image", "see whether it was removed; import it again")
	}
	if err := h.compareDigest(f, l.SHA256); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (h *Host) compareDigest(f *os.File, want string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bailey.Invalid.New("the image "+f.Name()+" is not a regular file", "name a file")
	}
	if want == "" {
		return nil
	}
	got, err := h.digestFile(f, st)
	if err == nil && got != want {
		err = bailey.Conflict.Errorf("import the image again, or accept the new one by its digest",
			"the image %s has changed: its SHA-256 is %s, not %s", f.Name(), got, want)
	}
	return err
}

// digestPath returns the SHA-256 of a file.
func (h *Host) digestPath(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	return h.digestFile(f, st)
}

func (h *Host) digestFile(f *os.File, st unix.Stat_t) (string, error) {
	id := fileID{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
	h.mu.Lock()
	got := h.digests[id]
	h.mu.Unlock()
	if got != "" {
		return got, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, st.Size)); err != nil {
		return "", wrapStep(err, "cannot read the image %s", f.Name())
	}
	got = hex.EncodeToString(sum.Sum(nil))
	h.mu.Lock()
	h.digests[id] = got
	h.mu.Unlock()
	return got, nil
}

// copyDisk copies a file without its holes and syncs it.
func copyDisk(ctx context.Context, to string, from *os.File) (digest string, err error) {
	info, err := from.Stat()
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if digest, err = copySparse(ctx, f, from, info.Size()); err != nil {
		return "", err
	}
	if err := errors.Join(f.Truncate(info.Size()), f.Sync()); err != nil {
		return "", fmt.Errorf("cannot write %s: %w", to, err)
	}
	return digest, nil
}
