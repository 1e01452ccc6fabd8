package sshca

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

func newStore(t testing.TB, clock *testClock, path string) *KeyStore {
	t.Helper()
	s, err := NewStore(StoreConfig{Path: path, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// done fails the test if a step failed.
func done(t testing.TB) func(Status, error) Status {
	return func(s Status, err error) Status {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// signingFingerprint issues a certificate with the key of the store and returns the fingerprint of the authority.
func signingFingerprint(t testing.TB, s *KeyStore) string {
	t.Helper()
	key, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	return issue(t, newAuthority(t, key, s.now, nil), request(t, Sandbox)).Authority
}

// wantTrusted checks the status, the list of trusted keys and the public file.
func wantTrusted(t testing.TB, s *KeyStore, state RotationState, keys ...TrustedKey) {
	t.Helper()
	status := done(t)(s.Show())
	var text strings.Builder
	for _, k := range keys {
		text.WriteString(k.Line + "\n")
	}
	path := filepath.Join(s.dir, s.name)
	if status.State != state || string(status.Trusted()) != text.String() {
		t.Errorf("state %s, trusted\n%swant %s,\n%s", status.State, status.Trusted(), state, text.String())
	}
	if got := string(getFile(t, path+".trusted")); got != text.String() {
		t.Errorf("trusted file\n%swant\n%s", got, text.String())
	}
	if got := string(getFile(t, path+".pub")); got != keys[0].Line+"\n" {
		t.Errorf("public file %q, want %q", got, keys[0].Line)
	}
	if got := signingFingerprint(t, s); got != keys[0].Fingerprint || status.Signing != keys[0] {
		t.Errorf("%s signs, want %s", got, keys[0].Fingerprint)
	}
}

func TestRotation(t *testing.T) {
	clock := newClock()
	s := newStore(t, clock, filepath.Join(t.TempDir(), "work", "ssh_ca"))
	_, err := s.Show()
	wantRefusal(t, err, bailey.NotFound, "does not exist")

	first := done(t)(s.Create()).Signing
	wantTrusted(t, s, SingleKey, first)
	for _, step := range []func() (Status, error){s.SwitchKeys, s.CancelRotation, forced(s, false), forced(s, true)} {
		_, err := step()
		wantRefusal(t, err, bailey.Conflict, `in state "single"`)
	}
	_, err = s.Create()
	wantRefusal(t, err, bailey.Conflict, "exists already")

	canceled := done(t)(s.BeginRotation()).Other
	wantTrusted(t, s, Staged, first, canceled)
	wantMode(t, filepath.Join(s.dir, "ssh_ca.next"), 0o600)
	done(t)(s.CancelRotation())
	wantTrusted(t, s, SingleKey, first)

	second := done(t)(s.BeginRotation()).Other
	if second == first || second == canceled {
		t.Error("a key was used again")
	}
	wantTrusted(t, s, Staged, first, second)
	_, err = s.BeginRotation()
	wantRefusal(t, err, bailey.Conflict, `in state "staged"`)

	status := done(t)(s.SwitchKeys())
	wantTrusted(t, s, Retiring, second, first)
	if !status.Until.Equal(testTime.Add(MaxLifetime)) {
		t.Errorf("until %v", status.Until)
	}
	if list := privateFiles(t, s); list != "ssh_ca" {
		t.Errorf("private keys are in %s", list)
	}
	for _, step := range []func() (Status, error){s.BeginRotation, s.SwitchKeys, s.CancelRotation} {
		_, err := step()
		wantRefusal(t, err, bailey.Conflict, `in state "retiring"`)
	}
	clock.advance(MaxLifetime - time.Second)
	_, err = s.EndRotation(false)
	wantRefusal(t, err, bailey.Conflict, "can be valid until 2026-11-25T13:00:00Z")
	clock.advance(time.Second)
	done(t)(s.EndRotation(false))
	wantTrusted(t, s, SingleKey, second)
}

func forced(s *KeyStore, force bool) func() (Status, error) {
	return func() (Status, error) { return s.EndRotation(force) }
}

// privateFiles lists the files with a private key.
func privateFiles(t testing.TB, s *KeyStore) string {
	t.Helper()
	list, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		if strings.Contains(string(getFile(t, filepath.Join(s.dir, e.Name()))), keyBlock) {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

// TestExportRepairs checks that the public files are only copies.
func TestExportRepairs(t *testing.T) {
	s := newStore(t, newClock(), filepath.Join(privateDir(t), "ssh_ca"))
	first := done(t)(s.Create()).Signing
	path := filepath.Join(s.dir, s.name)
	if err := os.Remove(path + ".pub"); err != nil {
		t.Fatal(err)
	}
	putFile(t, path+".trusted", []byte("ssh-ed25519 of an attacker\n"), 0o666)
	list, err := s.Export()
	if err != nil || string(list) != first.Line+"\n" {
		t.Fatalf("%s %v", list, err)
	}
	wantTrusted(t, s, SingleKey, first)
	wantMode(t, path+".trusted", 0o644)
}

func TestThreeKeys(t *testing.T) {
	s := newStore(t, newClock(), filepath.Join(privateDir(t), "ssh_ca"))
	done(t)(s.Create())
	done(t)(s.BeginRotation())
	line, err := publicLine(testKey(9))
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(s.dir, "ssh_ca.old.pub"), line, 0o644)
	_, err = s.Show()
	wantRefusal(t, err, bailey.Conflict, "three keys")
	putFile(t, filepath.Join(s.dir, "ssh_ca.old.pub"), line[:20], 0o644)
	_, err = s.SwitchKeys()
	wantRefusal(t, err, bailey.Invalid, "is not a public key of the authority")
	_, err = NewStore(StoreConfig{Path: "ssh_ca", Now: time.Now})
	wantRefusal(t, err, bailey.Invalid, "is not absolute")
}

var errCrash = errors.New("crash")

// crashAt returns a hook that lets n operations pass and stops each later one, as the end of the process would.
func crashAt(n int) (hook func(string) error, stopped *string) {
	stopped = new(string)
	return func(operation string) error {
		if n--; n >= 0 {
			return nil
		}
		if *stopped == "" {
			*stopped = operation
		}
		return errCrash
	}, stopped
}

// TestCrash stops each step of a rotation before each of its operations. After that, the store must show the state
// before the step or after it. Then the step must work if it did not happen, and the result must be the same as without
// a crash.
func TestCrash(t *testing.T) {
	ktest.Long(t)
	steps := []struct {
		name  string
		after RotationState
		run   func(*KeyStore) (Status, error)
	}{
		{"create", SingleKey, (*KeyStore).Create},
		{"begin", Staged, (*KeyStore).BeginRotation},
		{"switch", Retiring, (*KeyStore).SwitchKeys},
		{"end", SingleKey, func(s *KeyStore) (Status, error) { return s.EndRotation(true) }},
	}
	for i, step := range steps {
		operations := 0
		for n := 0; ; n++ {
			s := newStore(t, newClock(), filepath.Join(privateDir(t), "ssh_ca"))
			for _, earlier := range steps[:i] {
				done(t)(earlier.run(s))
			}
			before, beforeErr := s.Show()
			hook, stopped := crashAt(n)
			s.before = hook
			_, err := step.run(s)
			s.before = nil
			if *stopped == "" {
				if err != nil {
					t.Fatal(step.name, err)
				}
				operations = n
				break
			}
			t.Run(fmt.Sprintf("%s before %s", step.name, *stopped), func(t *testing.T) {
				if !errors.Is(err, errCrash) {
					t.Fatalf("the crash is not in %v", err)
				}
				status, err := s.Show()
				happened := err == nil && (beforeErr != nil || status.State != before.State)
				if !happened {
					if bailey.KindOf(err) != bailey.KindOf(beforeErr) || status.Signing != before.Signing {
						t.Fatalf("%+v %v, before the crash %+v %v", status, err, before, beforeErr)
					}
					done(t)(step.run(s))
				} else if _, err := s.Export(); err != nil {
					t.Fatal(err)
				}
				status = done(t)(s.Show())
				keys := []TrustedKey{status.Signing, status.Other}[:1]
				if status.State != SingleKey {
					keys = append(keys, status.Other)
				}
				wantTrusted(t, s, step.after, keys...)
				want := "ssh_ca"
				if step.after == Staged {
					want = "ssh_ca ssh_ca.next"
				}
				if got := privateFiles(t, s); got != want {
					t.Errorf("private keys are in %q, want %q", got, want)
				}
			})
		}
		if operations < 8 {
			t.Errorf("%s has only %d operations", step.name, operations)
		}
	}
}
