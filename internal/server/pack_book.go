package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/safefile"
	"bailey/pack"
)

// packStore manages the packs and pack keys of a home, inside the gateway.
type packStore struct {
	home  localapi.Home
	note  func(ctx context.Context, kind string, data any) error
	stock func(c *pack.Catalog, first func() error) error // puts the packs into use, from the next call on
	log   *slog.Logger

	mu    sync.Mutex // serializes commands; guards known
	known packstore.State
}

func openPackBook(home localapi.Home, known packstore.State, note func(context.Context, string, any) error, stock func(*pack.Catalog, func() error) error, log *slog.Logger) *packStore {
	return &packStore{home: home, known: known.Clone(), note: note, stock: stock, log: log}
}

// turn applies change and puts the result into use. It is in the ledger before a call can use it. If the rules in force
// do not load with it, nothing changes. The caller must hold mu.
func (b *packStore) turn(ctx context.Context, kind string, data any, change func(*packstore.State)) error {
	next := b.known.Clone()
	change(&next)
	c, _, err := openCatalog(b.home, next)
	if err != nil {
		return err
	}
	return b.stock(c, func() error {
		if err := b.note(ctx, kind, data); err != nil {
			return err
		}
		b.known = next
		return nil
	})
}

// now returns the state from the ledger.
func (b *packStore) now() packstore.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known.Clone()
}

// propose verifies the pack that a query names and compares it with the installed one. The caller must hold mu.
func (b *packStore) propose(q localapi.Query) (p apitype.PackProposal, data []byte, err error) {
	path, dev := text(q.Args, "path"), q.Args["dev"] == true
	if !filepath.IsAbs(path) {
		return p, nil, &bailey.Error{Kind: bailey.Invalid, Message: "a bundle's path is absolute"}
	}
	keys, _ := packstore.Keys(b.home, b.known)
	v, data, err := packstore.ReadAt(path, dev, keys)
	if err != nil {
		return p, nil, err
	}
	now, err := v.Pack(filepath.Join(path, pack.ManifestName))
	if err != nil {
		return p, nil, err
	}
	p = apitype.PackProposal{OK: true, Name: v.Name, Version: v.Version, Digest: v.Digest, Key: v.Key, Dev: dev, Capabilities: len(now.Capabilities)}
	if err := b.fits(now); err != nil {
		return p, nil, err
	}
	if err := b.notOlder(&p, q.Args["downgrade"] == true); err != nil {
		return p, nil, err
	}
	b.compare(&p, now, keys)
	return p, data, nil
}

// fits returns an error if the pack conflicts with the other packs.
func (b *packStore) fits(p *pack.Pack) error {
	others := b.known.Clone()
	others.Uninstall(packstore.Installed{Name: p.Name})
	c, _, err := openCatalog(b.home, others)
	if err != nil {
		return err
	}
	if c.Pack(p.Name) != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("%s is a pack that ships with Bailey, and no other can have its name", p.Name), Hint: "rename the pack"}
	}
	_, err = c.With(p)
	return err
}

// notOlder rejects a signed pack that is older than one ever installed under its name, or different from it with the
// same version: old versions bring back old faults. An operator can allow it explicitly.
func (b *packStore) notOlder(p *apitype.PackProposal, said bool) error {
	top, ok := b.known.Highest[p.Name]
	if p.Dev || !ok {
		return nil
	}
	order := pack.CompareVersions(p.Version, top.Version)
	if order > 0 || order == 0 && p.Digest == top.Digest {
		return nil
	}
	why := fmt.Sprintf("%s %s is older than %s, which was installed on %s", p.Name, p.Version, top.Version, top.At.Format(time.DateOnly))
	if order == 0 {
		why = fmt.Sprintf("%s %s is bundle %.12s, and one of this version was installed that is %.12s", p.Name, p.Version, p.Digest, top.Digest)
	}
	if !said {
		return &bailey.Error{Kind: bailey.Denied, Message: why, Hint: "get the newest; if you mean this one, bailey pack install --downgrade"}
	}
	p.Downgrade, p.Loud = true, append(p.Loud, "DOWNGRADE: "+why)
	return nil
}

// compare fills in the changes and warnings.
func (b *packStore) compare(p *apitype.PackProposal, now *pack.Pack, keys []pack.Key) {
	was, ok := b.known.Installed[p.Name]
	var old *pack.Pack
	if ok {
		var err error
		p.Was = &was
		if old, err = packstore.Load(b.home, was, keys); err != nil {
			p.Loud = append(p.Loud, "what is installed cannot be read, so that all of this counts as new: "+err.Error())
		}
		if was.Key != p.Key && !p.Dev {
			p.Loud = append(p.Loud, "ANOTHER KEY: "+p.Key+" signed it, and what is installed "+signedBy(was))
		}
	}
	if p.Dev {
		p.Loud = append(p.Loud, "NOBODY SIGNED IT: each receipt of it will say dev")
	}
	p.Changes = pack.Diff(old, now)
	p.Differs = !ok || old == nil || was.Digest != p.Digest || was.Key != p.Key || was.Dev != p.Dev
}

func signedBy(p packstore.Installed) string {
	if p.Dev {
		return "nobody signed"
	}
	return "was signed by " + p.Key
}

// look is a query: it returns the effect of an installation.
func (b *packStore) look(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, _, err := b.propose(q)
	return p, err
}

// install is the operator command. The bundle, and the installed version that it replaces, must be those that were
// shown.
func (b *packStore) install(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, data, err := b.propose(q)
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || b.known.Installed[p.Name].Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the pack changed meanwhile", Hint: "bailey pack install shows it anew"}
	}
	in := packstore.Installed{Name: p.Name, Version: p.Version, Digest: p.Digest, Key: p.Key, Dev: p.Dev, Downgrade: p.Downgrade,
		At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if err := b.keep(in, data); err != nil {
		return nil, err
	}
	err = b.turn(ctx, packstore.PackInstallEvent, in, func(l *packstore.State) { l.Install(in) })
	b.sweep(in.Name)
	p.Changed = err == nil
	return p, err
}

// keep stores the bundle under its digest. The file is durable before the ledger names it.
func (b *packStore) keep(in packstore.Installed, data []byte) error {
	root, err := safefile.OpenDir(string(b.home), packstore.DirName)
	if err == nil {
		defer root.Close()
		if err = root.Mkdir(in.Name, 0o700); os.IsExist(err) {
			err = nil
		}
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the pack cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	dir, err := root.OpenRoot(in.Name)
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the pack cannot be kept", Err: err, Hint: "look at what is in " + packstore.Dir(b.home, in.Name)}
	}
	defer dir.Close()
	return safefile.Replace(dir, filepath.Base(packstore.File(b.home, in)), data, 0o600, func() error { return nil })
}

// sweep removes the bundles of that name that are not installed. If the pack is not installed, it also removes the
// directory.
func (b *packStore) sweep(name string) {
	in, ok := b.known.Installed[name]
	for _, e := range packstore.NamesIn(packstore.Dir(b.home, name)) {
		file := filepath.Join(packstore.Dir(b.home, name), e)
		if filepath.Ext(e) != ".baileypack" || ok && file == packstore.File(b.home, in) {
			continue
		}
		if err := os.Remove(file); err != nil {
			b.log.Warn("an old bundle stays", "file", file, "err", err)
		}
	}
	if !ok {
		os.Remove(packstore.Dir(b.home, name)) // fails if other files are in it, which are reported as a finding
	}
}

// uninstall is the operator command. The ledger still remembers the newest version that was installed.
func (b *packStore) uninstall(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.known.Installed[text(q.Args, "name")]
	if !ok {
		return nil, notInstalled(text(q.Args, "name"))
	}
	in.At, in.Operator, in.Person, in.Downgrade = time.Now().UTC().Truncate(time.Second), q.Operator, from.Principal.Person, false
	if err := b.turn(ctx, packstore.PackUninstallEvent, in, func(l *packstore.State) { l.Uninstall(in) }); err != nil {
		return nil, err
	}
	b.sweep(in.Name)
	return in, nil
}

func notInstalled(name string) error {
	c, err := packstore.BuiltIn()
	if err == nil && c.Pack(name) != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: name + " ships with Bailey, and stays", Hint: "a rule of policy can forbid what it does"}
	}
	return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no pack %q is installed", name), Hint: "bailey pack list"}
}

// published is the operator command that records a published bundle.
func (b *packStore) published(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	in := packstore.Installed{Name: text(q.Args, "name"), Version: text(q.Args, "version"), Digest: text(q.Args, "digest"), Key: text(q.Args, "key"), Dir: text(q.Args, "dir"),
		At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if slices.Contains([]string{in.Name, in.Version, in.Digest, in.Key, in.Dir}, "") {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "what is published has a name, a version, a digest, a key and a place"}
	}
	return in, b.note(ctx, packstore.PackPublishEvent, in)
}
