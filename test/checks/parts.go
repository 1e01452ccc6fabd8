package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey/test/since"
)

// A part is a group of checks. .ci/run runs it if it is due, .ci/full always. For changes, the race detector and the
// ordinary user run the short tests only: all tests have run as root, and .ci/full runs all of them in both ways.
type part struct {
	name string
	run  func(context.Context, *report) error // for changes; nil if only .ci/full runs it
	due  func() bool
	full func(context.Context, *report) error // for everything
}

// purePackages lists packages whose tests depend only on their source, so that the test cache can be used.
var purePackages = []string{".", "audit", "pack", "hook", "internal/policy", "internal/policy/review", "internal/redact", "internal/sshsig", "internal/strictjson", "internal/strictyaml", "internal/approvaltext", "internal/shellparse", "internal/onboard", "internal/readonly", "internal/receipts", "internal/toolsearch"}

// slowestPackages lists the packages that take longest. They must start first, so that none remains at the end.
var slowestPackages = []string{"cmd/bailey", "internal/server", "internal/jail", "test/script", "test/day", "test/clients", "test/load"}

// separatePackages lists packages that run after the others, or in a part of their own, because they use both cores.
var separatePackages = []string{"test/guest", "test/mutation"}

// userPackages lists packages whose results may depend on the user that runs the tests.
var userPackages = []string{"internal/server", "internal/gateway", "internal/localapi", "internal/cli", "internal/cli/direct", "internal/bench", "internal/ledger", "internal/ledger/index", "internal/ledger/notary",
	"internal/ledger/owned", "internal/witness", "internal/peer", "internal/broker", "internal/jail",
	"internal/wrap", "internal/hooks", "internal/socketproxy", "internal/egress", "internal/ktest", "packs", "internal/broker/process", "cmd/bailey", "test/script"}

// unraced matches tests that run code in other processes, which would be this slow program again and which the race
// detector does not see. It also matches tests that measure their own memory, because the detector uses more.
const unraced = "^Test(FramesCostLittle|OrdinaryUser.*|Removal|Battery.*|Survivors|LongStream|TenThousandCalls|Wall.*|Lesser.*|MemoryInAll|Canary|PrepareSystemd|ManyStartsLeaveNothing|LentFileIsNowhereElse|NestIsRemoved)$"

// wholeCalls lists packages whose tests make whole calls: the first process of each cage would be the test program with
// the race detector, whose threads are more than the cage allows.
var wholeCalls = []string{"internal/server", "internal/cli/direct", "internal/bench"}

// machines lists packages whose tests boot many machines. With the race detector, each takes many minutes, so only
// .ci/full does it.
var machines = []string{"internal/vm", "internal/vmhost", "internal/image", "internal/sandboxdiff"}

// gates matches the scenarios of broken gates in test/day.
const gates = "^(TestBrokenGates|TestDayInPieces)$"

// images is the test that fetches the packages of a distribution and boots them.
const images = "-run=^TestDebianBoots$"

// longPackage is the time in seconds from which of a failed package only the failed tests run once more.
const longPackage = 60

// allParts returns all checks, in order.
func (c *checks) allParts(all []string) []part {
	p := tree{c, all}
	always := func() bool { return true }
	raced, ownable := p.racePackages(), p.packagesIn(userPackages)
	slow := p.packagesIn(machines)
	soon := slices.DeleteFunc(slices.Clone(raced), func(pkg string) bool { return slices.Contains(slow, pkg) })
	some := func(pkgs []string) func() bool { return func() bool { return len(p.filterChanged(pkgs)) > 0 } }
	return []part{
		{"form", c.checkForm, always, c.checkForm},
		{"other systems", func(ctx context.Context, _ *report) error { return c.vetOtherSystems(ctx, p.filterChanged(all)) }, some(all), c.everySystem},
		{"tests", p.packageTests("changed"), always, p.packageTests("all")},
		{"mutants", p.longTests("changed", "test/mutation"), always, p.longTests("all", "test/mutation")},
		{"broken gates", p.longTests("changed", "test/day", "-run="+gates), always, p.longTests("all", "test/day", "-run="+gates)},
		{"race detector", c.raceTests(p.filterChanged(soon), "-short"), some(soon), c.raceTests(raced)},
		{"guests", p.longTests("changed", "test/guest"), always, p.longTests("all", "test/guest")},
		{"ordinary user", c.ordinaryUserTests(p.filterChanged(ownable), "-short"), some(ownable), c.ordinaryUserTests([]string{"./..."})},
		{name: "images", full: p.longTests("all", "internal/image", images)},
		{name: "short", full: c.runShort},
		{name: "fuzz and soak", full: c.runFuzz},
	}
}

// tree holds the packages of the repository.
type tree struct {
	*checks
	all []string // import paths; the root package comes first
}

// packagesIn returns the packages in these directories, in the same order.
func (p tree) packagesIn(dirs []string) (pkgs []string) {
	for _, d := range dirs {
		for _, pkg := range p.all {
			if p.packageDir(pkg) == d {
				pkgs = append(pkgs, pkg)
			}
		}
	}
	return pkgs
}

// packageDir returns the directory of a package, relative to the top.
func (p tree) packageDir(pkg string) string { return relativeDir(p.all[0], pkg) }

func (p tree) filterChanged(pkgs []string) (some []string) {
	for _, pkg := range pkgs {
		if p.changedPackage(p.packageDir(pkg)) {
			some = append(some, pkg)
		}
	}
	return some
}

// racePackages returns the packages for the race detector: not those that run as other processes, such as programs and
// end-to-end scenarios.
func (p tree) racePackages() (pkgs []string) {
	for _, pkg := range p.all {
		dir := p.packageDir(pkg)
		top, _, _ := strings.Cut(dir, "/")
		if !slices.Contains(wholeCalls, dir) && !slices.Contains([]string{"cmd", "test", "examples", "packs"}, top) {
			pkgs = append(pkgs, pkg)
		}
	}
	return pkgs
}

// packageTests runs the tests of all packages except those that have a part of their own.
func (p tree) packageTests(which string) func(context.Context, *report) error {
	purely, rest := p.packagesIn(purePackages), p.packagesIn(slowestPackages)
	for _, pkg := range p.all {
		if !slices.Contains(slices.Concat(purely, rest), pkg) && !slices.Contains(separatePackages, p.packageDir(pkg)) {
			rest = append(rest, pkg)
		}
	}
	return func(ctx context.Context, r *report) error {
		flags := []string{"-vet=off", "-timeout=20m"} // the part "form" runs a stricter vet than go test
		err := p.runTests(ctx, r, goTest{packages: purely, flags: flags, shows: corporaLine})
		some := p.all
		if which == "changed" {
			affected, aerr := p.affectedPackages(ctx)
			if aerr != nil {
				return errors.Join(err, aerr)
			}
			some = affected
		}
		due := slices.DeleteFunc(slices.Clone(rest), func(pkg string) bool { return !slices.Contains(some, pkg) })
		if n := len(rest) - len(due); n > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d packages were not tested: nothing that their tests depend on changed since .ci/full passed", n))
		}
		if len(due) == 0 {
			return err
		}
		// Many tests wait for time or for other processes, so three packages at once keep two cores busy.
		flags = append(flags, "-count=1", "-p=3", "-skip="+gates)
		return errors.Join(err, p.runTests(ctx, r, goTest{packages: due, flags: flags, env: []string{since.Env + "=" + which}, long: longPackage}))
	}
}

// longTests runs the long tests of one package.
func (p tree) longTests(which, dir string, flags ...string) func(context.Context, *report) error {
	return func(ctx context.Context, r *report) error {
		return p.runTests(ctx, r, goTest{packages: p.packagesIn([]string{dir}), flags: append([]string{"-count=1", "-timeout=30m"}, flags...),
			shows: bootedLine, long: longPackage, env: []string{since.Env + "=" + which}})
	}
}

func (c *checks) raceTests(pkgs []string, flags ...string) func(context.Context, *report) error {
	return func(ctx context.Context, r *report) error {
		return c.runTests(ctx, r, goTest{packages: pkgs, flags: append([]string{"-count=1", "-race", "-vet=off", "-p=3", "-timeout=20m", "-skip=" + unraced}, flags...), as: " (race detector)", long: longPackage})
	}
}

// changedPackage reports whether a file changed in the directory of a package, or one that its tests read there.
func (c *checks) changedPackage(dir string) bool {
	return c.changes.Everything() || slices.ContainsFunc(c.changes.Files, func(f string) bool {
		switch {
		case strings.HasPrefix(f, dir+"/testdata/"):
			return true
		case path.Dir(f) != dir:
			return false
		}
		return path.Ext(f) == ".go" || path.Ext(f) == ".s"
	})
}

func relativeDir(module, pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// listPackages returns the import paths of all packages; the root package comes first.
func (c *checks) listPackages(ctx context.Context) ([]string, error) {
	out, err := c.commandOutput(ctx, "go", "list", "./...")
	return strings.Fields(out), err
}

// checkForm checks the source without running it.
func (c *checks) checkForm(ctx context.Context, _ *report) error {
	out, err := c.commandOutput(ctx, "gofmt", "-l", ".")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("not formatted: %s. Run gofmt -w on them", strings.Join(strings.Fields(out), " "))
	}
	for _, words := range [][]string{{"go", "mod", "verify"}, {"go", "vet", "./..."}, {"staticcheck", "./..."}} {
		if err := c.runChecked(ctx, nil, words...); err != nil {
			return err
		}
	}
	return nil
}

// vetOtherSystems compiles changed packages, with their tests, for systems that cannot run here.
func (c *checks) vetOtherSystems(ctx context.Context, pkgs []string) error {
	for _, system := range []string{"linux/arm64", "darwin/arm64", "windows/amd64"} {
		// go vet refuses a named package without files for the system, so such packages are omitted.
		there, err := c.outputWith(ctx, systemEnv(system), append([]string{"go", "list", "-e", "-f", "{{if or .GoFiles .CgoFiles .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, pkgs...)...)
		if err != nil {
			return err
		}
		if there := strings.Fields(there); len(there) > 0 {
			if err := c.runChecked(ctx, systemEnv(system), append([]string{"go", "vet"}, there...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// everySystem compiles and checks all packages for each system.
func (c *checks) everySystem(ctx context.Context, _ *report) error {
	if err := c.runChecked(ctx, systemEnv("linux/arm64"), "go", "vet", "./..."); err != nil {
		return err
	}
	for _, system := range []string{"darwin/amd64", "darwin/arm64", "windows/amd64"} {
		for _, verb := range []string{"build", "vet"} {
			if err := c.runChecked(ctx, systemEnv(system), "go", verb, "./..."); err != nil {
				return err
			}
		}
	}
	for _, system := range []string{"darwin/amd64", "windows/amd64"} { // code that is unused there may be used on Linux
		if err := c.runChecked(ctx, systemEnv(system), "staticcheck", "-checks", "inherit,-U1000", "./..."); err != nil {
			return err
		}
	}
	return nil
}

func systemEnv(system string) []string {
	goos, goarch, _ := strings.Cut(system, "/")
	return []string{"GOOS=" + goos, "GOARCH=" + goarch}
}

// runChecked runs a command. If it fails, the error contains its output.
func (c *checks) runChecked(ctx context.Context, env []string, words ...string) error {
	short := words
	if len(short) > 4 {
		short = append(slices.Clone(words[:4]), "…")
	}
	fmt.Fprintln(c.out, strings.Join(append(slices.Clone(env), short...), " "))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(short, " "), err, lastLines(string(out), 80))
	}
	return nil
}

func (c *checks) commandOutput(ctx context.Context, words ...string) (string, error) {
	return c.outputWith(ctx, nil, words...)
}

// outputWith runs a command in the repository with additional environment variables and returns its standard output.
func (c *checks) outputWith(ctx context.Context, env []string, words ...string) (string, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	errs := &bytes.Buffer{}
	cmd.Dir, cmd.Env, cmd.Stderr = c.dir, append(os.Environ(), env...), errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, errs)
	}
	return string(out), nil
}

// corporaLine and booted match lines to print even if the tests passed: the figures of the secret corpora, and the run time
// of each guest.
var (
	corporaLine = regexp.MustCompile(`^        [0-9]+ .* of `)
	bootedLine  = regexp.MustCompile(`_test\.go:\d+: \{kernel:.* ran for `)
)

// runShort runs "go test -short ./..." and reports the tests that make it slow.
func (c *checks) runShort(ctx context.Context, r *report) error {
	begin := time.Now()
	err := c.runTests(ctx, r, goTest{packages: []string{"./..."}, flags: []string{"-count=1", "-short"}, slow: 1})
	if err == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("go test -short ./... took %.0f s", time.Since(begin).Seconds()))
	}
	return err
}

// fuzzing and soaking are the total durations of all fuzz targets, on all processors, and of the soak tests, without
// building.
const fuzzing, soaking = 15 * time.Minute, 2 * time.Minute

// soakingMachines is the duration of the soak test of sandboxes.
const soakingMachines = 5 * time.Minute

// A fuzzTarget is a fuzz target and a function that builds the test program of its package, once for all targets.
type fuzzTarget struct {
	pkg, name string
	build     func() (string, error)
}

func (c *checks) buildFuzz(ctx context.Context, dir, pkg string) (string, error) {
	program := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-"))
	return program, c.runChecked(ctx, nil, "go", "test", "-c", "-vet=off", "-fuzz=.", "-o="+program, pkg)
}

// runFuzzTarget runs a target for a while and returns its output if it failed. Inputs that it finds are kept in cache, as by
// go test.
func (c *checks) runFuzzTarget(ctx context.Context, f fuzzTarget, d time.Duration, cache string) string {
	program, err := f.build()
	if err != nil {
		return err.Error()
	}
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.parallel=1", "-test.fuzz=^"+f.name+"$", "-test.fuzztime="+d.String(),
		"-test.fuzzcachedir="+filepath.Join(cache, f.pkg))
	cmd.Dir = filepath.Join(c.dir, f.pkg[strings.Index(f.pkg+"/", "/"):])
	if out, err := cmd.CombinedOutput(); err != nil && !timeWasUp(string(out)) {
		return cmp.Or(string(out), err.Error())
	}
	return ""
}

// runFuzz divides the time among all fuzz targets, then runs the soak tests.
func (c *checks) runFuzz(ctx context.Context, r *report) error {
	out, err := c.commandOutput(ctx, "go", "test", "-list=^Fuzz", "./...")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var targets []fuzzTarget
	var names []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
		} else if words := strings.Fields(line); len(words) > 1 && words[0] == "ok" {
			build := sync.OnceValues(func() (string, error) { return c.buildFuzz(ctx, dir, words[1]) })
			for _, n := range names {
				targets = append(targets, fuzzTarget{words[1], n, build})
			}
			names = nil
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz targets found in %q", lastLines(out, 5))
	}
	// Two targets run at the same time, each with one worker, so that one can build and end while the other fuzzes.
	each := (2 * fuzzing / time.Duration(len(targets))).Round(time.Second)
	cache, err := c.commandOutput(ctx, "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	cache = filepath.Join(strings.TrimSpace(cache), "fuzz")
	outputs := make([]string, len(targets)) // of those that failed
	var lanes errgroup.Group
	lanes.SetLimit(2)
	for i, f := range targets {
		lanes.Go(func() error {
			fmt.Fprintf(c.out, "%d of %d, %v: %s %s\n", i+1, len(targets), each, f.pkg, f.name)
			outputs[i] = c.runFuzzTarget(ctx, f, each, cache)
			return nil
		})
	}
	lanes.Wait()
	for i, f := range targets {
		if outputs[i] != "" {
			r.Failed = append(r.Failed, failedTest{f.pkg, f.name, outputs[i]})
			continue
		}
		r.Passed = append(r.Passed, f.pkg+" "+f.name+" (fuzzed)")
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d fuzz targets failed; what they found is below testdata/fuzz", len(r.Failed), len(targets))
	}
	return c.runSoak(ctx, r)
}

// runSoak runs the tests that last as long as a variable says.
func (c *checks) runSoak(ctx context.Context, r *report) error {
	for _, t := range []goTest{
		{packages: []string{"./test/load"}, env: []string{"BAILEY_LOAD=" + soaking.String()}},
		{packages: []string{"./internal/vmhost"}, flags: []string{"-run=^TestSoak$"}, env: []string{"BAILEY_SOAK=" + soakingMachines.String()}},
		{packages: []string{"./test/cedar"}, env: []string{"BAILEY_CEDAR_FUZZ=" + soaking.String()}},
	} {
		t.flags = append(t.flags, "-count=1", "-timeout=20m")
		if err := c.runTests(ctx, r, t); err != nil {
			return err
		}
	}
	return nil
}

// timeWasUp reports whether fuzzing ended only because its time was over, which Go before 1.27 sometimes reports as a
// failure (go.dev/issue/75804). If a target really fails, there is a failing input or a line of its own.
func timeWasUp(out string) bool {
	_, rest, failed := strings.Cut(out, "--- FAIL: ")
	_, said, _ := strings.Cut(rest, "\n")
	return failed && strings.HasPrefix(said, "    context deadline exceeded\nFAIL\n") && !strings.Contains(out, "Failing input written")
}

// ordinaryUserTests runs tests as .ci/ordinary does: as an unprivileged user with an empty home.
func (c *checks) ordinaryUserTests(pkgs []string, flags ...string) func(context.Context, *report) error {
	return func(ctx context.Context, r *report) error {
		return c.runTests(ctx, r, goTest{program: []string{filepath.Join(c.dir, ".ci", "ordinary")}, flags: flags, packages: pkgs, as: " (ordinary user)"})
	}
}
