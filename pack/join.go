package pack

import (
	"maps"
	"slices"
	"strings"

	"bailey"
)

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
			return nil, conflictError("there is a pack %s already", p.Name)
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
