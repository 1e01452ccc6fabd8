//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"bailey/test/guest"
)

const groups = "/sys/fs/cgroup"

// prepareSystem turns the initramfs into a system on which Linux programs can run.
func prepareSystem(job guest.Job) error {
	// The root must be a mount that pivot_root(2) accepts. The initial root is not.
	for _, step := range []func() error{
		func() error { return unix.Mount("/", "/mnt", "", unix.MS_BIND, "") },
		func() error { return unix.Chdir("/mnt") },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("the root: %w", err)
		}
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		kind, at, options string
		flags             uintptr
	}{
		{"proc", "/proc", "", quiet | unix.MS_NOEXEC},
		{"sysfs", "/sys", "", quiet | unix.MS_NOEXEC},
		{"devtmpfs", "/dev", "", unix.MS_NOSUID},
		{"devpts", "/dev/pts", "ptmxmode=0666", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", "/dev/shm", "mode=1777", quiet},
		{"tmpfs", "/home/user", "mode=0700,uid=1000,gid=1000", quiet},
	} {
		if err := mountAt(m.kind, m.at, m.kind, m.flags, m.options); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink("/proc/self/"+target, "/dev/"+name); err != nil { // the links that udev creates
			return err
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if err := mountTemporary(job.Disk, dir); err != nil {
			return err
		}
	}
	if err := mountCgroups(job.Cgroup); err != nil {
		return err
	}
	return bringUpLoopback()
}

func mountAt(kind, at, source string, flags uintptr, options string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, at, kind, flags, options); err != nil {
		return &os.PathError{Op: "mount " + kind, Path: at, Err: err}
	}
	return nil
}

// mountTemporary mounts a directory for temporary files of all users: its own tmpfs, or the disk, which is then the same in
// every such directory.
func mountTemporary(disk, dir string) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV
	if disk == "" {
		return mountAt("tmpfs", dir, "tmpfs", quiet, "mode=1777")
	}
	for range 200 { // the kernel may still be probing disks while PID 1 runs
		if _, err := os.Stat(disk); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := mountAt("ext4", dir, disk, quiet, ""); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// mountCgroups mounts the control groups: version 2, or each controller of version 1 as systemd did.
func mountCgroups(version string) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if version == "v2" {
		return mountAt("cgroup2", groups, "cgroup2", quiet, "")
	}
	if err := mountAt("tmpfs", groups, "tmpfs", quiet, "mode=0755"); err != nil {
		return err
	}
	for _, controller := range []string{"memory", "pids", "cpu,cpuacct", "cpuset", "devices", "freezer"} {
		if err := mountAt("cgroup", filepath.Join(groups, controller), "cgroup", quiet, controller); err != nil {
			return err
		}
	}
	return nil
}

// delegateCgroup creates a control group that belongs to uid, with every available controller (cgroups(7)).
func delegateCgroup(dir string, uid int) (*os.File, error) {
	controllers, err := os.ReadFile(groups + "/cgroup.controllers")
	if err != nil {
		return nil, fmt.Errorf("delegation is cgroup v2's: %w", err)
	}
	for _, name := range bytes.Fields(controllers) {
		if err := os.WriteFile(groups+"/cgroup.subtree_control", append([]byte("+"), name...), 0); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"} {
		if err := os.Chown(dir+name, uid, uid); err != nil {
			return nil, err
		}
	}
	return os.Open(dir)
}

// bringUpLoopback brings lo up, which every Linux system has.
func bringUpLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	return nil
}
