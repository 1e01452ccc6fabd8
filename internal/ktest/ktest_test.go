package ktest

import (
	"os"
	"testing"
)

func TestRequireFailsWhereDemanded(t *testing.T) {
	t.Setenv("BAILEY_KERNEL", "require:userns,no-such-program")
	if !isRequired("no-such-program") || isRequired("git") {
		t.Fatal("BAILEY_KERNEL is misread")
	}
	if Has("no-such-program") == nil {
		t.Fatal("a program that is not there was found")
	}
}

func TestRunInSubprocess(t *testing.T) {
	if RunInSubprocess(t, "KTEST_PROBE=1") {
		if os.Getenv("KTEST_PROBE") != "" {
			t.Fatal("the subprocess's environment reached its parent")
		}
		return
	}
	if os.Getenv("KTEST_PROBE") != "1" {
		t.Fatal("the environment did not arrive")
	}
}

func TestSkipInSubprocess(t *testing.T) {
	t.Run("as it should", func(t *testing.T) {
		if RunInSubprocess(t) {
			t.Error("a test that its subprocess skipped went on")
			return
		}
		t.Skip("nothing is missing: this is about skipping")
	})
}

// TestFeatures logs the features of this machine, which the other tests can use.
func TestFeatures(t *testing.T) {
	for _, f := range Features() {
		t.Logf("%s: %v", f, Has(f))
	}
}
