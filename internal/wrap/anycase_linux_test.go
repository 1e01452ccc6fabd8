package wrap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// blind is a case-insensitive file system: a project with .git and one file in it, served by FUSE (linux/fuse.h).
type blind struct {
	names   map[uint64]map[string]uint64 // the entries of each directory, by node
	upwards bool                         // names are case-sensitive
}

const (
	fuseLookup, fuseForget, fuseGetattr, fuseOpendir, fuseReaddir, fuseReleasedir, fuseInit = 1, 2, 3, 27, 28, 29, 26
	fuseHead                                                                                = 40
)

// mount mounts it until the test ends, in a mount namespace of this thread only: tests of other packages count the
// machine's mounts.
func (f blind) mount(t *testing.T) (dir string) {
	t.Helper()
	ktest.Require(t, "root")
	runtime.LockOSThread() // must not be unlocked: the namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		ktest.Missing(t, "fuse", err)
	}
	dir = t.TempDir()
	if err := unix.Mount("blind", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", fd)); err != nil {
		unix.Close(fd)
		ktest.Missing(t, "fuse", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		for buf := make([]byte, 1<<17); ; {
			n, err := unix.Read(fd, buf)
			if err == unix.ENODEV { // unmounted
				return
			}
			if err == nil {
				f.serve(fd, buf[:n])
			}
		}
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
		<-done
	})
	return dir
}

// serve answers one request.
func (f blind) serve(fd int, req []byte) {
	op, unique, node := binary.NativeEndian.Uint32(req[4:]), binary.NativeEndian.Uint64(req[8:]), binary.NativeEndian.Uint64(req[16:])
	var body []byte
	errno := syscall.Errno(0)
	switch op {
	case fuseForget:
		return
	case fuseInit:
		body = pack(uint32(7), uint32(31), uint32(1<<17), uint32(0), uint16(0), uint16(0), uint32(4096), uint32(1), uint16(0), uint16(0), [8]uint32{})
	case fuseLookup:
		child := f.find(node, string(bytes.TrimRight(req[fuseHead:], "\x00")))
		if child == 0 {
			errno = syscall.ENOENT
			break
		}
		body = append(pack(child, uint64(0), uint64(0), uint64(0), uint32(0), uint32(0)), f.attr(child)...)
	case fuseGetattr:
		body = append(pack(uint64(0), uint32(0), uint32(0)), f.attr(node)...)
	case fuseOpendir:
		body = pack(uint64(1), uint32(0), uint32(0))
	case fuseReaddir:
		if offset := binary.NativeEndian.Uint64(req[fuseHead+8:]); offset == 0 {
			next := uint64(0)
			for name, child := range f.names[node] {
				next++
				body = append(body, pack(child, next, uint32(len(name)), uint32(0))...)
				body = append(body, name...)
				body = append(body, make([]byte, (8-len(name)%8)%8)...)
			}
		}
	case fuseReleasedir:
	default:
		errno = syscall.ENOSYS
	}
	if errno != 0 {
		body = nil
	}
	unix.Write(fd, append(pack(uint32(16+len(body)), -int32(errno), unique), body...))
}

func (f blind) find(dir uint64, name string) uint64 {
	for n, node := range f.names[dir] {
		if n == name || !f.upwards && strings.EqualFold(n, name) {
			return node
		}
	}
	return 0
}

func (f blind) attr(node uint64) []byte {
	mode := uint32(syscall.S_IFREG | 0o644)
	if f.names[node] != nil {
		mode = syscall.S_IFDIR | 0o755
	}
	return pack(node, uint64(0), uint64(0), [3]uint64{}, [3]uint32{}, mode, uint32(1), uint32(0), uint32(0), uint32(0), uint32(4096), uint32(0))
}

func pack(fields ...any) (b []byte) {
	for _, f := range fields {
		b, _ = binary.Append(b, binary.NativeEndian, f)
	}
	return b
}

// TestAttackAnyCase checks that no agent is started if .GIT leads to .git, even in a subdirectory. If names are
// case-sensitive, or if the second name is only a hard link, the agent must be started.
func TestAttackAnyCase(t *testing.T) {
	tree := map[uint64]map[string]uint64{1: {"project": 2}, 2: {".git": 3, "123": 5}, 3: {"config": 4}}
	for _, upwards := range []bool{false, true} {
		project := filepath.Join(blind{tree, upwards}.mount(t), "project")
		found, err := Guarded(project)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Paths) == 0 {
			t.Fatal("nothing was found")
		}
		err = found.AnyCase(project)
		if upwards != (err == nil) || err != nil && (bailey.KindOf(err) != bailey.Denied || !strings.Contains(bailey.HintOf(err), "--any-case")) {
			t.Errorf("case counts: %t; %v", upwards, err)
		}
		if !upwards && !anyCase(filepath.Join(project, ".git")) {
			t.Error("its .git is not seen to be found as .GIT")
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/.mcp.json", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(dir+"/.mcp.json", dir+"/.MCP.JSON"); err != nil {
		t.Fatal(err)
	}
	found, err := Guarded(dir)
	if err == nil {
		err = found.AnyCase(dir)
	}
	if err != nil || len(found.Paths) != 2 {
		t.Errorf("%v, found %v", err, found.Paths)
	}
}
