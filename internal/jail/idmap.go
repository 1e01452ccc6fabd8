//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// maxUIDs is the number of users for the cages of a gateway that runs as root. As long as there are enough, a user has
// one cage at a time: pending signals, message queues, pages of pipes and locked memory are counted per user on the
// whole machine.
const maxUIDs = 512

// uids counts the cages of each user, from the first on. If used is empty, there is one user for all.
type uids struct {
	mu   sync.Mutex
	used []int
}

// acquireOffset returns the user with the fewest cages, as an offset from the first, and the function that releases it.
func (u *uids) acquireOffset() (n int, leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.used) == 0 {
		return 0, func() {}
	}
	for i, cages := range u.used {
		if cages < u.used[n] {
			n = i
		}
	}
	u.used[n]++
	return n, sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.used[n]--
	})
}

// A user is the user of a cage on the host, until the cage is gone.
type user struct {
	uid   int
	leave func()
}

// releaseUser releases the user; the cage must be gone.
func (u user) releaseUser() {
	if u.leave != nil {
		u.leave()
	}
}

// acquireUser takes a user for a cage.
func (j *Jail) acquireUser() user {
	n, leave := j.uids.acquireOffset()
	return user{j.hostUID + n, leave}
}

// An owner owns files on disk. An idmapped bind maps it to the cage's own user.
type owner struct{ uid, gid uint32 }

// A mapping maps an owner to the user of a cage, which has uid outside.
type mapping struct {
	of  owner
	uid int
}

// hasDescriptor reports whether a descriptor accompanies a step, for example of a copy or of a mount that PID 1 cannot make.
func hasDescriptor(s *inside.Step) bool {
	switch s.Op {
	case inside.Donated, inside.Copy, inside.Lend, inside.Home:
		return true
	case inside.Grant:
		return s.N[0] != inside.ByPath
	}
	return false
}

// numberDescriptors writes into each step the index of its descriptor and, if it was lent, the length of its file.
func (r *run) numberDescriptors(steps []inside.Step) (err error) {
	n := uint64(0)
	for i := range steps {
		s := &steps[i]
		if !hasDescriptor(s) {
			continue
		}
		s.N[0] = n
		n++
		if s.Op == inside.Lend {
			if s.N[2], err = r.loan.fileSize(s.S[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// openDescriptors opens the descriptors for the steps, in their order. If the gateway is root, it binds each place from the very
// descriptor that was checked, mapped to the cage's user, which has uid outside.
func (r *run) openDescriptors(steps []inside.Step, uid int) (files []*os.File, err error) {
	for i := range steps {
		s := &steps[i]
		var file *os.File
		switch s.Op {
		case inside.Donated:
			file, err = r.jail.cloneDetached(r.places[s.S[0]], s.N[3],
				mapping{owner{uint32(s.N[4]), uint32(s.N[5])}, uid})
		case inside.Copy:
			file, err = r.copySource(*s)
		case inside.Lend:
			file, err = duplicateFile(r.loan[s.S[0]])
		case inside.Home:
			file, err = r.duplicateSource(s)
		case inside.Grant:
			if !hasDescriptor(s) {
				continue
			}
			file, err = r.duplicateSource(s)
		default:
			continue
		}
		if err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

// duplicateSource duplicates a descriptor for a stage: the call's private directory, or a place.
func (r *run) duplicateSource(s *inside.Step) (*os.File, error) {
	from := r.nest.handle
	if s.Op == inside.Grant && s.S[0] != nestName {
		from = r.places[s.S[0]]
	}
	file, err := duplicateFile(from)
	if err != nil {
		return nil, layerUnavailable("landlock", err)
	}
	return file, nil
}

// cloneDetached clones the tree at place into a detached mount, with attrs and with its owner mapped.
func (j *Jail) cloneDetached(place *os.File, attrs uint64, as mapping) (*os.File, error) {
	ns, err := j.idmapNamespace(as)
	if err != nil {
		return nil, err
	}
	fd, err := unix.OpenTree(int(place.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, layerUnavailable("binds-noexec", fmt.Errorf("open_tree %s: %w", place.Name(), err))
	}
	tree := os.NewFile(uintptr(fd), place.Name())
	attr := unix.MountAttr{Attr_set: attrs | unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		tree.Close()
		return nil, bailey.Unavailable.Wrap(err, "no jail: layer binds-noexec: the filesystem of "+place.Name()+" cannot map its owner to the jail's user",
			"start bailey as an ordinary user, or keep the workspace on ext4, xfs or btrfs, or on tmpfs from Linux 6.3 on")
	}
	return tree, nil
}

// idmapNamespace returns a user namespace that maps the owner's ids to the cage's user. It is made once per owner and user, by a
// PID 1 that never gets a plan.
func (j *Jail) idmapNamespace(as mapping) (*os.File, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ns := j.maps[as]; ns != nil {
		return ns, nil
	}
	ns, err := j.mapOwner(as)
	if err != nil {
		return nil, layerUnavailable("userns", err)
	}
	j.maps[as] = ns
	return ns, nil
}

func (j *Jail) mapOwner(as mapping) (ns *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "idmap"), os.NewFile(uintptr(pair[1]), "idmap")
	defer theirs.Close()
	p, err := startInside(inside.Name, theirs, &syscall.SysProcAttr{
		Cloneflags:                 unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: int(as.of.uid), HostID: as.uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: int(as.of.gid), HostID: as.uid, Size: 1}},
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: as.of.uid, Gid: as.of.gid},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	ours.Close() // PID 1 exits at the end of its stream
	_, werr := p.Wait()
	return ns, errors.Join(err, werr)
}
