//go:build linux

package jail

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

// Files of real hosts. Only one line that does not concern control groups is kept.
const (
	v2Mount   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	someMount = "23 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"

	separate = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	hybrid = `31 23 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
33 31 0:30 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:16 - cgroup cgroup rw,memory
`
)

func TestLocate(t *testing.T) {
	for _, c := range []struct {
		name, groups, mounts string
		root                 bool
		want                 string // version, controllers and parents; or part of the error
	}{
		{"systemd, root", "0::/user.slice/user-0.slice/session-1.scope\n", someMount + v2Mount, true,
			"2 memory,pids,cpu /sys/fs/cgroup /sys/fs/cgroup/user.slice/user-0.slice/session-1.scope"},
		{"systemd, delegated", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/bailey.service\n", someMount + v2Mount, false,
			"2 memory,pids,cpu /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/bailey.service"},
		{"systemd, a session's scope", "0::/user.slice/user-1000.slice/session-3.scope\n", v2Mount, false,
			"2 memory,pids,cpu /sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"},
		{"a gateway that moved into its leaf", "0::/app.slice/b.service/bailey-1000/42-0a/self\n", v2Mount, false,
			"2 memory,pids,cpu /sys/fs/cgroup/app.slice/b.service"},
		{"a leaf that is somebody else's", "0::/app.slice/x/y/self\n", v2Mount, false, "2 memory,pids,cpu /sys/fs/cgroup/app.slice/x/y/self"},
		{"at the root, root", "0::/\n", v2Mount, true, "2 memory,pids,cpu /sys/fs/cgroup"},
		{"separate controllers", "9:name=systemd:/\n8:pids:/\n4:memory:/process_api/55\n2:cpuacct:/\n1:cpu:/\n0::/\n", separate, true,
			"1 memory /sys/fs/cgroup/memory /sys/fs/cgroup/memory/process_api/55; 1 pids /sys/fs/cgroup/pids; 1 cpu /sys/fs/cgroup/cpu"},
		{"separate controllers, a user", "8:pids:/u:1\n4:memory:/u:1\n1:cpu:/u:1\n0::/\n", separate, false,
			"1 memory /sys/fs/cgroup/memory/u:1; 1 pids /sys/fs/cgroup/pids/u:1; 1 cpu /sys/fs/cgroup/cpu/u:1"},
		{"hybrid", "5:memory:/m\n3:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/s\n", someMount + hybrid, false,
			"1 memory /sys/fs/cgroup/memory/m; 2 pids /sys/fs/cgroup/unified/s; 1 cpu /sys/fs/cgroup/cpu,cpuacct/c"},
		{"several in one hierarchy", "3:memory,pids:/\n2:cpu:/\n", "1 1 0:1 / /a rw - cgroup c rw,memory,pids\n2 1 0:2 / /b rw - cgroup c rw,cpu\n", true,
			"1 memory,pids /a; 1 cpu /b"},
		{"without cpu", "3:memory,pids:/\n", "1 1 0:1 / /a rw - cgroup c rw,memory,pids\n", true, "1 memory,pids /a"},
		{"docker, version 2", "0::/\n", "700 690 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n", true, "read-only"},
		{"docker, version 1", "8:pids:/docker/ab\n4:memory:/docker/ab\n1:cpu:/docker/ab\n",
			"1 0 0:1 /docker/ab /c/memory ro - cgroup cgroup rw,memory\n2 0 0:2 /docker/ab /c/pids ro - cgroup cgroup rw,pids\n", true, "read-only"},
		{"a container that may write", "0::/docker/ab/init\n", "1 0 0:1 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n", false,
			"2 memory,pids,cpu /sys/fs/cgroup/init"},
		{"a writable mount beside one that is not", "0::/\n", "1 0 0:1 / /ro ro - cgroup2 c rw\n2 0 0:1 / /rw rw - cgroup2 c rw\n", true, "2 memory,pids,cpu /rw"},
		{"a group above the namespace", "0::/../../x\n", v2Mount, false, "does not show"},
		{"a group beside what is mounted", "0::/docker/abc\n", "1 0 0:1 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n", false, "does not show"},
		{"a group that was removed", "0::/x (deleted)\n", v2Mount, false, "does not show"},
		{"covered", "0::/\n", v2Mount + "99 23 0:9 / /sys rw - tmpfs tmpfs rw\n", true, "memory is not mounted"},
		{"covered at the same place", "0::/\n", v2Mount + "99 30 0:9 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", true, "memory is not mounted"},
		{"a neighbour covers nothing", "0::/\n", v2Mount + "99 23 0:9 / /sys/fs/cg rw - tmpfs tmpfs rw\n", true, "2 memory,pids,cpu /sys/fs/cgroup"},
		{"no pids", "4:memory:/\n", "1 1 0:1 / /a rw - cgroup c rw,memory\n", true, "pids is not mounted"},
		{"not mounted", "0::/\n", someMount, true, "memory is not mounted"},
		{"no control groups", "", someMount, true, "memory is not mounted"},
		{"a blank in a path", "0::/a b\n", `1 0 0:1 / /c\040g rw - cgroup2 c rw` + "\n", false, "2 memory,pids,cpu /c g/a b"},
		{"torn lines", "0:\n:\n4:memory\n0::/\n", "30\n1 2 3 - cgroup2\n - cgroup2 c rw\n" + v2Mount, true, "2 memory,pids,cpu /sys/fs/cgroup"},
	} {
		var parts []string
		found, err := findHierarchies(c.groups, c.mounts)
		for _, h := range found {
			var dirs []string
			if dirs, err = h.parentCandidates(c.root); err != nil {
				break
			}
			parts = append(parts, fmt.Sprintf("%d %s %s", h.version, strings.Join(h.controllers, ","), strings.Join(dirs, " ")))
		}
		got := strings.Join(parts, "; ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// FuzzLocate checks that groups are created only below a mount that the texts name. A container influences the texts as
// much as the kernel.
func FuzzLocate(f *testing.F) {
	f.Add("0::/user.slice/x\n", someMount+v2Mount)
	f.Add("8:pids:/\n4:memory:/process_api/55\n1:cpu:/\n0::/\n", separate)
	f.Add("5:memory:/../m\n3:cpu,cpuacct:/c\n0::/s/bailey-0/a/self", hybrid)
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		found, err := findHierarchies(groups, mounts)
		if err != nil && len(found) > 0 {
			t.Error("places were found and refused")
		}
		for _, h := range found {
			for _, root := range []bool{true, false} {
				dirs, _ := h.parentCandidates(root)
				for _, dir := range dirs {
					if relativeTo(h.mount, dir) == "" {
						t.Errorf("%q is not below %q", dir, h.mount)
					}
				}
			}
		}
	})
}

func TestSettings(t *testing.T) {
	b := bounds{layer: layerCgroup, memory: 512 << 20, tasks: 80, weight: usualWeight}
	for _, c := range []struct {
		h    hierarchy
		want string
	}{
		{hierarchy{version: 2, controllers: wantedControllers[:]},
			"memory.swap.max=0? memory.oom.group=1? cpu.weight=100 memory.max=536870912 pids.max=80"},
		{hierarchy{version: 2, controllers: wantedControllers[:2]}, "memory.swap.max=0? memory.oom.group=1? memory.max=536870912 pids.max=80"},
		{hierarchy{version: 1, controllers: wantedControllers[:1]}, "memory.limit_in_bytes=536870912 memory.memsw.limit_in_bytes=536870912? memory.kmem.tcp.limit_in_bytes=536870912?"},
		{hierarchy{version: 1, controllers: wantedControllers[1:]}, "cpu.shares=1024 pids.max=80"},
	} {
		var words []string
		for _, s := range append(c.h.sharedSettings(), c.h.limitSettings(b)...) {
			w := s.file + "=" + s.value
			if s.optional {
				w += "?"
			}
			words = append(words, w)
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.h, got, c.want)
		}
	}
}

func TestTogether(t *testing.T) {
	const meminfo = "MemTotal:       16384000 kB\nMemFree:         1000 kB\n"
	for _, c := range []struct {
		meminfo, threads string
		memory, tasks    uint64
	}{
		{meminfo, "126000\n", 12582912000, 63000},
		{meminfo, "16777216\n", 12582912000, 4194304}, // more than pids.max accepts
		{meminfo, "", 0, 0},
		{"", "126000\n", 0, 0},
	} {
		b, err := gatewayBounds(c.meminfo, c.threads)
		if (err != nil) != (c.tasks == 0) || err == nil && (b.memory != c.memory || b.tasks != c.tasks) {
			t.Errorf("%q, %q: %+v, %v", c.meminfo, c.threads, b, err)
		}
	}
}

func TestKilled(t *testing.T) {
	for text, want := range map[string]uint64{
		"low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n": 3,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n":               2,
		"oom_kill 0\n": 0, "": 0, "oom_kill x\n": 0, "oom_kill_disable 1\n": 0, "oom_kill 4": 4,
	} {
		if got := oomKillCount(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const good = "Name:\tx\nPPid:\t7\nRssAnon:\t     100 kB\nRssFile:\t    9000 kB\nRssShmem:\t      20 kB\nVmSwap:\t       3 kB\nThreads:\t4\n"
	s, err := parseStatus([]byte(good))
	if want := (status{parent: 7, threads: 4, memory: 123 << 10}); err != nil || s != want {
		t.Errorf("%+v, %v, want %+v", s, err, want)
	}
	if s, err := parseStatus([]byte("Name:\tzombie\nPPid:\t7\nThreads:\t1\n")); err != nil || s.memory != 0 {
		t.Errorf("a zombie: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "PPid:\t7\n", "Threads:\t1\n", "PPid:\tx\nThreads:\t1\n", "PPid:\t1\nThreads:\t-1\n", "PPid\nThreads\n"} {
		if s, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, s)
		}
	}
}

// FuzzStatus checks any text: a caged process chooses its name, which is part of it.
func FuzzStatus(f *testing.F) {
	f.Add([]byte("Name:\tx\nPPid:\t7\nRssAnon:\t     100 kB\nThreads:\t4\n"))
	f.Add([]byte("PPid:\t-1\nRssShmem: 99999999999999999999 kB\nThreads: 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStatus(text); err != nil && s != (status{}) {
			t.Errorf("%+v with %v", s, err)
		}
	})
}

func TestBounds(t *testing.T) {
	here := &enforcerFactory{asked: true} // a host without control groups
	for _, c := range []struct {
		limits bailey.Limits
		want   string
	}{
		{bailey.Limits{}, "watcher memory 536870912 tasks 80 oom-first\n"},
		{bailey.Limits{MemoryBytes: 1 << 30, Tasks: 10}, "watcher memory 1073741824 tasks 26 oom-first\n"},
		{bailey.Limits{MemoryBytes: -1, Tasks: -1}, "watcher memory 536870912 tasks 80 oom-first\n"},
	} {
		b := here.boundsFor(c.limits)
		if got := string(b.appendText(nil)); got != c.want || !reflect.DeepEqual(b.absentLayers(), []string{"cgroup"}) {
			t.Errorf("%+v: %q without %v, want %q", c.limits, got, b.absentLayers(), c.want)
		}
	}
	for controllers, want := range map[string]string{"memory pids cpu": "cgroup memory 536870912 tasks 80 cpu 100 oom-first\n", "memory pids": "cgroup memory 536870912 tasks 80 oom-first\n"} {
		h := &enforcerFactory{asked: true, groups: &cgroupManager{sites: []*gatewayCgroup{{hierarchy: hierarchy{controllers: strings.Fields(controllers)}}}}}
		b := h.boundsFor(bailey.Limits{})
		if got := string(b.appendText(nil)); got != want || b.absentLayers() != nil || (b.protectionGaps() == nil) != (b.weight > 0) {
			t.Errorf("%s: %q, absent %v, lacks %v", controllers, got, b.absentLayers(), b.protectionGaps())
		}
	}
}
