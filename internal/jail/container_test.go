//go:build linux

package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bailey/internal/ktest"
)

// containerEnv holds the path of the canary in a container that TestRemoval made.
const containerEnv = "BAILEY_JAIL_CONTAINER"

// container runs the calling test again where a weak cage can do no harm, and returns true in the parent.
func container(t *testing.T) (parent bool) {
	t.Helper()
	runtime.LockOSThread() // the container ends with the thread that started it
	if os.Getenv(containerEnv) != "" {
		furnished(t, filepath.Dir(os.Getenv(containerEnv)))
		return false
	}
	ktest.Require(t, "userns", "netns", "landlock")
	t.Parallel()
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = stranger, strangers
	}
	one := func(host int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 1000, HostID: host, Size: 1}}
	}
	dir, err := os.MkdirTemp("/var/tmp", "bailey-container-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	canary := put(t, filepath.Join(dir, "canary"), random(t), 0o644)
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.timeout=3m", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), containerEnv+"="+canary, probeEnv+"="+probe, "BAILEY_KERNEL=")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: one(uid), GidMappings: one(gid), GidMappingsEnableSetgroups: os.Geteuid() == 0, Setsid: true, Pdeathsig: unix.SIGKILL,
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN},
		Credential:  &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: os.Geteuid() != 0}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a container: %v\n%s", err, out)
	}
	return true
}

// furnished sets up the container: /proc with its own processes, a home, a loopback interface, pids that no cage will
// get, and no file at the canary's path.
func furnished(t *testing.T, canary string) {
	t.Helper()
	steps := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", canary, "tmpfs", 0, ""),
		unix.Mount("tmpfs", "/home", "tmpfs", 0, "mode=0755"),
		os.Mkdir(homeDir, 0o755),
		os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte("20000"), 0),
		unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1000, Max: 1000}),
		unix.Sethostname([]byte("container")),
		loopback(),
	}
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d of the container: %v", i, err)
		}
	}
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
