package server

import (
	"fmt"

	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/pack"
)

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
			found = append(found, packstore.Finding{Pack: p.Name, Text: fmt.Sprintf("%s %s is installed and NOT LOADED: %v", p.Name, p.Version, err), Cure: "bailey pack uninstall " + p.Name})
			continue
		}
		c = more
	}
	return c, found, nil
}
