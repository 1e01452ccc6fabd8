package pack

import (
	"slices"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// maxRoutes limits the routes of a capability to a daemon.
const maxRoutes = 32

// API returns the daemon and the requests that the tool may send, or nil. A manifest does not contain the path of the
// socket.
func (m *Capability) API() *bailey.API {
	api := m.spec.Sandbox.API
	if api == nil {
		return nil
	}
	return &bailey.API{Socket: api.Socket, Allow: slices.Clone(api.Allow)}
}

// apiField reads network.api.
func (r *reader) apiField(s *sandbox, at *deferredNodes) func(ast.Node) {
	return func(n ast.Node) {
		api := &bailey.API{}
		seen := r.readFields(n, "api", map[string]func(ast.Node){
			"socket": r.socketField(&api.Socket),
			"allow":  r.routesField(&api.Allow),
		})
		r.requireKeys(n, "api", seen, "socket", "allow")
		at.api, s.API = n, api
	}
}

func (r *reader) socketField(p *string) func(ast.Node) {
	return func(n ast.Node) {
		words := map[string]string{}
		for _, d := range bailey.Daemons() {
			words[d] = d
		}
		choiceField(r.source, "socket", words, p)(n)
	}
}

// routesField reads the allowed requests and refuses duplicates.
func (r *reader) routesField(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		items := r.listItems(n, "allow")
		if len(items) == 0 || len(items) > maxRoutes {
			r.addFault(tokenOf(n), "allow wants 1 to %d routes, found %d", maxRoutes, len(items))
			return
		}
		for _, item := range items {
			var v string
			before := len(r.faults)
			if r.textField("allow", &v)(item); len(r.faults) > before {
				continue
			}
			switch _, err := bailey.ParseRoute(v); {
			case err != nil:
				r.addFault(tokenOf(item), "%s; %s", err, bailey.HintOf(err))
			case slices.Contains(*p, v):
				r.addFault(tokenOf(item), "allow names %q twice", clipText(v))
			default:
				*p = append(*p, v)
			}
		}
	}
}

// checkDaemonAPI checks that network.api does not conflict with the rest of the manifest. A tool that may create Unix sockets
// must not see a directory of the caller, because another socket could be in it.
func (r *reader) checkDaemonAPI(n ast.Node, m *manifest, s *schema) []egressEntry {
	if n == nil {
		return nil
	}
	path := func(name string) bool { return pathInput(s, m, name) }
	switch b := &m.Sandbox; {
	case !r.builtin:
		r.addFault(tokenOf(n),
			"api is for built-in packs: whoever speaks to a daemon has what it lets through of its powers")
	case m.Isolation != Jail:
		r.addFault(tokenOf(n), "isolation %s contradicts api: only a cage of ours has a socket that is served outside",
			m.Isolation)
	case m.SideEffect != ReadOnly:
		r.addFault(tokenOf(n), "sideEffectClass %s contradicts api: a daemon is asked, and tells", m.SideEffect)
	case len(b.Egress) > 0:
		r.addFault(tokenOf(n), "egress contradicts api: what a daemon tells would have a way out")
	case slices.ContainsFunc(s.names, path) || len(b.Read) > 0:
		r.addFault(tokenOf(n), "path inputs and fs.ro contradict api: a socket could lie there")
	default:
		return []egressEntry{{place: m.Sandbox.API.String()}}
	}
	return nil
}
