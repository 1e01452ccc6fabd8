package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// module writes a module with two packages, "good" and "other", and returns checks for it.
func module(t *testing.T, other string) (*checks, *strings.Builder) {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "go")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module m\n\ngo 1.26\n",
		"good/good_test.go":   "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n\nfunc TestLacks(t *testing.T) { t.Skip(\"needs a moon\") }\n",
		"other/other_test.go": "package other\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\n" + other,
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := &strings.Builder{}
	return &checks{out: out, dir: dir}, out
}

func everything() goTest {
	return goTest{packages: []string{"./..."}, flags: []string{"-vet=off"}}
}

// TestFlaky checks that if a package fails and then passes alone, it does not count as failed but is reported.
func TestFlaky(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "was-here")
	c, out := module(t, `func TestSometimes(t *testing.T) {
	if _, err := os.Stat("`+marker+`"); err != nil {
		os.WriteFile("`+marker+`", nil, 0o600)
		t.Error("the first time it fails")
	}
}
`)
	r := &report{Part: "tests"}
	if err := c.runTests(context.Background(), r, everything()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.reports = []*report{r}
	c.printPassed(0)
	if !slices.Equal(r.Flaky, []string{"m/other TestSometimes"}) || !slices.Contains(r.Passed, "m/other TestSometimes") {
		t.Errorf("flaky: %q, passed: %q", r.Flaky, r.Passed)
	}
	text := out.String()
	for _, want := range []string{"the first time it fails", "\nFLAKY: m/other TestSometimes\n", "m/good TestLacks: needs a moon\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q:\n%s", want, text)
		}
	}
	if !strings.HasSuffix(text, "\n2 passed, 0 failed, 1 skipped\n") {
		t.Errorf("the last line is not the count:\n%s", text)
	}
}

// TestLongPackageInPart checks that of a failed package that takes long, only the failed tests run again, unless its program
// ended before the others.
func TestLongPackageInPart(t *testing.T) {
	for name, tc := range map[string]struct {
		fault string
		runs  int
	}{"a test fails": {`t.Error("once")`, 1}, "the program ends": {`os.Exit(3)`, 2}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c, out := module(t, `func TestA(t *testing.T) {
	f, _ := os.OpenFile("`+dir+`/a", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	f.WriteString("x")
}

func TestB(t *testing.T) {
	if _, err := os.Stat("`+dir+`/b"); err != nil {
		os.WriteFile("`+dir+`/b", nil, 0o600)
		`+tc.fault+`
	}
}

func TestC(t *testing.T) {}
`)
			r := &report{Part: "tests"}
			long := everything()
			long.long = 1e-9
			if err := c.runTests(context.Background(), r, long); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if runs, _ := os.ReadFile(dir + "/a"); len(runs) != tc.runs {
				t.Errorf("the test that passed ran %d times, want %d", len(runs), tc.runs)
			}
			for _, want := range []string{"m/other TestA", "m/other TestB", "m/other TestC"} {
				if !slices.Contains(r.Passed, want) {
					t.Errorf("%s is not among those that passed: %q", want, r.Passed)
				}
			}
		})
	}
}

// TestFailsTwice checks that if a package fails twice, the checks fail and the output of its tests comes last.
func TestFailsTwice(t *testing.T) {
	for name, tc := range map[string]struct{ other, test, last string }{
		"a test":              {"func TestBad(t *testing.T) { t.Log(\"before\"); t.Error(\"two and two are five\") }\n\nfunc TestFine(t *testing.T) {}\n", "TestBad", "two and two are five"},
		"a subtest":           {"func TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"within\") }) }\n", "TestBad/sub", "within"},
		"a panic":             {"func TestBad(t *testing.T) { panic(\"out of ink\") }\n", "TestBad", "out of ink"},
		"the program ends":    {"func TestBad(t *testing.T) { os.Exit(7) }\n", "TestBad", "FAIL\tm/other"},
		"it does not compile": {"func TestBad(t *testing.T) { no }\n", "(package)", "undefined: no"},
		"it never ends":       {"func TestBad(t *testing.T) { select {} }\n", "TestBad", "test timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, out := module(t, tc.other)
			r := &report{Part: "tests"}
			all := everything()
			if name == "it never ends" {
				all.flags = append(all.flags, "-timeout=5s")
			}
			err := c.runTests(context.Background(), r, all)
			if err == nil {
				t.Fatalf("it passed:\n%s", out)
			}
			c.reports = []*report{r}
			c.printFailures(err)
			if !slices.ContainsFunc(r.Failed, func(f failedTest) bool { return f.Package == "m/other" && f.Test == tc.test }) {
				t.Errorf("failed: %+v", r.Failed)
			}
			_, last, _ := strings.Cut(out.String(), "== result")
			if !strings.Contains(last, tc.last) {
				t.Errorf("the last lines lack %q:\n%s", tc.last, out)
			}
			if strings.Contains(out.String(), " 0 failed") || len(r.Flaky) > 0 {
				t.Errorf("it says that nothing failed, or that something is flaky:\n%s", out)
			}
		})
	}
}

// TestNothingToTest checks that if the command cannot start, this is an error and not a pass without tests.
func TestNothingToTest(t *testing.T) {
	c, out := module(t, "")
	for _, bad := range []goTest{
		{packages: []string{"./nowhere"}},
		{packages: []string{"./..."}, flags: []string{"-no-such-flag"}},
		{packages: []string{"./..."}, program: []string{"/no/such/program"}},
	} {
		if err := c.runTests(context.Background(), &report{}, bad); err == nil {
			t.Errorf("%+v passed:\n%s", bad, out)
		}
	}
}

// TestSlow checks that tests that take too long are reported.
func TestSlow(t *testing.T) {
	c, out := module(t, "func TestBusy(t *testing.T) { for i := range 1<<28 { if i == -1 { t.Error(i) } } }\n")
	r := &report{}
	slow := everything()
	slow.slow = 0.01
	if err := c.runTests(context.Background(), r, slow); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "SLOW: m/other TestBusy ") {
		t.Errorf("notes: %q", r.Notes)
	}
}

// TestSkippedOnceAndPassedElsewhere checks that a test that one part skips and another runs does not count as skipped.
func TestSkippedOnceAndPassedElsewhere(t *testing.T) {
	c := &checks{reports: []*report{
		{Skipped: []skippedTest{{"m/p", "TestLong", "takes long"}, {"m/p", "TestNever", "needs a moon"}}},
		{Passed: []string{"m/p TestLong"}, Skipped: []skippedTest{{"m/p", "TestNever", "needs a moon"}}},
	}}
	if got := c.skippedTests(); !slices.Equal(got, []skippedTest{{"m/p", "TestNever", "needs a moon"}}) {
		t.Errorf("skipped: %+v", got)
	}
}
