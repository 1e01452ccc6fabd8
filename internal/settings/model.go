package settings

import (
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// Model says how the model proxy reaches providers. The zero value reaches the usual providers with the keys of the
// clients, and only for agents in the agent jail.
type Model struct {
	Providers []Provider `json:"providers,omitempty"`
	// Wrap sends the requests of agents in the agent jail to their models through the proxy.
	Wrap bool `json:"wrap,omitempty"`

	// Restores has categories of secrets that are restored in the file inputs of the agent's own tools. Addresses and names
	// of hosts always are.
	Restores []string `json:"restores,omitempty"`

	// Prices come before the prices that Bailey has.
	Prices []Price `json:"prices,omitempty"`
}

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	Model      string  `json:"model"` // its name, or the beginning of names and *
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
}

// Provider is the API of a model, and the key for it.
type Provider struct {
	Name    string `json:"name"`              // anthropic, openai or gemini: the dialect that is spoken
	URL     string `json:"url,omitempty"`     // "": the usual one
	KeyFile string `json:"keyFile,omitempty"` // a file with the key
	Lease   string `json:"lease,omitempty"`   // the broker's name for the key
}

// Limits of the setting model.
const (
	maxRestores = 32
	maxPrices   = 1000
	maxPrice    = 1e6 // US dollars for a million tokens
	maxKeyPath  = 4096
)

// ModelProviders lists the providers that the model proxy knows, with their usual URLs.
func ModelProviders() map[string]string {
	return map[string]string{"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com",
		"gemini": "https://generativelanguage.googleapis.com"}
}

// ModelHosts lists the host:port of the usual hosts of each provider, with that of its accounts.
func ModelHosts() map[string][]string {
	return map[string][]string{"anthropic": {"api.anthropic.com:443"}, "openai": {"api.openai.com:443", "chatgpt.com:443"},
		"gemini": {"generativelanguage.googleapis.com:443"}}
}

func (r reader) readModel(n ast.Node) (m Model) {
	r.readKeys(n, "part of model", strictyaml.Fields{
		"providers": storeIn(&m.Providers, r.readProviders),
		"wrap":      r.boolField("wrap", &m.Wrap),
		"restores":  storeIn(&m.Restores, r.readRestores),
		"prices":    storeIn(&m.Prices, r.readPrices),
	})
	return m
}

func (r reader) readProviders(n ast.Node) (list []Provider) {
	for _, item := range r.readItems(n, "providers must be a list") {
		var p Provider
		r.readKeys(item, "part of a provider", strictyaml.Fields{
			"name":    r.wordField(maxRole, &p.Name),
			"url":     storeIn(&p.URL, r.readProviderURL),
			"keyFile": r.wordField(maxKeyPath, &p.KeyFile),
			"lease":   r.wordField(maxRole, &p.Lease),
		})
		known := ModelProviders()
		switch {
		case known[p.Name] == "":
			r.AddFault(item, "a provider needs name: anthropic, openai or gemini")
		case slices.ContainsFunc(list, func(o Provider) bool { return o.Name == p.Name }):
			r.AddFault(item, "the provider %s is named twice", p.Name)
		case p.KeyFile != "" && p.Lease != "":
			r.AddFault(item, "a provider has one key: keyFile, or lease, the broker's name for it")
		case p.KeyFile != "" && (!filepath.IsAbs(p.KeyFile) || filepath.Clean(p.KeyFile) != p.KeyFile):
			r.AddFault(item, "keyFile must be an absolute, clean path")
		}
		list = append(list, p)
	}
	return list
}

// readProviderURL reads the base of a provider's API. Without TLS it must be on this machine: a key is sent to it.
func (r reader) readProviderURL(n ast.Node) string {
	text := r.readWord(n, maxWord)
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
	case u.Scheme == "https":
		return "https://" + u.Host
	case u.Scheme == "http" && slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, u.Hostname()):
		return "http://" + u.Host
	}
	r.AddFault(n, "url must be https://host[:port], or http:// and a loopback address; a path comes from the client")
	return ""
}

func (r reader) readRestores(n ast.Node) (list []string) {
	for _, item := range r.readItems(n, "restores must be a list of categories, for example PASSWORD") {
		word := r.readWord(item, maxRole)
		if len(list) == maxRestores || slices.Contains(list, word) ||
			strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			r.AddFault(item, "restores must have categories in upper case, each once, at most %d", maxRestores)
		}
		list = append(list, word)
	}
	return list
}

// readPrices reads a table of prices. Tokens of a cache cost as much as other input if the table does not say it.
func (r reader) readPrices(n ast.Node) (list []Price) {
	for _, item := range r.readItems(n, "prices must be a list") {
		p := Price{Input: -1, Output: -1, CacheRead: -1, CacheWrite: -1}
		amount := func(into *float64) func(ast.Node) {
			return func(n ast.Node) { *into = r.readPrice(n) }
		}
		r.readKeys(item, "part of a price", strictyaml.Fields{"model": r.wordField(maxRole, &p.Model),
			"input": amount(&p.Input), "output": amount(&p.Output), "cacheRead": amount(&p.CacheRead),
			"cacheWrite": amount(&p.CacheWrite)})
		switch {
		case p.Model == "" || p.Input < 0 || p.Output < 0:
			r.AddFault(item, "a price needs model, input and output, in US dollars for a million tokens")
		case len(list) == maxPrices || slices.ContainsFunc(list, func(o Price) bool { return o.Model == p.Model }):
			r.AddFault(item, "prices must have each model once, at most %d", maxPrices)
		}
		if p.CacheRead < 0 {
			p.CacheRead = p.Input
		}
		if p.CacheWrite < 0 {
			p.CacheWrite = p.Input
		}
		list = append(list, p)
	}
	return list
}

// readPrice reads an amount of US dollars.
func (r reader) readPrice(n ast.Node) float64 {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		if v, err := strconv.ParseFloat(n.GetToken().Value, 64); err == nil && v >= 0 && v <= maxPrice {
			return v
		}
	}
	r.AddFault(n, "must be an amount of US dollars for a million tokens, for example 2.50")
	return -1
}
