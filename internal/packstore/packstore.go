// Package packstore reads the packs of a home from its files: the built-in packs, the installed ones and the keys that
// operators trust. Which of them are installed is recorded in the ledger, and is passed in as [State].
package packstore

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
	"bailey/internal/localapi"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/pack"
	"bailey/pack/clixpack"
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
	PackTrustEvent     = "pack.trust"
	PackUntrustEvent   = "pack.untrust"
	PackInstallEvent   = "pack.install"
	PackUninstallEvent = "pack.uninstall"
	PackPublishEvent   = "pack.publish" // has no effect on this home, not in the lore
)

const DirName, KeysDirName = "packs", "trusted-pack-keys"

// TrustedKey is an author's key that an operator trusts.
type TrustedKey struct {
	Name     string            `json:"name"`
	Key      string            `json:"key"` // the line of the key file
	At       time.Time         `json:"at,omitzero"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// Installed is a pack that an operator installed.
type Installed struct {
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Digest    string            `json:"digest"`
	Key       string            `json:"key,omitempty"` // the ID of the key that signed it
	Dev       bool              `json:"dev,omitempty"`
	Downgrade bool              `json:"downgrade,omitempty"` // an operator allowed an older version
	Dir       string            `json:"dir,omitempty"`       // the directory to which it was published
	At        time.Time         `json:"at,omitzero"`
	Operator  localapi.Operator `json:"operator,omitempty"`
	Person    string            `json:"person,omitempty"`
}

// State is the state of packs and keys according to the ledger, by name.
type State struct {
	Keys      map[string]TrustedKey `json:"keys,omitempty"`
	Installed map[string]Installed  `json:"installed,omitempty"`
	Highest   map[string]Installed  `json:"highest,omitempty"` // the newest signed version that was ever installed
}

// Trust adds a key, or replaces the one with the same name.
func (l *State) Trust(k TrustedKey) { putEntry(&l.Keys, k.Name, k) }

// Untrust removes the key with the name of k, if there is one.
func (l *State) Untrust(k TrustedKey) { delete(l.Keys, k.Name) }

// Uninstall removes the pack with the name of p, if it is installed. Highest does not change.
func (l *State) Uninstall(p Installed) { delete(l.Installed, p.Name) }

// Install adds a pack, or replaces the one with the same name. A newer signed version also becomes the highest one.
func (l *State) Install(p Installed) {
	putEntry(&l.Installed, p.Name, p)
	if top, ok := l.Highest[p.Name]; !p.Dev && (!ok || pack.CompareVersions(p.Version, top.Version) > 0) {
		putEntry(&l.Highest, p.Name, p)
	}
}

func putEntry[T any](m *map[string]T, name string, v T) {
	if *m == nil {
		*m = map[string]T{}
	}
	(*m)[name] = v
}

// Clone returns a copy whose maps can be changed independently.
func (l State) Clone() State {
	return State{maps.Clone(l.Keys), maps.Clone(l.Installed), maps.Clone(l.Highest)}
}

// Finding is a problem with packs or keys that an operator should check.
type Finding struct {
	Pack string `json:"pack,omitempty"` // installed, but not loaded
	Key  string `json:"key,omitempty"`  // trusted, but not used
	File string `json:"file,omitempty"`
	Text string `json:"text"`
	Cure string `json:"cure"`
}

// Dir returns the directory in the home that holds the bundle of the named pack.
func Dir(home localapi.Home, name string) string {
	return filepath.Join(string(home), DirName, name)
}

// File returns the path in the home of the bundle of p.
func File(home localapi.Home, p Installed) string {
	return filepath.Join(Dir(home, p.Name), p.Digest+".baileypack")
}

// KeyFile returns the path in the home of the trusted key with that name.
func KeyFile(home localapi.Home, name string) string {
	return filepath.Join(string(home), KeysDirName, name+".pub")
}

// LoadInstalled loads the installed packs and verifies each bundle. Files that differ from the ledger become findings,
// and packs that cannot be loaded are left out.
func LoadInstalled(home localapi.Home, l State) (loaded []*pack.Pack, found []Finding) {
	keys, found := Keys(home, l)
	for _, name := range slices.Sorted(maps.Keys(l.Installed)) {
		in := l.Installed[name]
		p, err := Load(home, in, keys)
		if err != nil {
			found = append(found,
				Finding{Pack: name, File: File(home, in),
					Text: fmt.Sprintf("%s %s is installed and NOT LOADED: %v", name, in.Version, err),
					Cure: "run bailey pack install BUNDLE to install it again; bailey pack uninstall " + name +
						" to remove it"})
			continue
		}
		loaded = append(loaded, p)
	}
	return loaded, append(found, strayPacks(home, l)...)
}

// Load reads and verifies the bundle of an installed pack. It returns an error of the kind Denied if the file is not
// the bundle that was installed.
func Load(home localapi.Home, in Installed, keys []pack.Key) (*pack.Pack, error) {
	data, err := ReadBundle(File(home, in))
	if err != nil {
		return nil, err
	}
	v, err := Open(data, in.Dev, keys)
	switch {
	case err != nil:
		return nil, err
	case v.Name != in.Name || v.Version != in.Version || v.Digest != in.Digest || v.Key != in.Key:
		return nil, bailey.Denied.Errorf("",
			"the file is %s %s, bundle %.12s, but another was installed", v.Name, v.Version, v.Digest)
	}
	return v.Pack(in.Name + "/" + pack.ManifestName)
}

// ReadBundle reads a bundle file without verifying it. The error is of the kind NotFound if there is no file, else
// Invalid.
func ReadBundle(file string) ([]byte, error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return nil, bailey.Invalid.New(file+" is a directory, and a bundle is a file",
			"use bailey pack install --dev DIR for an unsigned pack of your own, or bailey pack bundle DIR and pack sign")
	}
	data, err := safefile.ReadPlain(file, pack.MaxBundle)
	if err == nil && data == nil {
		err = bailey.NotFound.New("there is no file "+file, "run bailey pack bundle DIR to create a bundle")
	}
	return data, err
}

// Open verifies a bundle. A dev bundle has no signature: the caller must compare its digest.
func Open(data []byte, dev bool, keys []pack.Key) (*pack.Verified, error) {
	if !dev {
		return pack.Verify(data, keys)
	}
	b, err := pack.ReadBundle(data)
	if err != nil {
		return nil, err
	}
	return b.Dev(), nil
}

// Keys returns the keys on which ledger and files agree.
func Keys(home localapi.Home, l State) (keys []pack.Key, found []Finding) {
	for _, name := range slices.Sorted(maps.Keys(l.Keys)) {
		file := KeyFile(home, name)
		text, err := safefile.ReadPlain(file, 4<<10)
		k, bad := pack.ParseKey(l.Keys[name].Key)
		switch {
		case err == nil && bad == nil && string(text) == l.Keys[name].Key+"\n":
			keys = append(keys, k)
			continue
		case err == nil && text == nil:
			err = fmt.Errorf("%s was removed", file)
		case err == nil:
			err = fmt.Errorf("%s is not the key that was trusted", file)
		}
		found = append(found, Finding{Key: name, File: file, Text: fmt.Sprintf("the key %s is trusted and NOT USED: %v", name, err),
			Cure: "run bailey pack untrust " + name +
				", then bailey pack trust FILE with the key as its author gave it to you"})
	}
	for _, e := range NamesIn(filepath.Join(string(home), KeysDirName)) {
		name, pub := strings.CutSuffix(e, ".pub")
		// an interrupted write
		if _, ok := l.Keys[name]; ok && pub || strings.HasPrefix(e, ".") {
			continue
		}
		file := filepath.Join(string(home), KeysDirName, e)
		found = append(found, Finding{File: file, Text: file + " was put there by hand, and is not trusted", Cure: "run bailey pack trust " + file + " to use it, or remove it"})
	}
	return keys, found
}

// strayPacks returns the files in the packs directory that the ledger does not know.
func strayPacks(home localapi.Home, l State) (found []Finding) {
	dir := filepath.Join(string(home), DirName)
	stray := func(file string) {
		found = append(found, Finding{File: file, Text: file + " was put there by hand, and is not loaded", Cure: "run bailey pack install " + file + " to use it, or remove it"})
	}
	for _, name := range NamesIn(dir) {
		in, ok := l.Installed[name]
		if !ok {
			stray(filepath.Join(dir, name))
			continue
		}
		for _, e := range NamesIn(filepath.Join(dir, name)) {
			if file := filepath.Join(dir, name, e); file != File(home, in) && !strings.HasPrefix(e, ".") {
				stray(file)
			}
		}
	}
	return found
}

// NamesIn returns the names in a directory, or nil if it cannot be read.
func NamesIn(dir string) (names []string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// BuiltIn loads the packs that are part of this program. They are loaded once, because each installation needs them.
var BuiltIn = sync.OnceValues(func() (*pack.Catalog, error) { return pack.LoadBuiltin(packs.FS) })

// ReadAt reads a bundle or, if dev is set, the current files of a directory.
func ReadAt(path string, dev bool, keys []pack.Key) (v *pack.Verified, data []byte, err error) {
	if dev {
		data, err = BundleOf(path)
	} else {
		data, err = ReadBundle(path)
	}
	if err == nil {
		v, err = Open(data, dev, keys)
	}
	return v, data, err
}

// BundleOf makes a bundle from a directory of a pack, in our layout or in that of clix. Symlinks cannot lead out of the
// directory.
func BundleOf(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, dir+" is not a readable directory",
			"name the directory of pack.yaml")
	}
	defer root.Close()
	files, err := pack.ReadFiles(root.FS())
	if err == nil && clixpack.Is(files) {
		files, err = translateClix(files)
	}
	if err != nil {
		return nil, err
	}
	return pack.BundleFiles(files)
}

// Notes returns the remarks about a pack that was translated from another layout.
func Notes(v *pack.Verified) []string { return clixpack.Notes(v.Files) }

// translateClix translates the layout of clix.
func translateClix(files []pack.File) ([]pack.File, error) {
	builtIn, err := BuiltIn()
	if err != nil {
		return nil, err
	}
	return clixpack.Translate(files, func(name string) bool { return builtIn.Pack(name) != nil })
}

// ChangeLines prints changes in full: a person must not confirm text without seeing it.
func ChangeLines(changes []pack.Change) string {
	var b strings.Builder
	for _, c := range changes {
		terminal.WriteLine(&b, '+', fmt.Sprintf("%s %s: %s", c.Capability, c.What, c.Text))
	}
	return b.String()
}

// Sources of a pack.
const (
	BuiltInPack = "built-in"
	SignedPack  = "installed"
	DevPack     = "dev"
	BundledPack = "bundle" // a bundle file that is not installed
)

// Row is a pack in a list.
type Row struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Description  string `json:"description"`
	Author       string `json:"author,omitempty"`
	License      string `json:"license,omitempty"`
	Homepage     string `json:"homepage,omitempty"`
	Source       string `json:"source"`
	Digest       string `json:"digest,omitempty"` // of the bundle
	Key          string `json:"key,omitempty"`
	File         string `json:"file,omitempty"` // of a bundle that is not installed
	Capabilities int    `json:"capabilities"`
	Finding      string `json:"finding,omitempty"` // why it is not loaded

	words string // its searchable text, in lower case
}

// NewRow returns the row of a pack. Only the digest and the key of in are used.
func NewRow(p *pack.Pack, source string, in Installed) Row {
	words := []string{p.Name, p.Description}
	for _, c := range p.Capabilities {
		words = append(words, string(c.ID), c.Description)
	}
	return Row{Name: p.Name, Version: p.Version, Description: p.Description, Author: p.Author, License: p.License,
		Homepage: p.Homepage, Source: source, Digest: in.Digest,
		Key:          in.Key,
		Capabilities: len(p.Capabilities), words: strings.ToLower(strings.Join(words, "\n"))}
}

// Says reports whether the name, description or capabilities of the pack contain each of the words, ignoring case. The
// row must be made by [NewRow].
func (p Row) Says(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.words, strings.ToLower(w)) })
}
