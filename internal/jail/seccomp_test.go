package jail

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

func profiles() (all []profile) {
	for i := range 32 {
		all = append(all, profileOf(uint8(i)))
	}
	return append(all, profile{Shared: true, Host: true}, profile{Shared: true, NoSignals: true, Host: true, Inet: true},
		profile{Shared: true, Unix: true, Host: true}, profile{Host: true, Inet: true})
}

func profileOf(bits uint8) profile {
	return profile{Inet: bits&1 != 0, Unix: bits&2 != 0, Shared: bits&4 != 0, NoSignals: bits&8 != 0, Watches: bits&16 != 0}
}

func (p profile) String() string {
	var words []string
	for i, on := range []bool{p.Inet, p.Unix, p.Shared, p.NoSignals, p.Watches, p.Host} {
		if on {
			words = append(words, []string{"inet", "unix", "shared", "no-signals", "watches", "host"}[i])
		}
	}
	return "{" + strings.Join(words, " ") + "}"
}

// tabled returns all calls of the table, by number.
func tabled(a architecture) map[uint32]string {
	all := profileOf(15)
	names := map[uint32]string{}
	for _, g := range all.deniedGroups() {
		for _, c := range g.calls {
			names[uint32(c.numberOn(a))] = c.name
		}
	}
	for _, r := range all.argumentRules() {
		names[uint32(r.numberOn(a))] = r.name
	}
	delete(names, none)
	return names
}

func among(name string, groups ...group) bool {
	return slices.ContainsFunc(groups, func(g group) bool {
		return slices.ContainsFunc(g.calls, func(c call) bool { return c.name == name })
	})
}

// A law computes the required verdict of a filter, independently of the filter's code.
type law struct {
	a     architecture
	p     profile
	names map[uint32]string
	never map[string]bool // denied whatever the arguments are
}

func lawOf(a architecture, p profile) law {
	l := law{a, p, tabled(a), map[string]bool{}}
	for _, name := range l.names {
		l.never[name] = among(name, alwaysDenied...) || p.Shared && among(name, shared...) || p.NoSignals && among(name, signalling) || (p.Shared || !p.Watches) && among(name, watching)
	}
	return l
}

func (l law) verdict(d data) uint32 {
	p, n := l.p, d.nr
	amd64, arm64 := l.a.name == "amd64", l.a.name == "arm64"
	switch {
	case amd64 && (d.arch != 0xc000003e || n >= 0x40000000), arm64 && d.arch != 0xc00000b7:
		return kill
	case n > 471, amd64 && n > 336 && n < 424, arm64 && (n > 243 && n < 260 || n > 294 && n < 424):
		return enosys
	}
	name := l.names[n]
	if l.never[name] {
		return eperm
	}
	yes := func(ok bool, no uint32) uint32 {
		if ok {
			return allow
		}
		return no
	}
	x, y, z, w := uint32(d.args[0]), uint32(d.args[1]), uint32(d.args[2]), uint32(d.args[3])
	plain := func(mode uint32) uint32 { return yes(mode>>10&3 == 0, eperm) }
	switch name {
	case "openat2":
		return enosys
	case "open":
		return yes(y&0x400040 == 0 || plain(z) == allow, eperm)
	case "openat":
		return yes(z&0x400040 == 0 || plain(w) == allow, eperm)
	case "creat", "mknod", "chmod", "fchmod":
		return plain(y)
	case "mknodat", "fchmodat", "fchmodat2":
		return plain(z)
	case "clone":
		return yes(x&0x7e020080 == 0, eperm)
	case "clone3":
		return enosys
	case "personality":
		return yes(x == 0 || x+1 == 0, eperm)
	case "socket":
		return yes(p.mayOpen(x, y&15, z), eacces)
	case "socketpair":
		return yes(x == 1 && (y&15 == 1 || y&15 == 5 || y&15 == 2 && p.Unix), eacces)
	case "ioctl":
		return yes(!p.forbids(y), eperm)
	case "setrlimit":
		return yes(x != 4, errno)
	case "prlimit64":
		if p.Shared {
			return yes(x == 0 && (y < 16 && y != 4 || d.args[2] == 0), eperm)
		}
		return yes(y < 16 && y != 4 || d.args[2] == 0, errno)
	case "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr":
		return yes(!p.Shared || x == 0, eperm)
	case "setpriority":
		return yes(!p.Shared || x == 0 && y == 0, eperm)
	case "ioprio_set":
		return yes(!p.Shared || x == 1 && y == 0, eperm)
	case "kill":
		return yes(!p.NoSignals || x == 0, eperm)
	case "fcntl":
		return yes(!(p.NoSignals && (y == 8 || y == 15) || y == 1024 || y == 1040 || y == 1031), eperm)
	case "mmap":
		return yes(w>>18&1 == 0, eperm)
	case "setsockopt":
		return yes(y != 1 || z != 26 && z != 50 && z != 51 && z != 52, eperm)
	case "getxattr", "lgetxattr", "fgetxattr", "getxattrat", "listxattr", "llistxattr", "flistxattr", "listxattrat":
		return yes(!p.Shared, errno|95)
	case "seccomp":
		return yes(y&8 == 0, eperm)
	}
	return allow
}

func (p profile) mayOpen(family, kind, protocol uint32) bool {
	switch family {
	case 1:
		return p.Unix && (kind == 1 || kind == 2 || kind == 5)
	case 2, 10:
		return p.Inet && (kind == 1 && (protocol == 0 || protocol == 6) || kind == 2 && (protocol == 0 || protocol == 17) ||
			p.Host && kind == 2 && (protocol == 1 || protocol == 58))
	case 16:
		return p.Host && (kind == 2 || kind == 3) && (protocol == 0 || protocol == 4)
	}
	return false
}

func (p profile) forbids(request uint32) bool {
	switch request {
	case 0x5412, 0x541c, 0x5423, 0xc0506617, 0xc0406618, 0x50009401, 0x50009417, 0x5000940e, 0x50009418, 0x5000940f, 0x5000943f:
		return true
	case 0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401c5820, 0x40806685, 0x800c6613, 0x40047211, 0x40086604, 0x40046604:
		return p.Shared
	case 0x8901, 0x8902:
		return p.NoSignals
	}
	return p.Shared && request>>8&0xff == 0x94
}

// words returns arguments on which a verdict depends. Any two of few are tried together, such as socket families and
// kinds; many are tried in addition. Some have a high word, on which no verdict may depend.
func words() (few, many []uint64) {
	few = []uint64{0, 1, 2, 3, 5, 10, 16, 17, 40, 0x80801, 0x80802, 0x80803, 0x80805, 1 << 32, 1<<32 | 1, 2<<32 | 10, 1<<32 - 1, 1<<64 - 1}
	for _, w := range []uint32{0, 4, 6, 7, 8, 9, 14, 15, 31, 1 << 31, 1<<32 - 2,
		0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x7e020080, 0x1200011, 0x3d0f00, 0x7c020011, // clone
		0x5401, 0x5412, 0x541c, 0x5423, 0x5421, 0x8901, 0x8902, 0x5000940e, 0x40049409, 0x9400, 0x9500, 0xc0506617, 0xc0406618, // ioctl
		0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401c5820, 0x40806685, 0x800c6613, 0x40047211, 0x80086601,
		0x40086604, 0x40046604, 0x50009401, 0x50009417, 0x50009418, 0x5000940f, 0x5000943f, 1024, 1040, 1031, 12} {
		many = append(many, uint64(w), uint64(w)|0xdeadbeef<<32, uint64(w)<<32|1)
	}
	return few, many
}

// TestProgramsKeepTheRule runs every number of both tables, with arguments that try to bypass the filter, through every
// program, and compares the verdict with law.
func TestProgramsKeepTheRule(t *testing.T) {
	ktest.Long(t)
	few, many := words()
	for _, a := range architectures {
		ruled := map[uint32]bool{}
		for _, r := range append(profileOf(15).argumentRules(), profileOf(0).argumentRules()...) {
			ruled[uint32(r.numberOn(a))] = true
		}
		for _, p := range profiles() {
			prog := filterProgram(a, p)
			law := lawOf(a, p)
			if err := verify(prog); err != nil {
				t.Fatalf("%s %v: the kernel would not take it: %v", a.name, p, err)
			}
			most := 0
			check := func(d data) {
				got, passed := interpret(prog, d)
				most = max(most, passed)
				if want := law.verdict(d); got != want {
					t.Fatalf("%s %v: number %d %s of %#x, %#x: %s, want %s", a.name, p, d.nr, law.names[d.nr], d.arch, d.args, verdictName(got), verdictName(want))
				}
			}
			for _, n := range numbers() {
				for _, x := range []uint64{0, 1, 1<<64 - 1} {
					check(data{nr: n, arch: a.audit, args: [6]uint64{x, x, x, x, x, x}})
				}
				for _, arch := range foreign(a) {
					check(data{nr: n, arch: arch})
				}
			}
			for n := range ruled {
				for _, x := range few {
					for _, y := range many {
						check(data{nr: n, arch: a.audit, args: [6]uint64{x, y}})
						check(data{nr: n, arch: a.audit, args: [6]uint64{y, x}})
					}
					for _, y := range few {
						for _, z := range []uint64{0, 6, 17, 1, 4, 12, 58, 132, 136, 255, 262, 6 | 1<<32, 26, 50, 51, 52} {
							check(data{nr: n, arch: a.audit, args: [6]uint64{x, y, z}})
						}
					}
				}
			}
			for n := range ruled { // with a mode that is read, and with one that is not
				for _, flags := range []uint64{0, 1, 0x40, 0x41, 0x400000, 0x410002, 0x80000, 1<<64 - 1, 0x40 << 32} {
					for _, mode := range []uint64{0, 0o644, 0o777, 0o1777, 0x40022, 0x4022, 0o4755, 0o2755, 0o6000, 0o104644, 0o4755 << 32, 0o2000 | 1<<40, 1<<64 - 1} {
						check(data{nr: n, arch: a.audit, args: [6]uint64{flags, mode, mode, mode}})
						check(data{nr: n, arch: a.audit, args: [6]uint64{mode, flags, mode, flags}})
						check(data{nr: n, arch: a.audit, args: [6]uint64{3, mode, flags, mode}})
					}
				}
			}
			_, common := interpret(prog, data{nr: 0, arch: a.audit})
			t.Logf("%s %v: %d instructions, read passes %d, none more than %d", a.name, p, len(prog), common, most)
		}
	}
}

// TestNarrowLeavesNothing checks that the installed program and the one that each call adds together equal that of the
// strictest profile, for every number, and that neither does alone.
func TestNarrowLeavesNothing(t *testing.T) {
	few, _ := words()
	// the kernel takes the smallest value, as a signed number (seccomp(2))
	strict := func(v uint32) int32 { return int32(v & 0xffff0000) }
	for _, a := range architectures {
		stands, adds := filterProgram(a, profile{Helper: true}), narrowProgram(a)
		if err := verify(adds); err != nil {
			t.Fatal(err)
		}
		law, alone := lawOf(a, profile{}), [2]int{}
		check := func(d data) {
			first, _ := interpret(stands, d)
			second, _ := interpret(adds, d)
			got, want := second, law.verdict(d)
			if strict(first) < strict(second) {
				got = first
			}
			if got != want {
				t.Fatalf("%s: number %d %s: %s and %s, want %s", a.name, d.nr, law.names[d.nr], verdictName(first), verdictName(second), verdictName(want))
			}
			for i, v := range []uint32{first, second} {
				if v != want {
					alone[i]++
				}
			}
		}
		for _, n := range numbers() {
			for _, x := range few {
				check(data{nr: n, arch: a.audit, args: [6]uint64{x, x, x, x, x, x}})
			}
			for _, arch := range foreign(a) {
				check(data{nr: n, arch: arch})
			}
		}
		if alone[0] != len(helperCalls)*len(few) || alone[1] == 0 {
			t.Errorf("%s: %v verdicts differ when one stands alone", a.name, alone)
		}
	}
}

// numbers returns the numbers of every table and of x32, and limit values.
func numbers() (all []uint32) {
	for n := range uint32(700) {
		all = append(all, n, 1<<30+n, 1<<31+n, 1<<16+n, ^n)
	}
	return append(all, 1<<30-1)
}

// foreign returns audit values of other tables: i386, arm, both architectures as big-endian or 32-bit, and the other
// architecture.
func foreign(a architecture) []uint32 {
	all := []uint32{0, 0x40000003, 0x40000028, 0x800000b7, 0xb7, 0x3e, 0x4000003e, 1<<32 - 1}
	for _, other := range architectures {
		if other.audit != a.audit {
			all = append(all, other.audit)
		}
	}
	return all
}

func FuzzPrograms(f *testing.F) {
	f.Add(false, uint8(0), uint32(16), uint32(0xc000003e), uint64(0), uint64(0x5412|1<<32), uint64(0))
	f.Add(true, uint8(15), uint32(198), uint32(0xc00000b7), uint64(2), uint64(0x80001), uint64(6))
	f.Add(false, uint8(0), uint32(257), uint32(0xc000003e), uint64(0o4755), uint64(0x41), uint64(0x40))
	f.Add(false, uint8(4), uint32(1<<30), uint32(0x40000003), uint64(0), uint64(0x40049409), uint64(0))
	f.Fuzz(func(t *testing.T, arm bool, bits uint8, nr, arch uint32, x, y, z uint64) {
		a := architectures[0]
		if arm {
			a = architectures[1]
		}
		p, d := profileOf(bits), data{nr: nr, arch: arch, args: [6]uint64{x, y, z, x, y, z}}
		got, _ := interpret(filterProgram(a, p), d)
		if want := lawOf(a, p).verdict(d); got != want {
			t.Errorf("%s %v %+v: %s, want %s", a.name, p, d, verdictName(got), verdictName(want))
		}
	})
}

// TestLongJumps checks that a larger table than the present one is also searched.
func TestLongJumps(t *testing.T) {
	var spans []span
	for i := range uint32(1500) {
		spans = append(spans, span{i * 3, answer{verdict: i}})
	}
	c := code{}
	c.addInstruction(opLoad, numberAt)
	c.addSearch(spans)
	if err := verify(c); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(c, func(word uint64) bool { return decode(word).code == 0x05 }) {
		t.Fatal("no jump is long")
	}
	for n := range uint32(4600) {
		if got, passed := interpret(c, data{nr: n}); got != min(n/3, 1499) || passed > 20 {
			t.Fatalf("%d: %d after %d instructions", n, got, passed)
		}
	}
}

// TestVerifierRefuses checks that verify rejects invalid programs.
func TestVerifierRefuses(t *testing.T) {
	end := uint64(0x06)
	for name, prog := range map[string][]uint64{
		"nothing": {}, "no end": {0x20}, "a wild load": {0x20 | 64<<32, end}, "a crooked load": {0x20 | 2<<32, end},
		"a long jump out": {0x05 | 1<<32, end}, "a jump out": {0x15 | 1<<16, end}, "an else out": {0x35 | 7<<24, end},
		"an unknown code": {0x07, end}, "dead code": {0x05 | 1<<32, end, end}, "too much": append(make([]uint64, 4096), end),
	} {
		if verify(prog) == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestGoldenPrograms(t *testing.T) {
	whole := []profile{{}, {Inet: true, Unix: true}, {Shared: true, NoSignals: true}}
	for _, a := range architectures {
		var b strings.Builder
		for _, p := range profiles() {
			prog := filterProgram(a, p)
			text := make([]byte, 0, 8*len(prog))
			for _, i := range prog {
				text = binary.LittleEndian.AppendUint64(text, i)
			}
			fmt.Fprintf(&b, "%v: %d instructions, sha256 %x\n", p, len(prog), sha256.Sum256(text))
		}
		for _, p := range whole {
			fmt.Fprintf(&b, "\n%v\n%s", p, disassemble(filterProgram(a, p), tabled(a)))
		}
		file := "testdata/seccomp-" + a.name + ".golden"
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("the programs of %s changed; if that is meant, run with -update and read the difference", a.name)
		}
	}
}

// TestTableIsSound checks that no number has two names, and that a call with a rule is in no group.
func TestTableIsSound(t *testing.T) {
	for _, a := range architectures {
		byNumber, byName := map[uint16]string{}, map[string]uint16{}
		enter := func(c call) {
			n := c.numberOn(a)
			if n == none {
				return
			}
			if other := byNumber[n]; other != "" && other != c.name {
				t.Errorf("%s: %d is %s and %s", a.name, n, other, c.name)
			}
			if other, ok := byName[c.name]; ok && other != n {
				t.Errorf("%s: %s is %d and %d", a.name, c.name, n, other)
			}
			byNumber[n], byName[c.name] = c.name, n
			if !slices.ContainsFunc(a.known, func(k [2]uint32) bool { return k[0] <= uint32(n) && uint32(n) <= k[1] }) {
				t.Errorf("%s: %s, %d, is not known", a.name, c.name, n)
			}
		}
		all := profileOf(15)
		for _, g := range all.deniedGroups() {
			for _, c := range g.calls {
				enter(c)
			}
		}
		for _, r := range all.argumentRules() {
			if enter(r.call); among(r.name, all.deniedGroups()...) {
				t.Errorf("%s has a rule and is denied", r.name)
			}
		}
		if len(byName) < 100 {
			t.Errorf("%s: the table has %d calls", a.name, len(byName))
		}
	}
}

// TestWhatMustBeDenied checks the table against the minimum that every cage, and the shared cage, must deny.
func TestWhatMustBeDenied(t *testing.T) {
	least := strings.Fields(`ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp perf_event_open bpf userfaultfd
		io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key mount umount2 mount_setattr move_mount open_tree
		open_tree_attr fsopen fsconfig fsmount fspick pivot_root chroot swapon swapoff unshare setns memfd_create memfd_secret
		open_by_handle_at name_to_handle_at init_module finit_module delete_module kexec_load kexec_file_load clock_settime
		settimeofday adjtimex clock_adjtime acct quotactl quotactl_fd reboot syslog vhangup iopl ioperm modify_ldt lookup_dcookie
		nfsservctl uselib ustat sysfs _sysctl fanotify_init migrate_pages move_pages process_madvise process_mrelease sethostname
		setdomainname create_module`)
	beyond := strings.Fields(`chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr setxattrat
		removexattr lremovexattr fremovexattr removexattrat utime utimes futimesat utimensat file_setattr shmget shmat shmctl semget
		semop msgget msgsnd mq_open mq_unlink pidfd_open pidfd_send_signal`)
	for _, a := range architectures {
		names := tabled(a)
		for p, list := range map[profile][]string{{}: least, {Inet: true, Unix: true}: least, {Shared: true}: append(least, beyond...),
			{NoSignals: true}: {"tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"}} {
			missing := map[string]bool{}
			for _, name := range list {
				missing[name] = true
			}
			for n, name := range names {
				if v, _ := interpret(filterProgram(a, p), data{nr: n, arch: a.audit}); v == eperm {
					delete(missing, name)
				}
			}
			for _, g := range profileOf(15).deniedGroups() {
				for _, c := range g.calls {
					if c.numberOn(a) == none {
						delete(missing, c.name)
					}
				}
			}
			if len(missing) > 0 {
				t.Errorf("%s %v does not deny %v", a.name, p, missing)
			}
		}
	}
}

// TestNumbersAreTheKernels compares the table with the lists of golang.org/x/sys, made from the kernel's headers, for
// both architectures on any machine.
func TestNumbersAreTheKernels(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	dir := strings.TrimSpace(string(out))
	if err == nil && dir == "" {
		err = errors.New("golang.org/x/sys is not in this user's module cache")
	}
	if err != nil {
		ktest.Missing(t, "x-sys-source", err)
	}
	line := regexp.MustCompile(`SYS_(\w+)\s+= (\d+)`)
	for _, a := range architectures {
		text, err := os.ReadFile(filepath.Join(dir, "unix", "zsysnum_linux_"+a.name+".go"))
		if err != nil {
			ktest.Missing(t, "x-sys-source", err)
		}
		theirs := map[string]uint32{}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			theirs[strings.ToLower(m[1])] = uint32(n)
		}
		delete(theirs, "arch_specific_syscall") // the start of a range
		listed := map[uint32]bool{}
		for name, n := range theirs {
			listed[n] = true
			if v, _ := interpret(filterProgram(a, profile{}), data{nr: n, arch: a.audit}); v == enosys && name != "clone3" && name != "openat2" {
				t.Errorf("%s: %s, %d, answers as if nobody knew it", a.name, name, n)
			}
		}
		for n, name := range tabled(a) {
			if theirs[name] != n {
				t.Errorf("%s: %s is %d here and %d there", a.name, name, n, theirs[name])
			}
		}
		for _, k := range a.known {
			for n := k[0]; n <= k[1]; n++ {
				if !listed[n] {
					t.Errorf("%s: %d is known here and not there", a.name, n)
				}
			}
		}
		for _, g := range profileOf(15).deniedGroups() {
			for _, c := range g.calls {
				if n, ok := theirs[c.name]; ok != (c.numberOn(a) != none) {
					t.Errorf("%s: %s has the number %d there (%v) and %d here", a.name, c.name, n, ok, c.numberOn(a))
				}
			}
		}
	}
}

// sameNumbers compares the table with the constants of this machine's build.
func sameNumbers(t *testing.T, theirs map[string]uint32) {
	t.Helper()
	ours := tabled(currentArch())
	if len(ours) != len(theirs) {
		t.Errorf("%d calls here, %d there", len(ours), len(theirs))
	}
	for n, name := range ours {
		if theirs[name] != n {
			t.Errorf("%s is %d here and %d there", name, n, theirs[name])
		}
	}
}

func TestNoFilterForOthers(t *testing.T) {
	if p := filterProgram(architecture{}, profile{}); p != nil {
		t.Errorf("an unknown machine has a program of %d instructions", len(p))
	}
}

func BenchmarkProgram(b *testing.B) {
	for b.Loop() {
		filterProgram(currentArch(), profile{})
	}
}
