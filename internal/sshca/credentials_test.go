package sshca

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// counting is an issuer that counts, and that calls before at the start of each Issue.
type counting struct {
	*Authority
	issued atomic.Int64
	before func(Request) error
}

func (c *counting) Issue(ctx context.Context, r Request) (*Certificate, error) {
	c.issued.Add(1)
	if c.before != nil {
		if err := c.before(r); err != nil {
			return nil, err
		}
	}
	return c.Authority.Issue(ctx, r)
}

func newCache(t testing.TB, now func() time.Time, dir string) (*Credentials, *counting) {
	t.Helper()
	issuer := &counting{Authority: newAuthority(t, testKey(1), now, nil)}
	c, err := NewCredentials(CredentialsConfig{Issuer: issuer, Now: now, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return c, issuer
}

func target(name string) Target {
	return Target{Principal: Sandbox, Name: name, Identity: Identity{User: "ann", VM: "vm-1", Sandbox: "sbx-1"}}
}

func get(t testing.TB, c *Credentials, target Target) *Credential {
	t.Helper()
	r, err := c.Get(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCache checks when a credential is replaced: 30 s before its expiry, and not earlier.
func TestCache(t *testing.T) {
	clock := newClock()
	c, issuer := newCache(t, clock.Now, "")
	first := get(t, c, target("web"))
	if cert, ok := first.Signer.PublicKey().(*ssh.Certificate); !ok || cert != first.Certificate.SSH {
		t.Error("the signer has no certificate")
	}
	if first.KeyFile != "" || first.files != nil {
		t.Error("a credential in memory has files")
	}
	clock.advance(DefaultLifetime - Renew - time.Second)
	if get(t, c, target("web")) != first {
		t.Error("the credential was replaced too early")
	}
	clock.advance(time.Second)
	second := get(t, c, target("web"))
	if second == first || second.Certificate.Fingerprint == first.Certificate.Fingerprint {
		t.Error("the key was not replaced 30 s before the expiry")
	}
	clock.advance(-time.Hour)
	if third := get(t, c, target("web")); third == second {
		t.Error("a credential was used before it is valid")
	}
	if n := issuer.issued.Load(); n != 3 {
		t.Errorf("%d certificates", n)
	}
}

// TestCacheSeparates checks that no target or user gets the credential of another.
func TestCacheSeparates(t *testing.T) {
	c, _ := newCache(t, newClock().Now, "")
	change := func(f func(*Target)) Target { t := target("web"); f(&t); return t }
	seen := map[string]string{}
	for name, other := range map[string]Target{
		"web":       target("web"),
		"other":     target("other"),
		"principal": change(func(t *Target) { t.Principal = ReadOnly }),
		"user":      change(func(t *Target) { t.Identity.User = "bob" }),
	} {
		r := get(t, c, other)
		if first, twice := seen[r.Certificate.Fingerprint]; twice {
			t.Errorf("%s and %s share a key", name, first)
		}
		if seen[r.Certificate.Fingerprint] = name; get(t, c, other) != r {
			t.Errorf("%s is not cached", name)
		}
	}
	for name, f := range map[string]func(*Target){
		"VM":      func(t *Target) { t.Identity.VM = "vm-2" },
		"sandbox": func(t *Target) { t.Identity.Sandbox = "sbx-2" },
		"life":    func(t *Target) { t.Lifetime = time.Minute },
		"source":  func(t *Target) { t.SourceAddresses = []string{"192.0.2.7"} },
	} {
		before := get(t, c, target("web"))
		if get(t, c, change(f)) == before {
			t.Errorf("the credential is not replaced if the %s differs", name)
		}
	}
}

// TestCacheConcurrent checks that 64 callers for one target generate one key pair, while callers for another target do
// not wait.
func TestCacheConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, issuer := newCache(t, time.Now, "")
		release := make(chan struct{})
		issuer.before = func(r Request) error {
			if r.Identity.User == "ann" {
				<-release
			}
			return nil
		}
		var wait sync.WaitGroup
		results := make([]*Credential, 64)
		for i := range results {
			wait.Go(func() {
				var err error
				if results[i], err = c.Get(t.Context(), target("web")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one caller is in Issue, the others wait for it
		if n := issuer.issued.Load(); n != 1 {
			t.Errorf("%d callers are in Issue", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Get(ctx, target("web")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller cannot stop waiting: %v", err)
		}
		other := target("db")
		other.Identity.User = "bob"
		get(t, c, other)
		close(release)
		wait.Wait()
		for _, r := range results {
			if r == nil || r != results[0] {
				t.Fatal("two credentials for one target")
			}
		}
		if n := issuer.issued.Load(); n != 2 {
			t.Errorf("%d certificates for two targets", n)
		}
	})
}

// TestCacheRemoveWaits checks that a removal waits for the caller that generates a credential, and that a caller that
// waits for the removal gets a new credential, which is then cached.
func TestCacheRemoveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, issuer := newCache(t, time.Now, "")
		release := make(chan struct{})
		issuer.before = func(Request) error { <-release; return nil }
		results := make([]*Credential, 2)
		var wait sync.WaitGroup
		for _, step := range []func(){
			func() { results[0] = get(t, c, target("web")) },
			func() {
				if err := c.Remove(t.Context(), Sandbox, "web"); err != nil {
					t.Error(err)
				}
			},
			func() { results[1] = get(t, c, target("web")) },
		} {
			wait.Go(step)
			synctest.Wait() // the steps wait for the lock in this order
		}
		close(release)
		wait.Wait()
		if results[0] == results[1] || get(t, c, target("web")) != results[1] {
			t.Error("a credential of a removed target was used, or the new one is not cached")
		}
	})
}

// TestCacheClearTogether checks that removals that lock several targets do not wait for each other.
func TestCacheClearTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, issuer := newCache(t, time.Now, "")
		release := make(chan struct{})
		issuer.before = func(Request) error { <-release; return nil }
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() { get(t, c, target(fmt.Sprint("t", i))) })
		}
		synctest.Wait()
		for range 8 {
			wait.Go(func() {
				if err := c.Clear(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wait.Wait()
		if len(c.entries) != 0 {
			t.Errorf("%d entries remain", len(c.entries))
		}
	})
}

// TestCacheErrors checks that an error is not cached, and that an answer of another process is checked.
func TestCacheErrors(t *testing.T) {
	clock := newClock()
	c, issuer := newCache(t, clock.Now, "")
	broken := errors.New("broken")
	issuer.before = func(Request) error { return broken }
	if _, err := c.Get(t.Context(), target("web")); !errors.Is(err, broken) || len(c.entries) != 0 {
		t.Errorf("%v, %d entries", err, len(c.entries))
	}
	issuer.before = func(Request) error { panic("a bug of the issuer") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		get(t, c, target("web"))
	}()
	issuer.before = nil
	get(t, c, target("web"))

	bad := target("web")
	bad.Identity.Cert = "1"
	_, err := c.Get(t.Context(), bad)
	wantRefusal(t, err, bailey.Invalid, "certificate id")
	_, err = c.Get(t.Context(), target(""))
	wantRefusal(t, err, bailey.Invalid, "no name")
	_, err = NewCredentials(CredentialsConfig{})
	wantRefusal(t, err, bailey.Invalid, "no issuer or no clock")
	_, err = NewCredentials(CredentialsConfig{Issuer: issuer, Now: clock.Now, Dir: "keys"})
	wantRefusal(t, err, bailey.Invalid, "is not absolute")

	for says, change := range map[string]func(*Request){
		"for another key":               func(r *Request) { r.Key = publicOf(t, testKey(8).Public()) },
		`the principals "bailey-readon`: func(r *Request) { r.Principal = ReadOnly },
	} {
		c, err := NewCredentials(CredentialsConfig{Issuer: changing{issuer.Authority, change}, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), target("web"))
		wantRefusal(t, err, bailey.Unavailable, says)
	}
	late := func() time.Time { return clock.Now().Add(DefaultLifetime - Renew) }
	if c, err = NewCredentials(CredentialsConfig{Issuer: issuer, Now: late}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), target("web"))
	wantRefusal(t, err, bailey.Unavailable, "expires within 30s")
}

// changing is an issuer that issues for another request.
type changing struct {
	*Authority
	change func(*Request)
}

func (c changing) Issue(ctx context.Context, r Request) (*Certificate, error) {
	c.change(&r)
	return c.Authority.Issue(ctx, r)
}

func TestCredentialFiles(t *testing.T) {
	clock, dir := newClock(), filepath.Join(t.TempDir(), "keys")
	c, _ := newCache(t, clock.Now, dir)
	host := target("web.example.org")
	host.Principal, host.Identity.User = ReadOnly, "ann@example.org"
	first := get(t, c, host)
	want := filepath.Join(dir, "bailey-readonly", PathName("web.example.org"), PathName("ann@example.org"),
		fmt.Sprintf("%016x", first.Certificate.Serial))
	if first.KeyFile != filepath.Join(want, "key") || first.CertificateFile != filepath.Join(want, "key-cert.pub") {
		t.Fatal(first.KeyFile, first.CertificateFile)
	}
	for at := want; at != filepath.Dir(dir); at = filepath.Dir(at) {
		wantMode(t, at, 0o700)
	}
	wantMode(t, first.KeyFile, 0o600)
	wantMode(t, first.CertificateFile, 0o644)
	if key, fault := parsePrivate(getFile(t, first.KeyFile)); fault != "" ||
		!bytes.Equal(publicOf(t, key.Public()).Marshal(), first.Certificate.SSH.Key.Marshal()) {
		t.Errorf("the key file %s", fault)
	}
	if !bytes.Equal(getFile(t, first.CertificateFile), first.Certificate.AuthorizedKey()) {
		t.Error("another certificate is in the file")
	}

	// A program that got the previous paths can still read the files; those before are removed.
	clock.advance(DefaultLifetime)
	second := get(t, c, host)
	getFile(t, first.KeyFile)
	clock.advance(DefaultLifetime)
	third := get(t, c, host)
	if _, err := os.Stat(filepath.Dir(first.KeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files of an expired credential remain: %v", err)
	}
	getFile(t, second.KeyFile)

	if err := os.RemoveAll(filepath.Dir(third.KeyFile)); err != nil {
		t.Fatal(err)
	}
	if fourth := get(t, c, host); fourth == third {
		t.Error("a credential without files was returned")
	}
}

func TestCredentialFilesRemoved(t *testing.T) {
	dir := privateDir(t)
	c, _ := newCache(t, newClock().Now, dir)
	web, db := get(t, c, target("web")), get(t, c, target("db"))
	if err := c.Remove(t.Context(), Sandbox, "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sandbox", "web")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files of a removed target remain: %v", err)
	}
	if get(t, c, target("db")) != db || get(t, c, target("web")) == web {
		t.Error("the wrong credential was removed")
	}
	putFile(t, filepath.Join(dir, "mine"), nil, 0o600)
	again, _ := newCache(t, newClock().Now, dir) // the next process
	if err := again.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name() != "mine" {
		t.Errorf("%v %v", list, err)
	}
	never, _ := newCache(t, newClock().Now, filepath.Join(dir, "missing"))
	if err := errors.Join(never.Clear(t.Context()), never.Remove(t.Context(), Sandbox, "web")); err != nil {
		t.Error(err)
	}
}

// TestCredentialFilesChecked checks that files are checked before each use.
func TestCredentialFilesChecked(t *testing.T) {
	for name, c := range map[string]struct {
		says   string
		change func(r *Credential) error
	}{
		"key readable":     {"mode 0640, not 0600", func(r *Credential) error { return os.Chmod(r.KeyFile, 0o640) }},
		"folder open":      {"mode 0711", func(r *Credential) error { return os.Chmod(up(r.KeyFile, 1), 0o711) }},
		"target open":      {"mode 0755", func(r *Credential) error { return os.Chmod(up(r.KeyFile, 3), 0o755) }},
		"directory open":   {"mode 0750", func(r *Credential) error { return os.Chmod(up(r.KeyFile, 5), 0o750) }},
		"cert writable":    {"mode 0664", func(r *Credential) error { return os.Chmod(r.CertificateFile, 0o664) }},
		"key changed":      {"was changed", func(r *Credential) error { return os.WriteFile(r.KeyFile, nil, 0o600) }},
		"cert changed":     {"was changed", func(r *Credential) error { return os.Truncate(r.CertificateFile, 9) }},
		"key is a link":    {"is a symbolic link", func(r *Credential) error { return link(r.KeyFile) }},
		"folder is a link": {"is a symbolic link", func(r *Credential) error { return link(up(r.KeyFile, 2)) }},
	} {
		cache, _ := newCache(t, newClock().Now, privateDir(t))
		r := get(t, cache, target("web"))
		if err := c.change(r); err != nil {
			t.Fatal(name, err)
		}
		got, err := cache.Get(t.Context(), target("web"))
		if wantRefusal(t, err, bailey.Denied, c.says); got != nil && err == nil {
			t.Errorf("%s: the credential was returned", name)
		}
	}
}

func up(path string, n int) string {
	for range n {
		path = filepath.Dir(path)
	}
	return path
}

func link(path string) error {
	return errors.Join(os.Rename(path, path+".moved"), os.Symlink(filepath.Base(path)+".moved", path))
}

// TestCredentialFilesConflict checks that two names never share a directory.
func TestCredentialFilesConflict(t *testing.T) {
	c, _ := newCache(t, newClock().Now, privateDir(t))
	first := get(t, c, target("web.example.org"))
	_, err := c.Get(t.Context(), target(PathName("web.example.org")))
	wantRefusal(t, err, bailey.Conflict, "have the same directory")
	get(t, c, target("Web"))
	_, err = c.Get(t.Context(), target("web"))
	wantRefusal(t, err, bailey.Conflict, "have the same directory")
	if err := c.Remove(t.Context(), Sandbox, PathName("web.example.org")); err != nil {
		t.Fatal(err)
	}
	if get(t, c, target("web.example.org")) != first {
		t.Error("the files of another target were removed")
	}
	if err := c.Remove(t.Context(), Sandbox, "Web"); err != nil {
		t.Fatal(err)
	}
	get(t, c, target("web"))
}

// TestCredentialCrash checks that a crash at any operation leaves no directory with one half of a pair.
func TestCredentialCrash(t *testing.T) {
	for n := 0; ; n++ {
		dir := privateDir(t)
		d, err := openSecretDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		hook, stopped := crashAt(n)
		d.before = hook
		files := map[string][]byte{keyName: []byte("key"), certificateName: []byte("certificate")}
		err = d.writePair(".", "1", files)
		if *stopped == "" {
			if err != nil || n < 8 {
				t.Errorf("%d operations, %v", n, err)
			}
			d.close()
			return
		}
		if _, err := os.Stat(filepath.Join(dir, "1")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after a crash before %s: %v", *stopped, err)
		}
		d.before = nil
		if err := errors.Join(d.writePair(".", "1", files), d.removeOthers(".", []string{"1"})); err != nil {
			t.Errorf("after a crash before %s: %v", *stopped, err)
		}
		d.close()
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"web":                    "web",
		"A-z_09":                 "A-z_09",
		strings.Repeat("a", 64):  strings.Repeat("a", 64),
		"web.example.org":        "web_example_org-",
		"..":                     "__-",
		"../../etc":              "______etc-",
		"":                       "-",
		"a\x00b":                 "a_b-",
		"ä":                      "__-",
		strings.Repeat("b", 200): strings.Repeat("b", 64) + "-",
	} {
		got := PathName(name)
		if strings.HasSuffix(want, "-") {
			if len(got) != len(want)+16 || !strings.HasPrefix(got, want) {
				t.Errorf("%q: %q", name, got)
			}
			wantRefusal(t, CheckName(name), bailey.Invalid, "the name")
		} else if got != want || CheckName(name) != nil {
			t.Errorf("%q: %q %v", name, got, CheckName(name))
		}
		if CheckName(got) != nil && len(got) <= maxName {
			t.Errorf("%q is not a name", got)
		}
	}
	if PathName("a.b") == PathName("a/b") {
		t.Error("two names have the same path")
	}
}

// TestCacheRace lets callers, removals and the clock run against each other, for the race detector.
func TestCacheRace(t *testing.T) {
	clock := newClock()
	c, _ := newCache(t, clock.Now, privateDir(t))
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 5 {
				get(t, c, target(fmt.Sprint("t", i%3)))
				if i == 0 {
					clock.advance(10 * time.Minute)
				}
				runtime.Gosched()
				if err := c.Remove(t.Context(), Sandbox, "t1"); i == 1 && err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

// TestIDFor checks that every name becomes an id that an identity may have, and that usual names stay as they are.
func TestIDFor(t *testing.T) {
	for name, want := range map[string]string{"web1": "web1", "db.example.org": "db.example.org", "ann@corp": "ann@corp", "db-vm": "db-vm.",
		"a-sbx": "a-sbx.", "x-cert": "x-cert.", "a b": PathName("a b"), "é": PathName("é"), strings.Repeat("a", 200): PathName(strings.Repeat("a", 200))} {
		got := IDFor(name)
		if got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
		if _, err := (Identity{User: got, VM: got, Sandbox: "source", Cert: "c"}).Text(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
