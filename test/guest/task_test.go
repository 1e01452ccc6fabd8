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

// A task is a command with its content and its expected result.
type task struct {
	Command
	tests string   // the package whose tests it runs
	made  []string // packages of the programs to compile
	says  []string
	end   string
}

// command returns a task for a program of the guest.
func command(argv ...string) task {
	return task{end: Good, Command: Command{Name: path.Base(argv[0]), Argv: argv, Dir: "/tmp", Limit: taskTime,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=/tmp", "HOME=/root", "USER=root"}}}
}

// tests returns a task for the tests of a package, with flags of a test binary.
func tests(pkg string, flags ...string) task {
	k := command(append([]string{"/tests/" + pkg + "/tests", "-test.v", "-test.count=1", fmt.Sprintf("-test.timeout=%v", taskTime)}, flags...)...)
	k.Name, k.Dir, k.tests = pkg, "/tests/"+pkg, pkg
	return k
}

// program returns a task for a program of this tree.
func program(pkg string, args ...string) task {
	k := command(append([]string{"/programs/" + path.Base(pkg)}, args...)...)
	return k.beside(pkg)
}

// elsewhere matches tests of the jail that do not depend on the kernel, or take too long in emulation. The former are
// those of systems without a cage and of documents. The latter are those with load, with deadlines, with each step or
// layer in turn, as another user, of the battery, and those that fill memory.
const elsewhere = "^Test(OrdinaryUser.*|Removal.*|Bare.*|LinuxNeverRunsBare|Battery.*|.*MemoryInAll|NoGroupIsLeft|.*(ConcurrentStarts|" +
	"ManyStartsLeaveNothing|ManyCopies|StoppedGroup|HugeArguments|Streams|Timeout|ForkBomb|KeepTheRule|EveryStepMatters|NamesTheStep|" +
	"TenThousandCalls|InitIsReadyFirst))$"

// jail returns a task for the tests of internal/jail except those, with their programs.
func jail(flags ...string) task {
	return tests("internal/jail", append([]string{"-test.skip=" + elsewhere}, flags...)...).
		beside("internal/jail/testdata/probe").beside("internal/jail/testdata/battery").with("BAILEY_JAIL_PROBE=/programs/probe")
}

// beside adds a program of this tree in /programs.
func (k task) beside(pkg string) task { k.made = append(slices.Clone(k.made), pkg); return k }

// with adds to the environment.
func (k task) with(env ...string) task { k.Env = append(slices.Clone(k.Env), env...); return k }

// called sets the name of the subtest.
func (k task) called(name string) task { k.Name = name; return k }

// as sets the user. User 1000 has a home.
func (k task) as(uid int) task {
	k.UID = uid
	return k.with("HOME=/home/user", "USER=user")
}

// having lists the features that the tests must not skip, in the form of BAILEY_KERNEL.
func (k task) having(features string) task {
	return k.with("BAILEY_KERNEL=require:" + features)
}

// delegated gives the command a control group that belongs to its user.
func (k task) delegated() task { k.Delegated = true; return k }

// saying adds text that the output must contain.
func (k task) saying(text ...string) task { k.says = append(slices.Clone(k.says), text...); return k }

// ending sets how the command must end. The default is success.
func (k task) ending(end string) task { k.end = end; return k }

// pack adds the files that the command needs to the image.
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

// passed matches output lines about passed tests.
var passed = regexp.MustCompile(`(?m)^ *(=== RUN|--- PASS).*\n`)

// judge fails the subtest if its task did not end as expected, and logs the skipped tests.
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
