package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"bailey/test/since"
)

// A part is a piece of the checks. .ci/run runs it if it is due, .ci/full runs each.
type part struct {
	name string
	run  func(context.Context, *report) error // for what changed; nil if only .ci/full has it
	due  func() bool
	full func(context.Context, *report) error // for everything
}

// Packages whose tests depend on nothing but their source: for them the test cache is good enough.
var pure = []string{".", "audit", "pack", "hook", "internal/policy", "internal/redact", "internal/sshsig", "internal/canon", "internal/command", "internal/onboard"}

// Packages that run alone, after the others, or in a part of their own: they keep both cores busy.
var alone = []string{"test/guest", "test/mutation"}

// Directories that a guest's kernel, or the user who runs the tests, can make a difference to.
var (
	guested = []string{"internal/jail", "internal/ktest", "test/guest", "cmd/bailey"}
	ownable = []string{"internal/gateway", "internal/wire", "internal/ledger", "internal/peer", "internal/broker", "internal/jail",
		"internal/wrap", "internal/hooks", "internal/daemon", "internal/egress", "internal/ktest", "packs", "cmd/bailey-broker", "cmd/bailey"}
)

// What runs in other processes, which the race detector does not see: each of these is this slow program again.
const unraced = "^Test(OrdinaryUser.*|Removal|Battery.*|Survivors|LongStream|TenThousandCalls|Wall.*|Lesser.*|MemoryInAll|ManyStartsLeaveNothing|LentFileIsNowhereElse|NestIsRemoved)$"

// gates are the scenarios of broken gates, in test/day.
const gates = "^TestBrokenGates$"

// parts are all checks, in order.
func (c *checks) parts(all []string) []part {
	always := func() bool { return true }
	module := all[0] // the package at the top
	ours := func(dirs []string) (pkgs []string) {
		for _, p := range all {
			if slices.Contains(dirs, rel(module, p)) {
				pkgs = append(pkgs, p)
			}
		}
		return pkgs
	}
	changed := func(pkgs []string) (some []string) {
		for _, p := range pkgs {
			if c.changedPackage(rel(module, p)) {
				some = append(some, p)
			}
		}
		return some
	}
	var raced []string
	for _, p := range all {
		if d := rel(module, p); !strings.HasPrefix(d, "cmd/") && !strings.HasPrefix(d, "test/") && !strings.HasPrefix(d, "examples/") && !strings.HasPrefix(d, "packs") {
			raced = append(raced, p)
		}
	}
	purely := ours(pure)
	var rest []string
	for _, p := range all {
		if !slices.Contains(purely, p) && !slices.Contains(alone, rel(module, p)) {
			rest = append(rest, p)
		}
	}
	tests := func(ctx context.Context, r *report) error {
		if err := c.test(ctx, r, goTest{packages: purely, flags: []string{"-timeout=10m"}, shows: corpora}); err != nil {
			return err
		}
		return c.test(ctx, r, goTest{packages: rest, flags: []string{"-timeout=10m", "-count=1"}})
	}
	race := func(pkgs func() []string) func(context.Context, *report) error {
		return func(ctx context.Context, r *report) error {
			return c.test(ctx, r, goTest{packages: pkgs(), flags: []string{"-count=1", "-race", "-short", "-timeout=15m", "-skip=" + unraced}})
		}
	}
	guests := func(ctx context.Context, r *report) error {
		return c.test(ctx, r, goTest{packages: ours([]string{"test/guest"}), flags: []string{"-count=1", "-timeout=20m"}, shows: booted})
	}
	long := func(which, pkg, run string) func(context.Context, *report) error {
		return func(ctx context.Context, r *report) error {
			flags := []string{"-count=1", "-timeout=30m"}
			if run != "" {
				flags = append(flags, "-run="+run)
			}
			return c.test(ctx, r, goTest{packages: ours([]string{pkg}), flags: flags, env: []string{since.Env + "=" + which}})
		}
	}
	ordinary := func(pkgs func() []string) func(context.Context, *report) error {
		return func(ctx context.Context, r *report) error { return c.ordinary(ctx, r, pkgs()) }
	}
	return []part{
		{"form", c.form, always, c.form},
		{"other systems", func(ctx context.Context, _ *report) error { return c.elsewhere(ctx, changed(all)) },
			func() bool { return len(changed(all)) > 0 }, func(ctx context.Context, _ *report) error { return c.everySystem(ctx) }},
		{"tests", tests, always, tests},
		{"mutants", long("changed", "test/mutation", ""), always, long("all", "test/mutation", "")},
		{"broken gates", long("changed", "test/day", gates), always, long("all", "test/day", gates)},
		{"race detector", race(func() []string { return changed(raced) }), func() bool { return len(changed(raced)) > 0 }, race(func() []string { return raced })},
		{"guests", guests, func() bool { return slices.ContainsFunc(guested, c.changedPackage) }, guests},
		{"ordinary user", ordinary(func() []string { return changed(ours(ownable)) }), func() bool { return len(changed(ours(ownable))) > 0 }, ordinary(func() []string { return []string{"./..."} })},
		{name: "short", full: c.short},
		{name: "fuzz and soak", full: c.fuzz},
	}
}

// changedPackage reports whether something in a package's own directory, or in what its tests read there, changed.
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

func rel(module, pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// packages are the import paths of all packages; the one at the top comes first.
func (c *checks) packages(ctx context.Context) ([]string, error) {
	out, err := c.output(ctx, "go", "list", "./...")
	return strings.Fields(out), err
}

// form is what can be said about the source without running it.
func (c *checks) form(ctx context.Context, _ *report) error {
	out, err := c.output(ctx, "gofmt", "-l", ".")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("not formatted: %s. Run gofmt -w on them", strings.Join(strings.Fields(out), " "))
	}
	for _, words := range [][]string{{"go", "mod", "verify"}, {"go", "vet", "./..."}, {"staticcheck", "./..."}} {
		if err := c.do(ctx, nil, words...); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere compiles changed packages, with their tests, for systems that nothing here can run.
func (c *checks) elsewhere(ctx context.Context, pkgs []string) error {
	for _, system := range []string{"linux/arm64", "darwin/arm64", "windows/amd64"} {
		if err := c.do(ctx, on(system), append([]string{"go", "vet"}, pkgs...)...); err != nil {
			return err
		}
	}
	return nil
}

// everySystem compiles everything for each system, and looks for what is wrong there.
func (c *checks) everySystem(ctx context.Context) error {
	if err := c.do(ctx, on("linux/arm64"), "go", "vet", "./..."); err != nil {
		return err
	}
	for _, system := range []string{"darwin/amd64", "darwin/arm64", "windows/amd64"} {
		for _, verb := range []string{"build", "vet"} {
			if err := c.do(ctx, on(system), "go", verb, "./..."); err != nil {
				return err
			}
		}
	}
	for _, system := range []string{"darwin/amd64", "windows/amd64"} { // what is unused there may be Linux's
		if err := c.do(ctx, on(system), "staticcheck", "-checks", "inherit,-U1000", "./..."); err != nil {
			return err
		}
	}
	return nil
}

func on(system string) []string {
	goos, goarch, _ := strings.Cut(system, "/")
	return []string{"GOOS=" + goos, "GOARCH=" + goarch}
}

// do runs a command; what it prints is in the error if it fails.
func (c *checks) do(ctx context.Context, env []string, words ...string) error {
	short := words
	if len(short) > 4 {
		short = append(slices.Clone(words[:4]), "…")
	}
	fmt.Fprintln(c.out, strings.Join(append(slices.Clone(env), short...), " "))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(short, " "), err, tail(string(out), 80))
	}
	return nil
}

func (c *checks) output(ctx context.Context, words ...string) (string, error) {
	return c.outputWith(ctx, nil, words...)
}

// outputWith runs a command in the repository with more in its environment and returns its standard output.
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

// Lines worth printing although the tests passed: the corpora of secrets, and how long each guest ran.
var (
	corpora = regexp.MustCompile(`^        [0-9]+ .* of `)
	booted  = regexp.MustCompile(`_test\.go:\d+: \{kernel:.* ran for `)
)

// short names the tests that keep "go test -short ./..." from being fast.
func (c *checks) short(ctx context.Context, r *report) error {
	begin := time.Now()
	err := c.test(ctx, r, goTest{packages: []string{"./..."}, flags: []string{"-count=1", "-short"}, slow: 1})
	if err == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("go test -short ./... took %.0f s", time.Since(begin).Seconds()))
	}
	return err
}

// fuzzing is how long all fuzz targets and the soak tests take together, but for building them.
const fuzzing, soaking = 16 * time.Minute, 2 * time.Minute

// fuzz shares the time among all fuzz targets, then soaks.
func (c *checks) fuzz(ctx context.Context, r *report) error {
	out, err := c.output(ctx, "go", "test", "-list=^Fuzz", "./...")
	if err != nil {
		return err
	}
	type target struct{ pkg, name string }
	var targets []target
	var names []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
		} else if words := strings.Fields(line); len(words) > 1 && words[0] == "ok" {
			for _, n := range names {
				targets = append(targets, target{words[1], n})
			}
			names = nil
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz targets found in %q", tail(out, 5))
	}
	each := (fuzzing / time.Duration(len(targets))).Round(time.Second)
	for i, f := range targets {
		fmt.Fprintf(c.out, "%d of %d, %v: %s %s\n", i+1, len(targets), each, f.pkg, f.name)
		cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-vet=off", "-fuzz=^"+f.name+"$", "-fuzztime="+each.String(), f.pkg)
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Failed = append(r.Failed, failed{f.pkg, f.name, string(out)})
			continue
		}
		r.Passed = append(r.Passed, f.pkg+" "+f.name+" (fuzzed)")
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d of %d fuzz targets failed; what they found is below testdata/fuzz", len(r.Failed), len(targets))
	}
	if err := c.test(ctx, r, goTest{packages: []string{"./test/load"}, flags: []string{"-count=1", "-timeout=20m"}, env: []string{"BAILEY_LOAD=" + soaking.String()}}); err != nil {
		return err
	}
	return c.test(ctx, r, goTest{packages: []string{"./test/cedar"}, flags: []string{"-count=1"}, env: []string{"BAILEY_CEDAR_FUZZ=" + soaking.String()}})
}

// ordinary runs tests as .ci/ordinary does: as a user without rights, in a clean home.
func (c *checks) ordinary(ctx context.Context, r *report, pkgs []string) error {
	if os.Geteuid() != 0 {
		fmt.Fprintln(c.out, "already one")
		return nil
	}
	return c.test(ctx, r, goTest{program: []string{filepath.Join(c.dir, ".ci", "ordinary")}, packages: pkgs, as: " (ordinary user)"})
}
