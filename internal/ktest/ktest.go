// Package ktest supports tests that need a kernel feature or a program. It probes a feature by using it. If the feature
// is missing, the test is skipped with its name, or fails if BAILEY_KERNEL requires the feature:
//
//	BAILEY_KERNEL=require:userns,netns,git go test ./...
//
// So a successful run shows its coverage: every skip is printed by name, and continuous integration requires all
// features of its machine.
package ktest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// probes are the kernel features by name. Any other name is a program in PATH.
var probes = map[string]func() error{
	"root":     isRoot,
	"account":  probeAccount,
	"userns":   namespaceProbe(cloneUser),
	"netns":    namespaceProbe(cloneUser | cloneNet),
	"landlock": probeLandlock,
	"seccomp":  probeSeccomp,
	"cgroup":   probeCgroup,
	"keyring":  probeKeyring,
	"pty":      func() error { f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); f.Close(); return err },
}

var probeResults sync.Map // feature → error or nil, probed once per process

// Require skips t if a feature is missing. If BAILEY_KERNEL requires that feature, it fails t instead.
func Require(t testing.TB, features ...string) {
	t.Helper()
	for _, f := range features {
		if err := Has(f); err != nil {
			Missing(t, f, err)
		}
	}
}

// Long skips a test with -short. A test must call it if it takes over half a second on an idle machine.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: runs without -short")
	}
}

// Has probes one feature by using it. It returns nil if the feature works.
func Has(feature string) error {
	if e, ok := probeResults.Load(feature); ok {
		err, _ := e.(error)
		return err
	}
	probe, ok := probes[feature]
	if !ok {
		probe = func() error { _, err := exec.LookPath(feature); return err }
	}
	err := probe()
	probeResults.Store(feature, err)
	return err
}

// Missing skips t, or fails it if the feature is required. It is for features that only the test itself can probe.
func Missing(t testing.TB, feature string, err error) {
	t.Helper()
	if isRequired(feature) {
		t.Fatalf("%s is required by BAILEY_KERNEL and missing: %v", feature, err)
	}
	t.Skipf("needs %s: %v", feature, err)
}

// Features lists the kernel features that Has knows, sorted.
func Features() []string {
	var names []string
	for n := range probes {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func isRequired(feature string) bool {
	list, ok := strings.CutPrefix(os.Getenv("BAILEY_KERNEL"), "require:")
	return ok && slices.Contains(strings.Split(list, ","), feature)
}

// probeAccount checks that the user has an account entry. ssh-keygen creates no key without one.
func probeAccount() error { _, err := user.LookupId(strconv.Itoa(os.Geteuid())); return err }

func isRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("running as uid %d", os.Geteuid())
	}
	return nil
}

// again marks the process that RunInSubprocess starts.
const again = "BAILEY_KTEST_SUBPROCESS"

// RunInSubprocess runs the calling test again in a subprocess. It returns true in the parent, which must then return.
// So changes to the process, such as Landlock, kills and limits, affect only the subprocess. If the test is skipped
// there, it is also skipped here.
func RunInSubprocess(t *testing.T, env ...string) (parent bool) {
	t.Helper()
	if os.Getenv(again) == t.Name() {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), append(env, again+"="+t.Name())...)
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Skipf("in its subprocess:\n%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its subprocess: %v\n%s", err, out)
	}
	return true
}

// Write writes a file that others may read.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
