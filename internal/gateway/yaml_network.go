package gateway

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/egress"
)

// Network is how cages with a network get out of this machine. Its zero value is: to public addresses, over TLS that names
// its host, by no other proxy, and only where a manifest says.
type Network struct {
	Upstream  string  `json:"upstream,omitempty"` // http://host:port, the host's own proxy
	ByName    bool    `json:"byName,omitempty"`   // that proxy resolves names
	Endpoints []Reach `json:"endpoints,omitempty"`
	// Sockets are where daemons listen that do not do so in their usual places, by their names.
	Sockets map[string]string `json:"sockets,omitempty"`
}

// Reach is a place with its flags, which hold wherever a manifest names it, and who may reach it although none does.
type Reach struct {
	bailey.Endpoint
	For []string `json:"for,omitempty"` // capabilities, with * for any part of one; or [ForWrap]
}

// ForWrap is an agent inside the wall, which no pattern means.
const ForWrap = "wrap"

// For returns the places that a capability, or [ForWrap], may reach although no manifest names them, with their flags.
func (n Network) For(who string) (list []bailey.Endpoint) {
	for _, r := range n.Endpoints {
		if slices.ContainsFunc(r.For, func(pattern string) bool { return means(pattern, who) }) {
			list = append(list, r.Endpoint)
		}
	}
	return list
}

// With returns a place with the flags that were set for it.
func (n Network) With(e bailey.Endpoint) bailey.Endpoint {
	for _, r := range n.Endpoints {
		if r.Host == e.Host && r.Port == e.Port {
			return r.Endpoint
		}
	}
	return e
}

func means(pattern, who string) bool {
	if who == ForWrap || pattern == ForWrap {
		return pattern == who
	}
	ok, err := path.Match(pattern, who)
	return err == nil && ok
}

// Bounds of the key network: an entry of the ledger holds it all.
const (
	maxEndpoints = 64
	maxFor       = 16
	maxWord      = 300 // bytes
)

func networkOf(n ast.Node) (net Network, err error) {
	err = each(n, "part of network", keys{
		"upstream":  func(n ast.Node) (err error) { net.Upstream, err = upstreamOf(n); return err },
		"byName":    truth("byName", &net.ByName),
		"endpoints": func(n ast.Node) (err error) { net.Endpoints, err = endpointsOf(n); return err },
		"sockets":   func(n ast.Node) (err error) { net.Sockets, err = socketsOf(n); return err },
	})
	if err == nil && net.ByName && net.Upstream == "" {
		err = fault(n, "byName wants upstream: it is that proxy which would resolve")
	}
	return net, err
}

// upstreamOf reads the host's own proxy. One that wants a password has no place in a file that the ledger records.
func upstreamOf(n ast.Node) (string, error) {
	text, err := wordOf(n, maxWord)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fault(n, "upstream is http://host:port, without a user")
	}
	e, err := bailey.ParseEndpoint(u.Host)
	if err != nil || strings.HasPrefix(e.Host, "*") {
		return "", fault(n, "upstream is http://host:port, without a user")
	}
	return "http://" + e.String(), nil
}

func endpointsOf(n ast.Node) (list []Reach, err error) {
	err = items(n, "endpoints wants a list of places", func(item ast.Node) error {
		r, err := reachOf(item)
		switch {
		case err != nil:
			return err
		case len(list) == maxEndpoints:
			return fault(item, "over the %d endpoints allowed", maxEndpoints)
		case slices.ContainsFunc(list, func(o Reach) bool { return o.String() == r.String() }):
			return fault(item, "%s is named twice", r)
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// reachOf reads one place. What could never be reached does not load.
func reachOf(n ast.Node) (r Reach, err error) {
	var e bailey.Endpoint
	err = each(n, "part of an endpoint", keys{
		"to": func(n ast.Node) error {
			text, err := wordOf(n, maxWord)
			if err != nil {
				return err
			}
			place, err := bailey.ParseEndpoint(text)
			if err != nil {
				return fault(n, "%s; %s", err, bailey.HintOf(err))
			}
			e.Host, e.Port = place.Host, place.Port
			return nil
		},
		"private": truth("private", &e.Private),
		"plain":   truth("plain", &e.Plain),
		"noSNI":   truth("noSNI", &e.NoSNI),
		"ech":     truth("ech", &e.ECH),
		"inspect": truth("inspect", &e.Inspect),
		"for":     func(n ast.Node) (err error) { r.For, err = whoOf(n); return err },
	})
	if err != nil {
		return r, err
	}
	if e.Host == "" {
		return r, fault(n, "an endpoint wants to, as in git.example.com:443")
	}
	if _, err := egress.NewAllowlist([]bailey.Endpoint{e}); err != nil {
		return r, fault(n, "%s", err)
	}
	r.Endpoint = e
	return r, nil
}

// whoOf reads capabilities, which may hold * and nothing else of a pattern.
func whoOf(n ast.Node) (list []string, err error) {
	err = items(n, "for wants a list of capabilities", func(item ast.Node) error {
		who, err := wordOf(item, maxWord)
		if err == nil && (len(list) == maxFor || slices.Contains(list, who) || strings.Trim(who, "abcdefghijklmnopqrstuvwxyz0123456789._-*") != "") {
			err = fault(item, "for holds names such as http.get, git.* or %s, each once; there are at most %d", ForWrap, maxFor)
		}
		list = append(list, who)
		return err
	})
	return list, err
}

// truth reads true or false.
func truth(what string, p *bool) func(ast.Node) error {
	return func(n ast.Node) error {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return fault(n, "%s is true or false", what)
		}
		*p = b.Value
		return nil
	}
}

// countOf reads a number from 1 to most.
func countOf(what string, most uint64, to *int) func(ast.Node) error {
	return func(n ast.Node) error {
		if i, ok := n.(*ast.IntegerNode); ok {
			if v, ok := i.Value.(uint64); ok && v >= 1 && v <= most {
				*to = int(v)
				return nil
			}
		}
		return fault(n, "%s is a number from 1 to %d", what, most)
	}
}
