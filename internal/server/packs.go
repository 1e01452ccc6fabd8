package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/applied"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
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
	known applied.Store[packstore.State]

	mu sync.Mutex // one command at a time, with the files that it writes
}

func openPackBook(home localapi.Home, known packstore.State, note func(context.Context, string, any) error,
	stock func(*pack.Catalog, func() error) error, log *slog.Logger) *packStore {
	b := &packStore{home: home, note: note, stock: stock, log: log}
	b.known.Restore(known.Clone())
	return b
}

// applyChange applies change and puts the result into use. If the rules in force do not load with it, nothing changes.
func (b *packStore) applyChange(ctx context.Context, kind string, data any, change func(*packstore.State)) error {
	return b.known.Apply(func(now packstore.State) (packstore.State, func() error, error) {
		next := now.Clone()
		change(&next)
		c, _, err := openCatalog(b.home, next)
		return next, func() error { return b.stock(c, func() error { return b.note(ctx, kind, data) }) }, err
	})
}

// proposeInstall verifies the pack that a request names and compares it with the installed one. The caller must hold mu.
func (b *packStore) proposeInstall(r apitype.PackRequest) (p apitype.PackProposal, data []byte, err error) {
	if !filepath.IsAbs(r.Path) {
		return p, nil, bailey.Invalid.New("the path of a bundle must be absolute", "")
	}
	keys, _ := packstore.Keys(b.home, b.known.Load())
	v, data, err := packstore.ReadAt(r.Path, r.Dev, keys)
	if err != nil {
		return p, nil, err
	}
	now, err := v.Pack(filepath.Join(r.Path, pack.ManifestName))
	if err != nil {
		return p, nil, err
	}
	p = apitype.PackProposal{OK: true, Name: v.Name, Version: v.Version, Digest: v.Digest, Key: v.Key, Dev: r.Dev,
		Capabilities: len(now.Capabilities)}
	if err := b.checkConflicts(now); err != nil {
		return p, nil, err
	}
	if err := b.notOlder(&p, r.Downgrade); err != nil {
		return p, nil, err
	}
	p.Loud = append(p.Loud, packstore.Notes(v)...)
	b.describeChanges(&p, now, keys)
	return p, data, nil
}

// checkConflicts returns an error if the pack conflicts with the other packs.
func (b *packStore) checkConflicts(p *pack.Pack) error {
	others := b.known.Load().Clone()
	others.Uninstall(packstore.Installed{Name: p.Name})
	c, _, err := openCatalog(b.home, others)
	if err != nil {
		return err
	}
	if c.Pack(p.Name) != nil {
		return bailey.Conflict.Errorf("rename the pack",
			"%s is the name of a pack that ships with Bailey", p.Name)
	}
	_, err = c.With(p)
	return err
}

// notOlder rejects a signed pack that is older than one ever installed under its name, or different from it with the
// same version: old versions bring back old faults. An operator can allow it explicitly.
func (b *packStore) notOlder(p *apitype.PackProposal, said bool) error {
	top, ok := b.known.Load().Highest[p.Name]
	if p.Dev || !ok {
		return nil
	}
	order := pack.CompareVersions(p.Version, top.Version)
	if order > 0 || order == 0 && p.Digest == top.Digest {
		return nil
	}
	why := fmt.Sprintf("%s %s is older than %s, which was installed on %s", p.Name, p.Version, top.Version,
		top.At.Format(time.DateOnly))
	if order == 0 {
		why = fmt.Sprintf("%s %s is bundle %.12s, but this version was installed before as %.12s", p.Name,
			p.Version, p.Digest, top.Digest)
	}
	if !said {
		return bailey.Denied.New(why, "get the newest; if you want this one, use bailey pack install --downgrade")
	}
	p.Downgrade, p.Loud = true, append(p.Loud, "DOWNGRADE: "+why)
	return nil
}

// describeChanges fills in the changes and warnings.
func (b *packStore) describeChanges(p *apitype.PackProposal, now *pack.Pack, keys []pack.Key) {
	was, ok := b.known.Load().Installed[p.Name]
	var old *pack.Pack
	if ok {
		var err error
		p.Was = &was
		if old, err = packstore.Load(b.home, was, keys); err != nil {
			p.Loud = append(p.Loud, "the installed version cannot be read, so all of this is treated as new: "+err.Error())
		}
		if was.Key != p.Key && !p.Dev {
			p.Loud = append(p.Loud, "ANOTHER KEY: "+p.Key+" signed it, but the installed version "+signedBy(was))
		}
	}
	if p.Dev {
		p.Loud = append(p.Loud, "UNSIGNED: each of its receipts says dev")
	}
	p.Changes = pack.Diff(old, now)
	p.Differs = !ok || old == nil || was.Digest != p.Digest || was.Key != p.Key || was.Dev != p.Dev
}

func signedBy(p packstore.Installed) string {
	if p.Dev {
		return "is unsigned"
	}
	return "was signed by " + p.Key
}

// previewInstall returns the effect of an installation.
func (b *packStore) previewInstall(_ context.Context, r apitype.PackRequest,
	_ gateway.Caller) (apitype.PackProposal, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, _, err := b.proposeInstall(r)
	return p, err
}

// installPack is the operator command. The bundle, and the installed version that it replaces, must be those that were
// shown.
func (b *packStore) installPack(ctx context.Context, r apitype.PackRequest,
	from gateway.Caller) (apitype.PackProposal, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, data, err := b.proposeInstall(r)
	if err != nil {
		return p, err
	}
	if p.Digest != r.Digest || b.known.Load().Installed[p.Name].Digest != r.Base {
		return p, bailey.Conflict.New("the pack was changed meanwhile", "run bailey pack install to see it again")
	}
	in := packstore.Installed{Name: p.Name, Version: p.Version, Digest: p.Digest, Key: p.Key, Dev: p.Dev,
		Downgrade: p.Downgrade,
		At:        time.Now().UTC().Truncate(time.Second), Operator: from.Operator, Person: from.Principal.Person}
	// the bundle is durable before the ledger names it
	file := filepath.Join(packstore.DirName, in.Name, filepath.Base(packstore.File(b.home, in)))
	if err := safefile.Put(string(b.home), file, data, 0o600, nil); err != nil {
		return p, err
	}
	err = b.applyChange(ctx, packstore.PackInstallEvent, in, func(l *packstore.State) { l.Install(in) })
	b.removeOldBundles(in.Name)
	p.Changed = err == nil
	return p, err
}

// removeOldBundles removes the bundles of that name that are not installed. If the pack is not installed, it also removes the
// directory.
func (b *packStore) removeOldBundles(name string) {
	in, ok := b.known.Load().Installed[name]
	for _, e := range packstore.NamesIn(packstore.Dir(b.home, name)) {
		file := filepath.Join(packstore.Dir(b.home, name), e)
		if filepath.Ext(e) != ".baileypack" || ok && file == packstore.File(b.home, in) {
			continue
		}
		if err := os.Remove(file); err != nil {
			b.log.Warn("cannot remove an old bundle", "file", file, "err", err)
		}
	}
	if !ok {
		os.Remove(packstore.Dir(b.home, name)) // fails if other files are in it, which are reported as a finding
	}
}

// uninstallPack is the operator command. The ledger still remembers the newest version that was installed.
func (b *packStore) uninstallPack(ctx context.Context, r apitype.PackName,
	from gateway.Caller) (packstore.Installed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.known.Load().Installed[r.Name]
	if !ok {
		return in, notInstalled(r.Name)
	}
	in.At, in.Operator, in.Person, in.Downgrade = time.Now().UTC().Truncate(time.Second), from.Operator, from.Principal.Person, false
	if err := b.applyChange(ctx, packstore.PackUninstallEvent, in,
		func(l *packstore.State) { l.Uninstall(in) }); err != nil {
		return in, err
	}
	b.removeOldBundles(in.Name)
	return in, nil
}

func notInstalled(name string) error {
	c, err := packstore.BuiltIn()
	if err == nil && c.Pack(name) != nil {
		return bailey.Conflict.New(name+" ships with Bailey, and stays", "forbid its actions in policy")
	}
	return bailey.NotFound.Errorf("run bailey pack list", "no pack %q is installed", name)
}

// recordPublish is the operator command that records a published bundle.
func (b *packStore) recordPublish(ctx context.Context, r apitype.PackPublication,
	from gateway.Caller) (packstore.Installed, error) {
	in := packstore.Installed{Name: r.Name, Version: r.Version, Digest: r.Digest, Key: r.Key, Dir: r.Dir,
		At: time.Now().UTC().Truncate(time.Second), Operator: from.Operator, Person: from.Principal.Person}
	if slices.Contains([]string{in.Name, in.Version, in.Digest, in.Key, in.Dir}, "") {
		return in, bailey.Invalid.New("a publication needs a name, a version, a digest, a key and a place", "")
	}
	return in, b.note(ctx, packstore.PackPublishEvent, in)
}

// listChangedPrograms returns the changed programs of a capability that need an approval.
func (s *Server) listChangedPrograms(ctx context.Context, r apitype.ID,
	from gateway.Caller) (apitype.Changed, error) {
	job, pins, err := s.pinnedJob(bailey.CapabilityID(r.ID), from.Dir)
	if err != nil {
		return apitype.Changed{}, err
	}
	programs, err := pins.Changes(ctx, job)
	return apitype.Changed{OK: err == nil, Capability: job.Capability, Programs: programs}, err
}

// pinnedJob returns a capability's job, without inputs because its programs do not depend on them, and the pins that check
// it. The programs are those that the project in dir selects.
func (s *Server) pinnedJob(id bailey.CapabilityID, dir string) (bailey.Job, *gateway.Pins, error) {
	m, err := s.shelf.Catalog().Lookup(id)
	if err != nil {
		return bailey.Job{}, nil, err
	}
	job := m.Job(nil, nil)
	if m.Uncaged() {
		return job, s.open, nil
	}
	job.Dir = dir
	job, _, err = s.finder.Equip(job)
	job.Dir = "" // it is not in the cage
	return job, s.pins, err
}

func (s *Server) repinPrograms(ctx context.Context, r apitype.RepinRequest,
	from gateway.Caller) (apitype.Changed, error) {
	job, pins, err := s.pinnedJob(r.ID, from.Dir)
	if err != nil {
		return apitype.Changed{}, err
	}
	if r.Shown == nil {
		return apitype.Changed{}, bailey.Invalid.New("a repin needs the programs that were shown", "")
	}
	is := gateway.Repin{Capability: job.Capability, Programs: r.Shown, Operator: from.Operator,
		Person: from.Principal.Person}
	if err := pins.Repin(ctx, job, is); err != nil {
		return apitype.Changed{}, err
	}
	return apitype.Changed{OK: true, Changed: true, Capability: job.Capability, Programs: r.Shown}, nil
}

// listKeys returns the trusted keys in use.
func (b *packStore) listKeys(context.Context, localapi.None, gateway.Caller) ([]packstore.TrustedKey, error) {
	keys, _ := packstore.Keys(b.home, b.known.Load())
	list := []packstore.TrustedKey{}
	for _, k := range keys {
		list = append(list, packstore.TrustedKey{Name: k.Name, Key: k.Text})
	}
	return list, nil
}

// trustKey is the operator command. If another key is trusted under the same name, that key must be untrusted first.
func (b *packStore) trustKey(ctx context.Context, r apitype.PackKey,
	from gateway.Caller) (out apitype.KeyChanged, err error) {
	k, err := pack.ParseKey(r.Key)
	if err != nil {
		return out, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := packstore.TrustedKey{Name: k.Name, Key: k.Text, At: time.Now().UTC().Truncate(time.Second),
		Operator: from.Operator, Person: from.Principal.Person}
	if was, ok := b.known.Load().Keys[k.Name]; ok && was.Key != k.Text {
		return out, bailey.Conflict.Errorf("run bailey pack untrust "+k.Name+" first, if its author has a new key",
			"another key is trusted as %s", k.Name)
	}
	out = apitype.KeyChanged{OK: true, Name: k.Name, Key: k.Text}
	if keys, _ := packstore.Keys(b.home, b.known.Load()); slices.ContainsFunc(keys,
		func(o pack.Key) bool { return o.Text == k.Text }) {
		return out, nil
	}
	if err := safefile.Put(string(b.home), packstore.KeysDirName+"/"+k.Name+".pub", []byte(k.Text+"\n"), 0o644,
		nil); err != nil {
		return out, err
	}
	if err := b.applyChange(ctx, packstore.PackTrustEvent, now, func(l *packstore.State) { l.Trust(now) }); err != nil {
		return out, errors.Join(err, os.Remove(packstore.KeyFile(b.home, k.Name)))
	}
	out.Changed = true
	return out, nil
}

// untrustKey is the operator command. Packs that the key signed are no longer loaded.
func (b *packStore) untrustKey(ctx context.Context, r apitype.PackKeyName,
	from gateway.Caller) (out apitype.KeyChanged, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.known.Load().Keys[r.Name]
	if !ok {
		return out, bailey.NotFound.Errorf("run bailey pack list to see the signers", "no key %q is trusted", r.Name)
	}
	out = apitype.KeyChanged{OK: true, Name: k.Name, Key: k.Key, Packs: b.signedWith(k)}
	k.At, k.Operator, k.Person = time.Now().UTC().Truncate(time.Second), from.Operator, from.Principal.Person
	if err := b.applyChange(ctx, packstore.PackUntrustEvent, k, func(l *packstore.State) { l.Untrust(k) }); err != nil {
		return out, err
	}
	if err := os.Remove(packstore.KeyFile(b.home, k.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("cannot remove the file of a key", "err", err)
	}
	out.Changed = true
	return out, nil
}

func (b *packStore) signedWith(k packstore.TrustedKey) (names []string) {
	key, err := pack.ParseKey(k.Key)
	for _, name := range slices.Sorted(maps.Keys(b.known.Load().Installed)) {
		if err == nil && b.known.Load().Installed[name].Key == key.ID() {
			names = append(names, name)
		}
	}
	return names
}

// packRows returns the built-in packs and the installed packs. Each installed pack is verified now.
func (b *packStore) packRows() (rows apitype.PackRows, all []*pack.Pack, err error) {
	c, err := packstore.BuiltIn()
	if err != nil {
		return rows, nil, err
	}
	for _, p := range c.Packs() {
		rows.Packs, all = append(rows.Packs,
			packstore.NewRow(p, packstore.BuiltInPack, packstore.Installed{})), append(all, p)
	}
	known := b.known.Load()
	loaded, found := packstore.LoadInstalled(b.home, known)
	for _, p := range loaded {
		rows.Packs, all = append(rows.Packs,
			packstore.NewRow(p, sourceOf(known.Installed[p.Name]), known.Installed[p.Name])), append(all, p)
	}
	for _, f := range found {
		if in := known.Installed[f.Pack]; f.Pack != "" {
			rows.Packs, all = append(rows.Packs,
				packstore.Row{Name: in.Name, Version: in.Version, Source: sourceOf(in), Digest: in.Digest, Key: in.Key,
					Finding: f.Text}), append(all, &pack.Pack{Name: in.Name})
		}
	}
	rows.Findings = append([]packstore.Finding{}, found...)
	return rows, all, nil
}

func sourceOf(in packstore.Installed) string {
	if in.Dev {
		return packstore.DevPack
	}
	return packstore.SignedPack
}

// listPacks returns all packs, or those that contain all the words.
func (b *packStore) listPacks(_ context.Context, r apitype.PackSearch, _ gateway.Caller) (apitype.PackRows, error) {
	rows, _, err := b.packRows()
	words := strings.Fields(r.Words)
	rows.Packs = slices.DeleteFunc(rows.Packs, func(p packstore.Row) bool { return !p.Says(words) })
	return rows, err
}

func (b *packStore) showPack(_ context.Context, r apitype.PackName,
	_ gateway.Caller) (out apitype.PackShown, err error) {
	rows, all, err := b.packRows()
	if err != nil {
		return out, err
	}
	i := slices.IndexFunc(all, func(p *pack.Pack) bool { return p.Name == r.Name })
	if i < 0 {
		return out, bailey.NotFound.Errorf("run bailey pack list", "there is no pack %q", r.Name)
	}
	out = apitype.PackShown{Row: rows.Packs[i], Tools: []apitype.Capability{}}
	for _, m := range all[i].Capabilities {
		out.Tools = append(out.Tools, newCapability(m, true))
	}
	return out, nil
}

// openCatalog returns the built-in packs and the packs of the home. A pack that conflicts with the others is left out.
func openCatalog(home localapi.Home, l packstore.State) (*pack.Catalog, []packstore.Finding, error) {
	c, err := packstore.BuiltIn()
	if err != nil {
		return nil, nil, err
	}
	loaded, found := packstore.LoadInstalled(home, l)
	for _, p := range loaded {
		more, err := c.With(p)
		if err != nil {
			found = append(found,
				packstore.Finding{Pack: p.Name,
					Text: fmt.Sprintf("%s %s is installed and NOT LOADED: %v", p.Name, p.Version,
						err), Cure: "run bailey pack uninstall " + p.Name})
			continue
		}
		c = more
	}
	return c, found, nil
}

// InstalledCatalog returns the packs that a gateway of this home would use, without a gateway. If one is running, it may
// write to the ledger meanwhile; its last events may then be missing.
func InstalledCatalog(home localapi.Home) (*pack.Catalog, []packstore.Finding, error) {
	var known packstore.State
	// Most homes have no packs of their own, and need not read the ledger for it.
	if len(packstore.NamesIn(filepath.Join(string(home), packstore.DirName))) > 0 && ledger.Begun(home.Ledger()) {
		l, err := Replayed(home)
		if err != nil {
			return nil, nil, err
		}
		known = l.Packs
	}
	return openCatalog(home, known)
}

// packOnboard is the operator command: it writes the ledger entry before the tool runs.
func (s *Server) packOnboard(ctx context.Context, asked apitype.OnboardQuery,
	from gateway.Caller) (none localapi.None, err error) {
	if asked.Tool == "" || asked.PlanDigest == "" {
		return none, bailey.Invalid.New("an onboarding needs a tool and a plan", "")
	}
	asked.Operator, asked.Person = from.Operator, from.Principal.Person
	cage := s.hidePlan(from.Session.ID, asked.Cage, asked.Plan)
	event, err := s.redactValue(from.Session.ID, asked.OnboardEvent)
	if err != nil {
		return none, err
	}
	return none, s.ledger.NoteCaged(ctx, apitype.PackOnboardEvent, event, &cage)
}
