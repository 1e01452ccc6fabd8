package pack

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/strictyaml"
)

// Catalog holds the capabilities of all loaded packs. It is immutable and safe for concurrent use.
type Catalog struct {
	ids   []string // sorted
	byID  map[string]*Capability
	packs []*Pack
}

// Load reads every */pack.yaml below fsys. If one of them has a fault, Load returns no catalog.
func Load(fsys fs.FS) (*Catalog, error) { return loadCatalog(fsys, false) }

// LoadBuiltin is like Load, for the packs that are part of this program. Only these may set variables of loaders and
// interpreters, name helper programs and use ids outside their own name.
func LoadBuiltin(fsys fs.FS) (*Catalog, error) { return loadCatalog(fsys, true) }

func loadCatalog(fsys fs.FS, builtin bool) (*Catalog, error) {
	files, err := fs.Glob(fsys, "*/pack.yaml")
	if err != nil {
		return nil, err
	}
	c := &Catalog{byID: map[string]*Capability{}}
	tools, packs := map[string]bailey.CapabilityID{}, map[string]string{}
	for i, parsed := range parseAll(fsys, files, builtin) {
		name, p := files[i], parsed.pack
		if parsed.err != nil {
			return nil, parsed.err
		}
		if first, ok := packs[p.Name]; ok {
			return nil, conflictError("pack %s is in %s and in %s", p.Name, first, name)
		}
		packs[p.Name] = name
		if err := c.addPack(p, tools); err != nil {
			return nil, err
		}
	}
	c.ids = sortedKeys(c.byID)
	return c, nil
}

type parseResult struct {
	pack *Pack
	err  error
}

// parseAll parses the files concurrently, because every start of a gateway waits for it.
func parseAll(fsys fs.FS, files []string, builtin bool) []parseResult {
	all := make([]parseResult, len(files))
	var wait sync.WaitGroup
	for i, name := range files {
		wait.Go(func() {
			data, err := readManifest(fsys, name)
			if err == nil {
				all[i].pack, err = parsePack(name, data, builtin)
			}
			all[i].err = err
		})
	}
	wait.Wait()
	return all
}

// readManifest returns the contents of a manifest, at most one byte more than [parsePack] accepts.
func readManifest(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "", "pack %s cannot be read", path.Dir(name))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, "", "pack %s cannot be read", path.Dir(name))
	}
	return data, nil
}

// addPack adds the capabilities of a pack. Ids must differ even if a front end writes the dot as an underscore.
func (c *Catalog) addPack(p *Pack, tools map[string]bailey.CapabilityID) error {
	for _, m := range p.Capabilities {
		tool := strings.ReplaceAll(string(m.ID), ".", "_")
		if other, ok := tools[tool]; ok {
			return conflictError("capability %s of pack %s and %s cannot both be tool %s", m.ID, p.Name, other, tool)
		}
		tools[tool] = m.ID
		c.byID[string(m.ID)] = m
	}
	c.packs = append(c.packs, p)
	return nil
}

// Packs returns the loaded packs, built-in ones first. The caller must not change the slice.
func (c *Catalog) Packs() []*Pack { return c.packs }

func conflictError(format string, args ...any) error {
	return bailey.Conflict.New(fmt.Sprintf(format, args...), "rename one of them")
}

// All returns the capabilities sorted by id.
func (c *Catalog) All() []*Capability {
	all := make([]*Capability, len(c.ids))
	for i, id := range c.ids {
		all[i] = c.byID[id]
	}
	return all
}

// Lookup returns the capability, or NotFound with similar ids as the hint.
func (c *Catalog) Lookup(id bailey.CapabilityID) (*Capability, error) {
	if m, ok := c.byID[string(id)]; ok {
		return m, nil
	}
	hint := "run bailey capabilities list to show the capabilities"
	if alike := c.similarIDs(string(id)); len(alike) > 0 {
		hint = "close matches: " + strings.Join(alike, ", ")
	}
	return nil, bailey.NotFound.Errorf(hint, "no capability \"%s\"", safeText(string(id)))
}

const maxAlike = 8

// similarIDs returns the ids that the caller may have meant, the closest first: ids of the same pack, and ids within a small
// edit distance. If there are none, it returns the closest ids.
func (c *Catalog) similarIDs(id string) []string {
	id = strictyaml.Clip(id)
	pack, _, _ := strings.Cut(id, ".")
	limit := max(2, len(id)/3)
	var alike []string
	for _, known := range c.ids {
		if strings.HasPrefix(known, pack+".") || strictyaml.EditDistance(id, known) <= limit {
			alike = append(alike, known)
		}
	}
	if len(alike) == 0 {
		alike = slices.Clone(c.ids)
	}
	slices.SortStableFunc(alike, func(a, b string) int { return strictyaml.EditDistance(id, a) - strictyaml.EditDistance(id, b) })
	return alike[:min(len(alike), maxAlike)]
}

// With returns a catalog that also contains the capabilities of packs. If a name or id of one pack is taken, With
// returns an error and adds none.
func (c *Catalog) With(packs ...*Pack) (*Catalog, error) {
	more := &Catalog{byID: maps.Clone(c.byID), packs: slices.Clone(c.packs)}
	tools := map[string]bailey.CapabilityID{}
	for _, m := range c.byID {
		tools[strings.ReplaceAll(string(m.ID), ".", "_")] = m.ID
	}
	for _, p := range packs {
		if more.Pack(p.Name) != nil {
			return nil, conflictError("there is already a pack %s", p.Name)
		}
		if err := more.addPack(p, tools); err != nil {
			return nil, err
		}
	}
	more.ids = sortedKeys(more.byID)
	return more, nil
}

// Pack returns the pack with this name, or nil.
func (c *Catalog) Pack(name string) *Pack {
	for _, p := range c.packs {
		if p.Name == name {
			return p
		}
	}
	return nil
}
