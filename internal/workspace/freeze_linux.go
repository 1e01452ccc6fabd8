package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"bailey"
)

// Freeze copies the checked file from its descriptor into sealed memory and hashes the copy. The tool gets exactly the
// hashed bytes, even if the file changes.
func (w *Workspaces) Freeze(p bailey.Place) (*bailey.Frozen, func(), error) {
	before, err := statOf(p.File)
	if err != nil || before.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil, err
	}
	if before.Size > maxFrozen {
		return nil, nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q has %d bytes, and a person can be asked about %d", p.Input, p.Path, before.Size, maxFrozen),
			Hint: "name a smaller file"}
	}
	release, err := w.frozen.take(before.Size)
	if err != nil {
		return nil, nil, err
	}
	f, err := frozen(p, before)
	if err != nil {
		release()
		return nil, nil, err
	}
	return f, func() { f.File.Close(); release() }, nil
}

// frozen reads the file through its own descriptor and not through its path (proc_pid_fd(5)).
func frozen(p bailey.Place, before unix.Stat_t) (f *bailey.Frozen, err error) {
	unreadable := func(err error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q cannot be read", p.Input, p.Path), Err: cause(err), Hint: "name a file that you may read"}
	}
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer file.Close()
	memory, err := sealable()
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no memory file for a copy of " + p.Path, Err: err}
	}
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(memory, sum), io.LimitReader(file, before.Size+1))
	if err != nil {
		return nil, unreadable(err)
	}
	after, err := statOf(file)
	if err != nil {
		return nil, err
	}
	if n != before.Size || !unchanged(before, after) {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("input /%s: %q changed while it was copied", p.Input, p.Path), Hint: "call again when nobody writes it"}
	}
	if _, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &bailey.Frozen{File: memory, Size: n, SHA256: bailey.NewSecret(hex.EncodeToString(sum.Sum(nil)))}, nil
}

// sealable returns a memory file that cannot be executed. Kernels before 6.3 do not support that flag.
func sealable() (*os.File, error) {
	const name, flags = "bailey-frozen", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func statOf(f *os.File) (st unix.Stat_t, err error) {
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		err = &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st, err
}

// unchanged compares the attributes that a write changes. A write through a memory mapping may go undetected. Then the
// copy may mix both states, but it is still the hashed one.
func unchanged(a, b unix.Stat_t) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}
