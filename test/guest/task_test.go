//go:build linux

package guest

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A task is a command with what it is made of and what is expected of it.
type task struct {
	Command
	tests string   // the package whose tests they are
	made  []string // packages whose programs are compiled in
	says  []string
	end   string
}

// command is a program that the guest has.
func command(argv ...string) task {
	return task{end: Good, Command: Command{Name: path.Base(argv[0]), Argv: argv, Dir: "/tmp", Limit: taskTime,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=/tmp", "HOME=/root", "USER=root"}}}
}

// tests are those of a package, with the flags of a test binary.
func tests(pkg string, flags ...string) task {
	k := command(append([]string{"/tests/" + pkg + "/tests", "-test.v", "-test.count=1", fmt.Sprintf("-test.timeout=%v", taskTime)}, flags...)...)
	k.Name, k.Dir, k.tests = pkg, "/tests/"+pkg, pkg
	return k
}

// program is one of ours.
func program(pkg string, args ...string) task {
	k := command(append([]string{"/programs/" + path.Base(pkg)}, args...)...)
	return k.beside(pkg)
}

// elsewhere are tests of the jail that another kernel does not change: those of systems without a cage and of
// documents, and what emulation makes take long: load, deadlines, each step and each layer in turn, all as another
// user, the battery and what fills memory.
const elsewhere = "^Test(OrdinaryUser.*|Removal.*|Bare.*|LinuxNeverRunsBare|Battery.*|.*MemoryInAll|NoGroupIsLeft|.*(ConcurrentStarts|" +
	"ManyStartsLeaveNothing|ManyCopies|StoppedGroup|HugeArguments|Streams|Timeout|ForkBomb|KeepTheRule|EveryStepMatters|NamesTheStep|" +
	"TenThousandCalls|InitIsReadyFirst))$"

// jail are the tests of internal/jail but for those, with their programs made here.
func jail(flags ...string) task {
	return tests("internal/jail", append([]string{"-test.skip=" + elsewhere}, flags...)...).
		beside("internal/jail/testdata/probe").beside("internal/jail/testdata/battery").with("BAILEY_JAIL_PROBE=/programs/probe")
}

// beside has a program of ours in /programs.
func (k task) beside(pkg string) task { k.made = append(slices.Clone(k.made), pkg); return k }

// with adds to the environment.
func (k task) with(env ...string) task { k.Env = append(slices.Clone(k.Env), env...); return k }

// called names the subtest.
func (k task) called(name string) task { k.Name = name; return k }

// as is the user: 1000 has a home.
func (k task) as(uid int) task {
	k.UID = uid
	return k.with("HOME=/home/user", "USER=user")
}

// having is what the tests may not skip, as BAILEY_KERNEL lists it.
func (k task) having(features string) task {
	return k.with("BAILEY_KERNEL=require:" + features)
}

// delegated gives the command a control group that belongs to its user.
func (k task) delegated() task { k.Delegated = true; return k }

// saying is what the output must hold.
func (k task) saying(text ...string) task { k.says = append(slices.Clone(k.says), text...); return k }

// ending is how the command must end; without it, with success.
func (k task) ending(end string) task { k.end = end; return k }

// pack puts what the command needs into the image.
func (k task) pack(t *testing.T, img image, arch string) Command {
	t.Helper()
	if k.tests != "" && img[k.Argv[0]].mode == 0 {
		img.copy(t, build(t, arch, "test -c", k.tests), k.Argv[0], 0o755)
		img.copyTree(t, "../../"+k.tests+"/testdata", k.Dir+"/testdata")
	}
	for _, pkg := range k.made {
		if name := "/programs/" + path.Base(pkg); img[name].mode == 0 {
			img.copy(t, build(t, arch, "build", pkg), name, 0o755)
		}
	}
	return k.Command
}

// passed are the lines of tests that have nothing to say.
var passed = regexp.MustCompile(`(?m)^ *(=== RUN|--- PASS).*\n`)

// judge fails the subtest of a task that did not end as it should, and logs what it skipped.
func (k task) judge(t *testing.T, o Outcome, noise string) {
	t.Helper()
	switch {
	case !o.Began:
		t.Fatalf("the guest did not come to it: %s\n%s", o.End, noise)
	case o.End != k.end:
		t.Fatalf("%q, want %q\n%s\n%s", o.End, k.end, passed.ReplaceAllString(o.Output, ""), noise)
	}
	for _, want := range k.says {
		if !strings.Contains(o.Output, want) {
			t.Errorf("it does not say %q:\n%s", want, o.Output)
		}
	}
	if k.tests == "" {
		return
	}
	ran := strings.Count(o.Output, "\n--- PASS: ")
	if ran == 0 {
		t.Errorf("no test ran:\n%s", o.Output)
	}
	t.Logf("%d tests passed", ran)
	for line := range strings.Lines(o.Output) {
		if strings.Contains(line, "--- SKIP") || strings.Contains(line, "needs ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
