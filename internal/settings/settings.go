// Package settings has the settings and the profiles that an operator applies: their form, and their strict readers, which
// refuse unknown keys with the line and the column.
package settings

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/localapi"
	"bailey/internal/strictjson"
	"bailey/internal/strictyaml"
)

// FileName is the name of the settings file in the home.
const FileName = "settings.yaml"

// Applied holds the settings that an operator applied last. The zero Applied is a home where no settings were ever
// applied.
type Applied struct {
	Digest   string            `json:"digest"` // SHA-256 of the file, hex; "" without a file
	Contents                   // without what only the file has: see [Contents.Recorded]
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

const maxListed = 1000

// AgentRules say which agents the front ends admit.
type AgentRules struct {
	Required bool `json:"required,omitempty"` // calls without a token are refused
	Listed   int  `json:"listed,omitempty"`   // how many tools an agent is shown; it must search for the others. 0: all
	// Asking names the MCP clients that may ask their user. The model of such a client must not be able to answer in
	// the user's place.
	Asking []string `json:"asking,omitempty"`
}

// UnmarshalJSON refuses unknown fields: if it ignored a rule of a newer version, less would be redacted than was
// applied.
func (a *Applied) UnmarshalJSON(data []byte) error {
	type plain Applied
	if err := strictjson.Decode(data, (*plain)(a)); err != nil {
		return fmt.Errorf("the applied settings are of another version of bailey: %w", err)
	}
	return nil
}

// State compares the current file with the applied settings.
type State struct {
	File     string  `json:"file"`
	Digest   string  `json:"digest"`  // of the current file
	Text     string  `json:"text"`    // content of the current file
	Applied  Applied `json:"applied"` // settings in force
	Changed  bool    `json:"changed"` // the file differs from the applied one
	Contents         // of the current file, as they would be recorded
	Fault    string  `json:"fault,omitempty"`   // why the file cannot be used
	Cure     string  `json:"cure,omitempty"`    // hint for a fault in the content
	Dir      string  `json:"dir,omitempty"`     // the given directory, canonical
	Inside   bool    `json:"inside,omitempty"`  // Dir is in one of the file's workspaces
	Refusal  string  `json:"refusal,omitempty"` // why calls get no workspace now
}

// Network says how cages with a network reach other hosts. The zero value allows only the endpoints in a manifest, at
// public addresses, over TLS with a server name, without an upstream proxy.
type Network struct {
	Upstream  string  `json:"upstream,omitempty"` // http://host:port of the host's proxy
	ByName    bool    `json:"byName,omitempty"`   // the upstream proxy resolves names
	Endpoints []Reach `json:"endpoints,omitempty"`
	// Sockets maps the names of daemons to their sockets, if these are not in the usual locations.
	Sockets map[string]string `json:"sockets,omitempty"`
}

// Reach is an endpoint with its flags, which apply even if a manifest names it, and the callers that may reach it
// without a manifest.
type Reach struct {
	bailey.Endpoint
	For []string `json:"for,omitempty"` // capability patterns, for example git.*; or [ForWrap]
}

// ForWrap means an agent inside the agent jail. No pattern matches it.
const ForWrap = "wrap"

// For returns the endpoints, with their flags, that a capability or [ForWrap] may reach although no manifest names
// them.
func (n Network) For(who string) (list []bailey.Endpoint) {
	for _, r := range n.Endpoints {
		if slices.ContainsFunc(r.For, func(pattern string) bool { return matchesPattern(pattern, who) }) {
			list = append(list, r.Endpoint)
		}
	}
	return list
}

// With returns an endpoint with the flags that are set for it.
func (n Network) With(e bailey.Endpoint) bailey.Endpoint {
	for _, r := range n.Endpoints {
		if r.Host == e.Host && r.Port == e.Port {
			return r.Endpoint
		}
	}
	return e
}

func matchesPattern(pattern, who string) bool {
	if who == ForWrap || pattern == ForWrap {
		return pattern == who
	}
	ok, err := path.Match(pattern, who)
	return err == nil && ok
}

// Limits of the setting network. One ledger entry must hold it all.
const (
	maxEndpoints = 64
	maxFor       = 16
	maxWord      = 300 // bytes
)

func (r reader) readNetwork(n ast.Node) (net Network) {
	r.readKeys(n, "part of network", strictyaml.Fields{
		"upstream":  storeIn(&net.Upstream, r.readUpstream),
		"byName":    r.boolField("byName", &net.ByName),
		"endpoints": storeIn(&net.Endpoints, r.readEndpoints),
		"sockets":   storeIn(&net.Sockets, r.readSockets),
	})
	if net.ByName && net.Upstream == "" {
		r.AddFault(n, "byName needs upstream, the proxy that resolves the names")
	}
	return net
}

// readUpstream reads the URL of the host's proxy. A URL with a password is refused, because the ledger records the
// settings.
func (r reader) readUpstream(n ast.Node) string {
	u, err := url.Parse(r.readWord(n, maxWord))
	if err == nil && u.Scheme == "http" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" &&
		u.Fragment == "" {
		if e, err := bailey.ParseEndpoint(u.Host); err == nil && !strings.HasPrefix(e.Host, "*") {
			return "http://" + e.String()
		}
	}
	r.AddFault(n, "upstream must be http://host:port, without a user")
	return ""
}

func (r reader) readEndpoints(n ast.Node) (list []Reach) {
	for _, item := range r.readItems(n, "endpoints must be a list of places") {
		one := r.readReach(item)
		switch {
		case len(list) == maxEndpoints:
			r.AddFault(item, "there are more than %d endpoints", maxEndpoints)
			return list
		case slices.ContainsFunc(list, func(o Reach) bool { return o.String() == one.String() }):
			r.AddFault(item, "%s is named twice", one)
		}
		list = append(list, one)
	}
	return list
}

// readReach reads one endpoint. An endpoint that can never be reached is an error.
func (r reader) readReach(n ast.Node) (one Reach) {
	e := &one.Endpoint
	r.readKeys(n, "part of an endpoint", strictyaml.Fields{
		"to": func(n ast.Node) {
			place, err := bailey.ParseEndpoint(r.readWord(n, maxWord))
			if err != nil {
				r.AddFault(n, "%s; %s", err, bailey.HintOf(err))
			}
			e.Host, e.Port = place.Host, place.Port
		},
		"private": r.boolField("private", &e.Private),
		"plain":   r.boolField("plain", &e.Plain),
		"noSNI":   r.boolField("noSNI", &e.NoSNI),
		"ech":     r.boolField("ech", &e.ECH),
		"inspect": r.boolField("inspect", &e.Inspect),
		"for":     storeIn(&one.For, r.readCallers),
	})
	if e.Host == "" {
		r.AddFault(n, "an endpoint needs to, for example git.example.com:443")
	}
	if _, err := egress.NewAllowlist([]bailey.Endpoint{*e}); err != nil {
		r.AddFault(n, "%s", err)
	}
	return one
}

// readCallers reads capability patterns. The only wildcard allowed is *.
func (r reader) readCallers(n ast.Node) (list []string) {
	for _, item := range r.readItems(n, "for must be a list of capabilities") {
		who := r.readWord(item, maxWord)
		if len(list) == maxFor || slices.Contains(list, who) ||
			strings.Trim(who, "abcdefghijklmnopqrstuvwxyz0123456789._-*") != "" {
			r.AddFault(item, "for must have names such as http.get, git.* or %s, each once, and at most %d", ForWrap, maxFor)
		}
		list = append(list, who)
	}
	return list
}

// boolField reads true or false.
func (r reader) boolField(what string, p *bool) func(ast.Node) {
	return func(n ast.Node) {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			r.AddFault(n, "%s must be true or false", what)
			return
		}
		*p = b.Value
	}
}

// countField reads a number from 1 to most.
func (r reader) countField(what string, most uint64, p *int) func(ast.Node) {
	return func(n ast.Node) {
		i, ok := n.(*ast.IntegerNode)
		if ok {
			if v, err := strconv.ParseUint(i.Token.Value, 0, 31); err == nil && v >= 1 && v <= most {
				*p = int(v)
				return
			}
		}
		r.AddFault(n, "%s must be a number from 1 to %d", what, most)
	}
}
