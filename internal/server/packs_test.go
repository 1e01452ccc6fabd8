package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/pack"
)

// bundled contains the test vectors of package pack.
const bundled = "../../pack/testdata/bundle/"

// shop is a packBook with its own home, without a gateway.
type shop struct {
	*packStore
	t       *testing.T
	noted   []string
	refuses error // result of the ledger
	rules   error // result of the rules in force
	catalog *pack.Catalog
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t}
	home := localapi.Home(filepath.Join(t.TempDir(), "home"))
	if err := home.Create(); err != nil {
		t.Fatal(err)
	}
	note := func(_ context.Context, kind string, _ any) error {
		if s.refuses == nil {
			s.noted = append(s.noted, kind)
		}
		return s.refuses
	}
	stock := func(c *pack.Catalog, first func() error) error {
		if s.rules != nil {
			return s.rules
		}
		err := first()
		if err == nil {
			s.catalog = c
		}
		return err
	}
	s.packStore = openPackBook(home, packstore.State{}, note, stock, slog.New(slog.DiscardHandler))
	return s
}

// act uses a command as an operator.
func act[Request, Answer any](s *shop, command func(context.Context, Request, gateway.Caller) (Answer, error),
	r Request) error {
	_, err := command(s.t.Context(), r, gateway.Caller{Operator: localapi.Env})
	return err
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) trusts(name string) error {
	key, err := os.ReadFile(bundled + name)
	s.must(err)
	return act(s, s.trustKey, apitype.PackKey{Key: strings.TrimSpace(string(key))})
}

// installs does the same as the command line: query, then install the shown bundle.
func (s *shop) installs(path string, more ...string) error {
	path, err := filepath.Abs(path)
	s.must(err)
	r := apitype.PackRequest{Path: path, Dev: slices.Contains(more, "dev"), Downgrade: slices.Contains(more, "downgrade")}
	p, err := s.previewInstall(s.t.Context(), r, gateway.Caller{})
	if err != nil {
		return err
	}
	r.Digest, r.Base = p.Digest, s.known.Load().Installed[p.Name].Digest
	return act(s, s.installPack, r)
}

// TestInstalledPacks changes an installed pack or its key, for example with a symlink. The pack must not be loaded, the
// change must be reported, and other packs must stay.
func TestInstalledPacks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "pack.yaml"), []byte("name: other\nversion: 1.0.0\ncapabilities:\n  - {name: x, risk: low, sideEffectClass: none, reversibility: readOnly, backend: {type: subprocess, command: x}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do   func(file, key string) error
		want string
	}{
		"nothing":           {func(string, string) error { return nil }, ""},
		"gone":              {func(file, _ string) error { return os.Remove(file) }, "there is no file"},
		"a byte":            {func(file, _ string) error { return edit(file, "Counts", "counts") }, "README.md does not match the index"},
		"unsigned":          {func(file, _ string) error { return copyTo(bundled+"unsigned.baileypack", file) }, "is not signed"},
		"older, and signed": {func(file, _ string) error { return copyTo(bundled+"demo-0.9.0.baileypack", file) }, "the file is demo 0.9.0"},
		"another's":         {func(file, _ string) error { return copyTo(bundled+"by-stranger.baileypack", file) }, "no trusted key has that name"},
		"a link": {func(file, _ string) error {
			return errors.Join(os.Rename(file, file+"x"), os.Symlink(file+"x", file))
		}, "not a regular file"},
		"a directory":        {func(file, _ string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, "is a directory"},
		"large":              {func(file, _ string) error { return os.Truncate(file, pack.MaxBundle+1) }, "bytes allowed"},
		"empty":              {func(file, _ string) error { return os.Truncate(file, 0) }, "does not end"},
		"a key that is gone": {func(_, key string) error { return os.Remove(key) }, "no trusted key has that name"},
		"another key":        {func(_, key string) error { return copyTo(bundled+"stranger.pub", key) }, "no trusted key has that name"},
		"a key more":         {func(_, key string) error { return copyTo(bundled+"stranger.pub", filepath.Dir(key)+"/stranger.pub") }, "!by hand"},
		"a file more":        {func(file, _ string) error { return copyTo(file, filepath.Dir(file)+"/x.baileypack") }, "!by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.must(s.trusts("author.pub"))
			s.must(s.installs(bundled + "demo-1.0.0.baileypack"))
			s.must(s.installs(other, "dev"))
			s.must(c.do(packstore.File(s.home, s.known.Load().Installed["demo"]), packstore.KeyFile(s.home, "author")))
			loaded, found := packstore.LoadInstalled(s.home, s.known.Load())
			want, lesser := strings.CutPrefix(c.want, "!")
			lost := c.want != "" && !lesser
			if n := len(loaded); lost && n != 1 || !lost && n != 2 || loaded[n-1].Name != "other" || !loaded[n-1].Capabilities[0].Dev {
				t.Errorf("%d packs are loaded", n)
			}
			told := func(f packstore.Finding) bool {
				return strings.Contains(f.Text, want) && (f.Pack == "demo") == lost && f.Cure != ""
			}
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, told) {
				t.Errorf("findings %+v, want %q", found, c.want)
			}
		})
	}
}

func copyTo(from, to string) error {
	data, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, data, 0o600))
}

func edit(file, old, now string) error {
	data, err := os.ReadFile(file)
	return errors.Join(err, os.WriteFile(file, bytes.Replace(data, []byte(old), []byte(now), 1), 0o600))
}

// TestInstallIsAllOrNothing checks that if the ledger or the rules refuse, nothing changes.
func TestInstallIsAllOrNothing(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := newShop(t)
	s.refuses = errors.New("full")
	if err := s.trusts("author.pub"); !errors.Is(err, s.refuses) || len(s.known.Load().Keys) != 0 || len(packstore.NamesIn(filepath.Dir(packstore.KeyFile(s.home, "x")))) != 0 {
		t.Error("trusted without an entry", err)
	}
	s.refuses = nil
	s.must(s.trusts("author.pub"))
	for _, p := range []*error{&s.refuses, &s.rules} {
		*p = errors.New("no")
		if err := s.installs(bundled + "demo-1.0.0.baileypack"); !errors.Is(err, *p) || len(s.known.Load().Installed) != 0 || len(packstore.NamesIn(packstore.Dir(s.home, "demo"))) != 0 {
			t.Error("installed", err)
		}
		*p = nil
	}
	s.must(s.installs(bundled + "demo-1.0.0.baileypack"))
	s.rules = errors.New("no")
	if err := act(s, s.uninstallPack, apitype.PackName{Name: "demo"}); !errors.Is(err, s.rules) {
		t.Error(err)
	}
	if err := act(s, s.untrustKey, apitype.PackKeyName{Name: "author"}); !errors.Is(err, s.rules) {
		t.Error(err)
	}
	if loaded, found := packstore.LoadInstalled(s.home, s.known.Load()); len(loaded) != 1 || len(found) != 0 || s.catalog.Pack("demo") == nil {
		t.Error(loaded, found)
	}
	if want := []string{packstore.PackTrustEvent, packstore.PackInstallEvent}; !slices.Equal(s.noted, want) {
		t.Error(s.noted)
	}
}

// TestInstallWhatWasShown checks that the installation fails if the bundle or the pack that it replaces changed since.
func TestInstallWhatWasShown(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := newShop(t)
	s.must(s.trusts("author.pub"))
	file := filepath.Join(t.TempDir(), "b.baileypack")
	s.must(copyTo(bundled+"demo-0.9.0.baileypack", file))
	seen, err := s.previewInstall(t.Context(), apitype.PackRequest{Path: file}, gateway.Caller{})
	s.must(err)
	shown := seen.Digest
	s.must(copyTo(bundled+"demo-1.0.0.baileypack", file))
	for _, r := range []apitype.PackRequest{{Path: file, Digest: shown}, {Path: file}} {
		if err := act(s, s.installPack, r); bailey.KindOf(err) != bailey.Conflict {
			t.Error(err)
		}
	}
	s.must(s.installs(file))
	if err := act(s, s.installPack, apitype.PackRequest{Path: file, Digest: s.known.Load().Installed["demo"].Digest}); bailey.KindOf(err) != bailey.Conflict {
		t.Error(err)
	}
}

// TestDowngrade checks that an older version is rejected, even after an uninstall or a development directory, unless a
// downgrade is requested.
func TestDowngrade(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := newShop(t)
	s.must(s.trusts("author.pub"))
	s.must(s.installs(bundled + "demo-0.9.0.baileypack"))
	s.must(s.installs(bundled + "demo-1.0.0.baileypack"))
	older := func() {
		t.Helper()
		if err := s.installs(bundled + "demo-0.9.0.baileypack"); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "is older than 1.0.0") {
			t.Error(err)
		}
	}
	older()
	s.must(s.installs(bundled+"demo", "dev"))
	older()
	s.must(act(s, s.uninstallPack, apitype.PackName{Name: "demo"}))
	older()
	s.must(s.installs(bundled+"demo-0.9.0.baileypack", "downgrade"))
	if in := s.known.Load().Installed["demo"]; in.Version != "0.9.0" || !in.Downgrade || s.known.Load().Highest["demo"].Version != "1.0.0" {
		t.Error(in)
	}
	s.must(s.installs(bundled + "demo-1.0.0.baileypack"))
	if n := len(packstore.NamesIn(packstore.Dir(s.home, "demo"))); n != 1 {
		t.Errorf("%d bundles are kept", n)
	}
}

// TestOneKeyAName checks that the trusted key for a name can only be replaced by an operator who first removes it.
func TestOneKeyAName(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s := newShop(t)
	s.must(s.trusts("author.pub"))
	_, public, err := pack.GenerateKey("author")
	s.must(err)
	if err := act(s, s.trustKey, apitype.PackKey{Key: public}); bailey.KindOf(err) != bailey.Conflict {
		t.Error(err)
	}
	if err := s.installs(bundled + "by-namesake.baileypack"); bailey.KindOf(err) != bailey.Denied {
		t.Error(err)
	}
	s.must(act(s, s.untrustKey, apitype.PackKeyName{Name: "author"}))
	s.must(act(s, s.trustKey, apitype.PackKey{Key: public}))
	if err := s.installs(bundled + "demo-1.0.0.baileypack"); bailey.KindOf(err) != bailey.Denied {
		t.Error("the old key still counts", err)
	}
}
