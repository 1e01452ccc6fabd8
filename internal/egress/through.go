package egress

import (
	"maps"
	"net/http"
	"slices"

	"bailey"
)

// isThrough reports whether another proxy makes the requests to the target of the grant.
func (g *grant) isThrough() bool { return g.p.through[g.target.String()] != nil }

// bindThrough opens the TLS of each target that has a transport of its own, and refuses a target that no entry names: its
// requests would pass unseen.
func (p *Proxy) bindThrough(all map[string]http.RoundTripper) error {
	p.through = all
	for _, target := range slices.Sorted(maps.Keys(all)) {
		i := slices.IndexFunc(p.list.entries, func(e *entry) bool { return e.String() == target })
		switch {
		case i < 0:
			return bailey.Invalid.Errorf("name an entry exactly as in the egress list",
				"requests to %s are to pass through another proxy, but no egress entry names it", quoteShort(target))
		case p.list.entries[i].Plain:
			continue
		}
		p.list.entries[i].Inspect = true
	}
	return nil
}
