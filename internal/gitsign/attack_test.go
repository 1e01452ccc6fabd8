package gitsign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bailey/pack"
)

// countingHolder signs everything and keeps what it signed.
type countingHolder struct{ signed []string }

func (h *countingHolder) signText(_ context.Context, text []byte) ([]byte, error) {
	h.signed = append(h.signed, string(text))
	return []byte("signature"), nil
}

// commitAt returns the text of a commit by Ada at a time.
func commitAt(at time.Time) string {
	return strings.ReplaceAll(plain, "1700000000", fmt.Sprint(at.Unix()))
}

func newSigning(h holder, limits pack.Signing) *Signing {
	return &Signing{holder: h, limits: limits, now: time.Now,
		person: pack.GitSigning{Name: "Ada Lovelace", Email: "ada@example.org"}}
}

// serve starts a signer at a socket and returns how to ask it, and how to end the call.
func serve(t *testing.T, s *Signing) (ask func(text string) ([]byte, error), end func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(cancel)
	ask = func(text string) ([]byte, error) { return askGateway(l.Addr().String(), []byte(text)) }
	return ask, func() error { cancel(); return <-served }
}

// TestAttackSigner asks the signer of a call for everything that it must not sign.
func TestAttackSigner(t *testing.T) {
	now := commitAt(time.Now())
	tag := strings.ReplaceAll(tagged, "1700000000", fmt.Sprint(time.Now().Unix()))
	replaceBy := func(s, role, by string) string {
		return strings.Replace(s, role+" Ada Lovelace <ada@example.org>", role+" "+by, 1)
	}
	for name, c := range map[string]struct {
		text  string
		limit pack.Signing
		fault string // "" if it is signed
	}{
		"a commit":             {now, pack.Signing{Kind: "commit", Most: 1}, ""},
		"a tag":                {tag, pack.Signing{Kind: "tag", Most: 1}, ""},
		"other text":           {"transfer 100\n\nto eve\n", pack.Signing{Kind: "commit", Most: 1}, "no commit"},
		"an ssh challenge":     {"\x00\x00\x00\x20session\n\n", pack.Signing{Kind: "commit", Most: 1}, "NUL"},
		"a tag for a commit":   {tag, pack.Signing{Kind: "commit", Most: 1}, "is a tag"},
		"a commit for a tag":   {now, pack.Signing{Kind: "tag", Most: 1}, "is a commit"},
		"another committer":    {replaceBy(now, "committer", "Eve <eve@x>"), pack.Signing{Kind: "commit", Most: 1, OtherAuthors: true}, "committer is not Ada"},
		"another address":      {replaceBy(now, "committer", "Ada Lovelace <eve@x>"), pack.Signing{Kind: "commit", Most: 1}, "committer is not"},
		"another author":       {replaceBy(now, "author", "Eve <eve@x>"), pack.Signing{Kind: "commit", Most: 1}, "author is not"},
		"another's commit":     {replaceBy(now, "author", "Eve <eve@x>"), pack.Signing{Kind: "commit", Most: 1, OtherAuthors: true}, ""},
		"another tagger":       {replaceBy(tag, "tagger", "Eve <eve@x>"), pack.Signing{Kind: "tag", Most: 1}, "tagger is not"},
		"old":                  {commitAt(time.Now().Add(-time.Hour)), pack.Signing{Kind: "commit", Most: 1, OtherAuthors: true}, "date"},
		"of tomorrow":          {commitAt(time.Now().Add(24 * time.Hour)), pack.Signing{Kind: "commit", Most: 1}, "date"},
		"signed already":       {strings.Replace(now, "\n\n", "\ngpgsig x\n\n", 1), pack.Signing{Kind: "commit", Most: 1}, "signature already"},
		"two in one":           {strings.Replace(now, "\n\n", "\n"+now, 1), pack.Signing{Kind: "commit", Most: 1}, "not expected"},
		"huge":                 {now + strings.Repeat("x", MaxObject), pack.Signing{Kind: "commit", Most: 1}, ""},
		"a call without right": {now, pack.Signing{Kind: "commit"}, "may have 0"},
	} {
		h := &countingHolder{}
		s := newSigning(h, c.limit)
		ask, end := serve(t, s)
		answer, err := ask(c.text)
		if serr := end(); serr != nil {
			t.Errorf("%s: %v", name, serr)
		}
		made, refusals := s.Report()
		if name == "huge" { // the connection may be cut before the client has sent all
			if err == nil || len(h.signed) > 0 || len(refusals) != 1 || !strings.Contains(refusals[0], "more than") {
				t.Errorf("%s: %v %v", name, err, refusals)
			}
			continue
		}
		switch {
		case c.fault == "" && (err != nil || string(answer) != "signature" || made != 1 || len(h.signed) != 1 || h.signed[0] != c.text):
			t.Errorf("%s: %q %v", name, answer, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || made != 0 || len(h.signed) > 0 || len(refusals) != 1):
			t.Errorf("%s: %q %v %v", name, answer, err, refusals)
		}
	}
}

// TestAttackSignerCount asks for more signatures than the call may have, also at once.
func TestAttackSignerCount(t *testing.T) {
	h := &countingHolder{}
	s := newSigning(h, pack.Signing{Kind: "commit", Most: 3})
	ask, end := serve(t, s)
	errs := make(chan error)
	for range 20 {
		go func() { _, err := ask(commitAt(time.Now())); errs <- err }()
	}
	good := 0
	for range 20 {
		if err := <-errs; err == nil {
			good++
		} else if !strings.Contains(err.Error(), "may have 3 signed") {
			t.Error(err)
		}
	}
	if made, _ := s.Report(); good != 3 || made != 3 || len(h.signed) != 3 || end() != nil {
		t.Errorf("%d of 3 signatures, and %d made", good, len(h.signed))
	}
	if _, err := ask(commitAt(time.Now())); err == nil || len(h.signed) != 3 {
		t.Errorf("a text was signed after the end of the call: %v", err)
	}
	if _, err := s.signOnce(canceled(t), []byte(commitAt(time.Now()))); err == nil {
		t.Error("a text that arrived in time was signed after the end of the call")
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestAttackSignerHangs checks that clients which send nothing are cut, and that the end of the call does not wait for
// them.
func TestAttackSignerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(&countingHolder{}, pack.Signing{Kind: "commit", Most: 1})
		ours, theirs := net.Pipe()
		start := time.Now()
		go s.serveClient(t.Context(), ours)
		answer, err := io.ReadAll(theirs)
		if took := time.Since(start); err != nil || !strings.Contains(string(answer), "did not arrive") || took != readPatience {
			t.Errorf("%q %v after %v", answer, err, took)
		}
	})
	s := newSigning(&countingHolder{}, pack.Signing{Kind: "commit", Most: 1})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	for range 2 * maxClients { // more than are served at once
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, tree)
	}
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(readPatience - time.Second):
		t.Error("the call waits for clients that hang")
	}
}

// TestAttackSignerProgram checks that only a program that root alone can write runs outside of a cage, and that neither
// PATH nor the person's settings lead elsewhere.
func TestAttackSignerProgram(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"gpg", "ssh-keygen"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o777); err != nil {
			t.Fatal(err)
		}
		os.Chmod(filepath.Join(dir, name), 0o777) // despite the umask
	}
	t.Setenv("PATH", dir)
	if path, err := findProgram("gpg", []string{dir}); err == nil {
		t.Errorf("%s would run", path)
	}
	if path, err := findProgram("gpg", systemDirs()); err == nil && !isSystemProgram(path) {
		t.Errorf("%s would run", path)
	}
	link := filepath.Join(dir, "link")
	if os.Symlink(filepath.Join(dir, "gpg"), link) == nil {
		if _, err := findProgram("link", []string{dir}); err == nil {
			t.Error("a symbolic link leads to a program that others can write")
		}
	}
	for _, setting := range []string{filepath.Join(dir, "gpg"), "./gpg", "gpg-wrapper", "/usr/bin/../../tmp/gpg", "/usr/bin/env", "sh -c gpg"} {
		g := pack.GitSigning{Format: "openpgp", Program: setting, Name: "Ada", Email: "a@b"}
		if _, err := (Signer{}).Prepare(t.Context(), pack.GitPerson{Signing: g}, pack.Signing{}); err == nil || !strings.Contains(err.Error(), "gpg.program") {
			t.Errorf("%q: %v", setting, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a program of the person's PATH ran")
	}
}
