package server

import (
	"cmp"
	"net/url"
	"slices"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/settings"
	"bailey/internal/socketproxy"
	"bailey/pack"
)

// EgressPlanner creates the network access of cages, according to the settings at the time of the call.
type EgressPlanner struct {
	Settings func() settings.Network
	World    egress.WayConfig // names, routes and certificate authorities; the zero value uses those of this machine
}

// Plan combines the places of the manifest with the settings. A place that the settings do not open is refused before
// the policy decides: it would be refused later anyway, and here the error can name the call.
func (w EgressPlanner) Plan(m *pack.Capability, places []string) (*bailey.Network, error) {
	if m.Isolation != pack.Jail { // other kinds of isolation have no cage of Bailey
		return nil, nil
	}
	all := w.Settings().For(string(m.ID))
	if api := m.API(); api != nil {
		return w.planDaemon(m, *api, all)
	}
	for _, place := range places {
		e, err := bailey.ParseEndpoint(place)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, nil
	}
	n, err := w.planFor(all)
	if err != nil {
		return nil, bailey.Denied.New(string(m.ID)+" cannot have its network: "+err.Error(), bailey.HintOf(err))
	}
	return n, nil
}

// planFor plans a network for the given places, with the flags of the settings.
func (w EgressPlanner) planFor(places []bailey.Endpoint) (*bailey.Network, error) {
	said := w.Settings()
	var all []bailey.Endpoint
	for _, e := range places {
		if e = said.With(e); !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return egress.Plan(all)
}

// planDaemon plans the network of a tool that uses a daemon, at its usual socket or the configured one.
func (w EgressPlanner) planDaemon(m *pack.Capability, api bailey.API, more []bailey.Endpoint) (*bailey.Network, error) {
	if len(more) > 0 {
		return nil, bailey.Denied.Errorf("remove it from for, under network, endpoints, in settings.yaml",
			"%s uses %s and, by the settings, would reach %s: data from a daemon must not leave the jail", m.ID, api.Socket, more[0])
	}
	api.Path = daemonPath(api, w.Settings())
	return socketproxy.Plan(api), nil
}

func daemonPath(api bailey.API, said settings.Network) string {
	return cmp.Or(said.Sockets[api.Socket], socketproxy.Usual(api.Socket))
}

// Open creates the outside end, with the configured proxy and the certificate authorities of this machine.
func (w EgressPlanner) Open(n *bailey.Network, inject []bailey.Injection) (bailey.Way, error) {
	if n.API != nil {
		return socketproxy.New(socketproxy.Config{API: *n.API})
	}
	c := w.World
	c.Network, c.Inject = n, inject
	said := w.Settings()
	if c.ByName = said.ByName; said.Upstream != "" {
		u, err := url.Parse(said.Upstream)
		if err != nil {
			return nil, err
		}
		c.Upstream = u
	}
	if c.Authorities == nil {
		var err error
		if c.Authorities, err = egress.Authorities(); err != nil {
			return nil, err
		}
	}
	return egress.NewWay(c)
}

// networkSettings returns the network settings, combined with the profiles in use.
func (s *Server) networkSettings() settings.Network {
	return s.shelf.profiles.InForce().Network(s.settings.Applied().Network)
}
