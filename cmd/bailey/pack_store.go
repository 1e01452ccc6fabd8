package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/ledger"
	"bailey/internal/safefile"
	"bailey/internal/wire"
	"bailey/pack"
	"bailey/packs"
)

// The packs of a home. The ledger decides which packs and keys are valid; files that do not match it become findings. A
// bundle is stored as a single file, is never unpacked, and is verified at every load. A key is valid only if both the
// ledger and its file contain it.
//
//	packs/NAME/DIGEST.baileypack     the bundle with that digest
//	trusted-pack-keys/NAME.pub       a key whose bundles may be installed and loaded

// Kinds of ledger entries for packs. The data of the first two is a [trustedKey], of the others an [installedPack].
const (
	packTrustEvent     = "pack.trust"
	packUntrustEvent   = "pack.untrust"
	packInstallEvent   = "pack.install"
	packUninstallEvent = "pack.uninstall"
	packPublishEvent   = "pack.publish" // has no effect on this home, not in the lore
)

const packsName, packKeysName = "packs", "trusted-pack-keys"

// trustedKey is an author's key that an operator trusts.
type trustedKey struct {
	Name     string        `json:"name"`
	Key      string        `json:"key"` // the line of the key file
	At       time.Time     `json:"at,omitzero"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// installedPack is a pack that an operator installed.
type installedPack struct {
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	Digest    string        `json:"digest"`
	Key       string        `json:"key,omitempty"` // the ID of the key that signed it
	Dev       bool          `json:"dev,omitempty"`
	Downgrade bool          `json:"downgrade,omitempty"` // an operator allowed an older version
	Dir       string        `json:"dir,omitempty"`       // the directory to which it was published
	At        time.Time     `json:"at,omitzero"`
	Operator  wire.Operator `json:"operator,omitempty"`
	Person    string        `json:"person,omitempty"`
}

// lorePacks is the state of packs and keys according to the ledger, by name.
type lorePacks struct {
	Keys      map[string]trustedKey    `json:"keys,omitempty"`
	Installed map[string]installedPack `json:"installed,omitempty"`
	Highest   map[string]installedPack `json:"highest,omitempty"` // the newest signed version that was ever installed
}

func (l *lorePacks) trust(k trustedKey)        { put(&l.Keys, k.Name, k) }
func (l *lorePacks) untrust(k trustedKey)      { delete(l.Keys, k.Name) }
func (l *lorePacks) uninstall(p installedPack) { delete(l.Installed, p.Name) }

func (l *lorePacks) install(p installedPack) {
	put(&l.Installed, p.Name, p)
	if top, ok := l.Highest[p.Name]; !p.Dev && (!ok || pack.CompareVersions(p.Version, top.Version) > 0) {
		put(&l.Highest, p.Name, p)
	}
}

func put[T any](m *map[string]T, name string, v T) {
	if *m == nil {
		*m = map[string]T{}
	}
	(*m)[name] = v
}

func (l lorePacks) clone() lorePacks {
	return lorePacks{maps.Clone(l.Keys), maps.Clone(l.Installed), maps.Clone(l.Highest)}
}

// packFinding is a problem with packs or keys that an operator should check.
type packFinding struct {
	Pack string `json:"pack,omitempty"` // installed, but not loaded
	Key  string `json:"key,omitempty"`  // trusted, but not used
	File string `json:"file,omitempty"`
	Text string `json:"text"`
	Cure string `json:"cure"`
}

func packDir(home wire.Home, name string) string {
	return filepath.Join(string(home), packsName, name)
}

func packFile(home wire.Home, p installedPack) string {
	return filepath.Join(packDir(home, p.Name), p.Digest+".baileypack")
}

func packKeyFile(home wire.Home, name string) string {
	return filepath.Join(string(home), packKeysName, name+".pub")
}

// installedPacks loads the installed packs and verifies each bundle. Files that differ from the ledger become findings,
// and packs that cannot be loaded are left out.
func installedPacks(home wire.Home, l lorePacks) (loaded []*pack.Pack, found []packFinding) {
	keys, found := packKeys(home, l)
	for _, name := range slices.Sorted(maps.Keys(l.Installed)) {
		in := l.Installed[name]
		p, err := loadPack(home, in, keys)
		if err != nil {
			found = append(found, packFinding{Pack: name, File: packFile(home, in), Text: fmt.Sprintf("%s %s is installed and NOT LOADED: %v", name, in.Version, err),
				Cure: "bailey pack install BUNDLE installs it anew; bailey pack uninstall " + name + " takes it out"})
			continue
		}
		loaded = append(loaded, p)
	}
	return loaded, append(found, strayPacks(home, l)...)
}

func loadPack(home wire.Home, in installedPack, keys []pack.Key) (*pack.Pack, error) {
	data, err := readBundle(packFile(home, in))
	if err != nil {
		return nil, err
	}
	v, err := openPack(data, in.Dev, keys)
	switch {
	case err != nil:
		return nil, err
	case v.Name != in.Name || v.Version != in.Version || v.Digest != in.Digest || v.Key != in.Key:
		return nil, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the file is %s %s, bundle %.12s, and another was installed", v.Name, v.Version, v.Digest)}
	}
	return v.Pack(in.Name + "/" + pack.ManifestName)
}

func readBundle(file string) ([]byte, error) {
	data, err := safefile.ReadPlain(file, pack.MaxBundle)
	if err == nil && data == nil {
		err = &bailey.Error{Kind: bailey.NotFound, Message: "there is no file " + file, Hint: "bailey pack bundle DIR makes a bundle"}
	}
	return data, err
}

// openPack verifies a bundle. A dev bundle has no signature: the caller must compare its digest.
func openPack(data []byte, dev bool, keys []pack.Key) (*pack.Verified, error) {
	if !dev {
		return pack.Verify(data, keys)
	}
	b, err := pack.ReadBundle(data)
	if err != nil {
		return nil, err
	}
	return b.Dev(), nil
}

// packKeys returns the keys on which ledger and files agree.
func packKeys(home wire.Home, l lorePacks) (keys []pack.Key, found []packFinding) {
	for _, name := range slices.Sorted(maps.Keys(l.Keys)) {
		file := packKeyFile(home, name)
		text, err := safefile.ReadPlain(file, 4<<10)
		k, bad := pack.ParseKey(l.Keys[name].Key)
		switch {
		case err == nil && bad == nil && string(text) == l.Keys[name].Key+"\n":
			keys = append(keys, k)
			continue
		case err == nil && text == nil:
			err = fmt.Errorf("%s is gone", file)
		case err == nil:
			err = fmt.Errorf("%s is not the key that was trusted", file)
		}
		found = append(found, packFinding{Key: name, File: file, Text: fmt.Sprintf("the key %s is trusted and NOT USED: %v", name, err),
			Cure: "bailey pack untrust " + name + ", then bailey pack trust FILE with the key as its author gave it to you"})
	}
	for _, e := range namesIn(filepath.Join(string(home), packKeysName)) {
		name, pub := strings.CutSuffix(e, ".pub")
		// an interrupted write
		if _, ok := l.Keys[name]; ok && pub || strings.HasPrefix(e, ".") {
			continue
		}
		file := filepath.Join(string(home), packKeysName, e)
		found = append(found, packFinding{File: file, Text: file + " was put there by hand, and is not trusted", Cure: "bailey pack trust " + file + " if you mean it, else remove it"})
	}
	return keys, found
}

// strayPacks returns the files in the packs directory that the ledger does not know.
func strayPacks(home wire.Home, l lorePacks) (found []packFinding) {
	dir := filepath.Join(string(home), packsName)
	stray := func(file string) {
		found = append(found, packFinding{File: file, Text: file + " was put there by hand, and is not loaded", Cure: "bailey pack install " + file + " if you mean it, else remove it"})
	}
	for _, name := range namesIn(dir) {
		in, ok := l.Installed[name]
		if !ok {
			stray(filepath.Join(dir, name))
			continue
		}
		for _, e := range namesIn(filepath.Join(dir, name)) {
			if file := filepath.Join(dir, name, e); file != packFile(home, in) && !strings.HasPrefix(e, ".") {
				stray(file)
			}
		}
	}
	return found
}

// namesIn returns the names in a directory, or nil if it cannot be read.
func namesIn(dir string) (names []string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// builtIn loads the packs that are part of this program. They are loaded once, because each installation needs them.
var builtIn = sync.OnceValues(func() (*pack.Catalog, error) { return pack.LoadBuiltin(packs.FS) })

// openCatalog returns the built-in packs and the packs of the home. A pack that conflicts with the others is left out.
func openCatalog(home wire.Home, l lorePacks) (*pack.Catalog, []packFinding, error) {
	c, err := builtIn()
	if err != nil {
		return nil, nil, err
	}
	loaded, found := installedPacks(home, l)
	for _, p := range loaded {
		more, err := c.With(p)
		if err != nil {
			found = append(found, packFinding{Pack: p.Name, Text: fmt.Sprintf("%s %s is installed and NOT LOADED: %v", p.Name, p.Version, err), Cure: "bailey pack uninstall " + p.Name})
			continue
		}
		c = more
	}
	return c, found, nil
}

// examinePacks returns the doctor's findings about packs and trusted keys that differ from the ledger. A pack that
// cannot be loaded has the state missing, because its calls fail.
func examinePacks(home wire.Home, s status) (list []finding) {
	const name = "packs"
	found := s.Packed
	if !s.Running && ledger.Begun(home.Ledger()) {
		known, err := recalled(home)
		if err != nil {
			return []finding{wrong(name, missing, "read what is installed", err)}
		}
		_, found = installedPacks(home, known.Packs)
	}
	for _, f := range found {
		state := warning
		if f.Pack != "" {
			state = missing
		}
		list = append(list, finding{name, state, f.Text, f.Cure})
	}
	return list
}
