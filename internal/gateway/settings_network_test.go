//go:build linux || darwin

package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

const ownNetwork = `network:
  upstream: http://proxy.example:3128/
  byName: true
  endpoints:
    - to: Git.corp.example.:443
      private: true
      for: [wrap, "http.*"]
    - {to: "*.mirror.example:8443", noSNI: true, ech: true, inspect: true}
    - to: "[fd12::1]:22"
      private: true
      plain: true
      for: [git.fetch]
`

// TestNetworkSettings checks that the applied settings hold after a start, with one spelling of each endpoint, and that
// no pattern of capabilities includes the agent in its jail.
func TestNetworkSettings(t *testing.T) {
	b := newBook(t)
	if _, err := b.put(t, ownNetwork); err != nil {
		t.Fatal(err)
	}
	noted, err := json.Marshal(b.last)
	if err != nil {
		t.Fatal(err)
	}
	b.last = Applied{}
	if err := json.Unmarshal(noted, &b.last); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	n := b.Applied().Network
	git := bailey.Endpoint{Host: "git.corp.example", Port: 443, Private: true}
	mirror := bailey.Endpoint{Host: "*.mirror.example", Port: 8443, NoSNI: true, ECH: true, Inspect: true}
	ssh := bailey.Endpoint{Host: "fd12::1", Port: 22, Private: true, Plain: true}
	want := Network{Upstream: "http://proxy.example:3128", ByName: true,
		Endpoints: []Reach{{git, []string{"wrap", "http.*"}}, {mirror, nil}, {ssh, []string{"git.fetch"}}}}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("%+v\nwant %+v", n, want)
	}
	for who, want := range map[string][]bailey.Endpoint{ForWrap: {git}, "http.get": {git}, "git.fetch": {ssh}, "git.status": nil, "http": nil, "": nil} {
		if got := n.For(who); !reflect.DeepEqual(got, want) {
			t.Errorf("for %q: %v, want %v", who, got, want)
		}
	}
	every := Network{Endpoints: []Reach{{git, []string{"*"}}}}
	if every.For(ForWrap) != nil || len(every.For("a.b")) != 1 {
		t.Error("a star means the wall, or no capability")
	}
	if n.With(bailey.Endpoint{Host: git.Host, Port: 443}) != git || n.With(bailey.Endpoint{Host: git.Host, Port: 80}).Private {
		t.Error("flags are of another place")
	}
	if st, err := b.State(""); err != nil || !reflect.DeepEqual(st.Network, want) || st.Changed {
		t.Errorf("%+v, %v", st.Network, err)
	}
}

func TestNetworkSettingsAreReadStrictly(t *testing.T) {
	many := "network:\n  endpoints:\n"
	for i := range maxEndpoints + 1 {
		many += fmt.Sprintf("    - to: h%d.example:443\n", i)
	}
	to := func(rest string) string {
		return "network:\n  endpoints:\n    - to: a.example:443\n      " + rest + "\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":           {"network: {proxy: x}", `:1:11: "proxy" is no part of network`},
		"a list":                {"network: [a]", ":1:10: wants keys"},
		"unknown flag":          {to("open: true"), `:4:7: "open" is no part of an endpoint`},
		"flag of a word":        {to("private: \"yes\""), ":4:16: private is true or false"},
		"flag twice":            {to("private: false\n      private: true"), ":5:7"},
		"no place":              {"network:\n  endpoints:\n    - private: true\n", "an endpoint wants to"},
		"nothing":               {"network:\n  endpoints:\n    -\n", "an endpoint wants to"},
		"no port":               {"network:\n  endpoints:\n    - to: a.example\n", ":3:11: egress \"a.example\": it is not host:port"},
		"a url":                 {"network:\n  endpoints:\n    - to: https://a.example\n", "is not host:port"},
		"a port of none":        {"network:\n  endpoints:\n    - to: a.example:0\n", "is not host:port"},
		"any":                   {"network:\n  endpoints:\n    - to: \"*:443\"\n", "a character that no name has"},
		"a whole domain":        {"network:\n  endpoints:\n    - to: \"*.com:443\"\n", "too wide"},
		"a star inside":         {"network:\n  endpoints:\n    - to: \"a.*.example:443\"\n", "a character that no name has"},
		"numbers":               {"network:\n  endpoints:\n    - to: 2130706433:443\n", "in a spelling of its own"},
		"short address":         {"network:\n  endpoints:\n    - to: \"127.1:443\"\n", "in a spelling of its own"},
		"mapped":                {"network:\n  endpoints:\n    - to: \"[::ffff:10.0.0.1]:443\"\n      private: true\n", "another spelling"},
		"no brackets":           {"network:\n  endpoints:\n    - to: \"fd12::1:22\"\n", "brackets"},
		"private, unsaid":       {"network:\n  endpoints:\n    - to: 10.0.0.1:443\n", ":3:9: egress 10.0.0.1:443 is private"},
		"metadata":              {"network:\n  endpoints:\n    - to: 169.254.169.254:80\n      private: true\n", "keeps credentials"},
		"metadata by name":      {"network:\n  endpoints:\n    - to: metadata.google.internal:80\n      private: true\n", "keeps credentials"},
		"plain and inspected":   {to("plain: true\n      inspect: true"), "both plain and inspected"},
		"twice":                 {"network:\n  endpoints:\n    - to: a.example:443\n    - to: A.example.:443\n", ":4:9: a.example:443 is named twice"},
		"many":                  {many, "over the 64 endpoints"},
		"for of a word":         {to("for: wrap"), ":4:12: for wants a list"},
		"for of a class":        {to("for: [\"[a-z]*\"]"), ":4:13: for holds names"},
		"for twice":             {to("for: [wrap, wrap]"), ":4:19: for holds names"},
		"for a path":            {to("for: [\"a\\\\*\"]"), "for holds names"},
		"many for":              {to("for: [" + strings.Repeat("a, ", maxFor+1) + "]"), "for holds names"},
		"upstream of TLS":       {"network: {upstream: \"https://p.example:3128\"}", "upstream is http://host:port"},
		"upstream of a user":    {"network: {upstream: \"http://u:sesame@p.example:3128\"}", "without a user"},
		"upstream, no port":     {"network: {upstream: \"http://p.example\"}", "upstream is http://host:port"},
		"upstream of any":       {"network: {upstream: \"http://*.p.example:3128\"}", "upstream is http://host:port"},
		"upstream with a path":  {"network: {upstream: \"http://p.example:3128/x\"}", "upstream is http://host:port"},
		"by name, by nobody":    {"network: {byName: true}", "byName wants upstream"},
		"a name of two letters": {"network:\n  endpoints:\n    - to: \"bücher.example:443\"\n", "write it encoded"},
	} {
		said, err := ParseSettings([]byte(c.text))
		if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(fmt.Sprint(err, bailey.HintOf(err)), "sesame") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if !reflect.DeepEqual(said.Network, Network{}) {
			t.Errorf("%s: left %+v", name, said.Network)
		}
	}
}
