// Package settings has the settings and the profiles that an operator applies: their form, and their strict readers, which
// refuse unknown keys with the line and the column.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/localapi"
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
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(a)); err != nil {
		return fmt.Errorf("the settings that were applied last are of another version of bailey: %w", err)
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

func networkOf(n ast.Node) (net Network, err error) {
	err = readMapping(n, "part of network", keyReaders{
		"upstream":  func(n ast.Node) (err error) { net.Upstream, err = upstreamOf(n); return err },
		"byName":    readBool("byName", &net.ByName),
		"endpoints": func(n ast.Node) (err error) { net.Endpoints, err = endpointsOf(n); return err },
		"sockets":   func(n ast.Node) (err error) { net.Sockets, err = socketsOf(n); return err },
	})
	if err == nil && net.ByName && net.Upstream == "" {
		err = nodeError(n, "byName wants upstream: it is that proxy which would resolve")
	}
	return net, err
}

// upstreamOf reads the URL of the host's proxy. A URL with a password is refused, because the ledger records the
// settings.
func upstreamOf(n ast.Node) (string, error) {
	text, err := wordOf(n, maxWord)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", nodeError(n, "upstream is http://host:port, without a user")
	}
	e, err := bailey.ParseEndpoint(u.Host)
	if err != nil || strings.HasPrefix(e.Host, "*") {
		return "", nodeError(n, "upstream is http://host:port, without a user")
	}
	return "http://" + e.String(), nil
}

func endpointsOf(n ast.Node) (list []Reach, err error) {
	err = readList(n, "endpoints wants a list of places", func(item ast.Node) error {
		r, err := reachOf(item)
		switch {
		case err != nil:
			return err
		case len(list) == maxEndpoints:
			return nodeError(item, "over the %d endpoints allowed", maxEndpoints)
		case slices.ContainsFunc(list, func(o Reach) bool { return o.String() == r.String() }):
			return nodeError(item, "%s is named twice", r)
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// reachOf reads one endpoint. An endpoint that can never be reached is an error.
func reachOf(n ast.Node) (r Reach, err error) {
	var e bailey.Endpoint
	err = readMapping(n, "part of an endpoint", keyReaders{
		"to": func(n ast.Node) error {
			text, err := wordOf(n, maxWord)
			if err != nil {
				return err
			}
			place, err := bailey.ParseEndpoint(text)
			if err != nil {
				return nodeError(n, "%s; %s", err, bailey.HintOf(err))
			}
			e.Host, e.Port = place.Host, place.Port
			return nil
		},
		"private": readBool("private", &e.Private),
		"plain":   readBool("plain", &e.Plain),
		"noSNI":   readBool("noSNI", &e.NoSNI),
		"ech":     readBool("ech", &e.ECH),
		"inspect": readBool("inspect", &e.Inspect),
		"for":     func(n ast.Node) (err error) { r.For, err = whoOf(n); return err },
	})
	if err != nil {
		return r, err
	}
	if e.Host == "" {
		return r, nodeError(n, "an endpoint wants to, as in git.example.com:443")
	}
	if _, err := egress.NewAllowlist([]bailey.Endpoint{e}); err != nil {
		return r, nodeError(n, "%s", err)
	}
	r.Endpoint = e
	return r, nil
}

// whoOf reads capability patterns. The only wildcard allowed is *.
func whoOf(n ast.Node) (list []string, err error) {
	err = readList(n, "for wants a list of capabilities", func(item ast.Node) error {
		who, err := wordOf(item, maxWord)
		if err == nil && (len(list) == maxFor || slices.Contains(list, who) || strings.Trim(who, "abcdefghijklmnopqrstuvwxyz0123456789._-*") != "") {
			err = nodeError(item, "for holds names such as http.get, git.* or %s, each once; there are at most %d",
				ForWrap, maxFor)
		}
		list = append(list, who)
		return err
	})
	return list, err
}

// readBool reads true or false.
func readBool(what string, p *bool) func(ast.Node) error {
	return func(n ast.Node) error {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return nodeError(n, "%s is true or false", what)
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
		return nodeError(n, "%s is a number from 1 to %d", what, most)
	}
}
