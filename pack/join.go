package pack

import (
	"maps"
	"slices"
	"strings"

	"bailey"
)

// With returns a catalog that has the capabilities of packs as well. One whose name or ids are taken refuses all of them.
func (c *Catalog) With(packs ...*Pack) (*Catalog, error) {
	more := &Catalog{byID: maps.Clone(c.byID), packs: slices.Clone(c.packs)}
	tools := map[string]bailey.CapabilityID{}
	for _, m := range c.byID {
		tools[strings.ReplaceAll(string(m.ID), ".", "_")] = m.ID
	}
	for _, p := range packs {
		if more.Pack(p.Name) != nil {
			return nil, conflict("there is a pack %s already", p.Name)
		}
		if err := more.add(p, tools); err != nil {
			return nil, err
		}
	}
	more.ids = keys(more.byID)
	return more, nil
}

// Pack returns the pack of that name, nil where there is none.
func (c *Catalog) Pack(name string) *Pack {
	for _, p := range c.packs {
		if p.Name == name {
			return p
		}
	}
	return nil
}
