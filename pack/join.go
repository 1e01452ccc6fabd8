package pack

import (
	"maps"
	"strings"

	"bailey"
)

// With returns a catalog that has the capabilities of packs as well. One whose name or ids are taken refuses all of them.
func (c *Catalog) With(packs ...*Pack) (*Catalog, error) {
	more := &Catalog{byID: maps.Clone(c.byID)}
	tools, names := map[string]bailey.CapabilityID{}, map[string]bool{}
	for _, m := range c.byID {
		tools[strings.ReplaceAll(string(m.ID), ".", "_")] = m.ID
		names[m.Pack] = true
	}
	for _, p := range packs {
		if names[p.Name] {
			return nil, conflict("there is a pack %s already", p.Name)
		}
		names[p.Name] = true
		if err := more.add(p, tools); err != nil {
			return nil, err
		}
	}
	more.ids = keys(more.byID)
	return more, nil
}

// Has tells whether a capability of the catalog is of that pack.
func (c *Catalog) Has(pack string) bool {
	for _, m := range c.byID {
		if m.Pack == pack {
			return true
		}
	}
	return false
}
