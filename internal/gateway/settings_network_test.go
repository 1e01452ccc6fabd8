//go:build linux || darwin

package gateway

import (
	"encoding/json"
	"reflect"
	"testing"

	"bailey"
	"bailey/internal/settings"
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
	b.last = settings.Applied{}
	if err := json.Unmarshal(noted, &b.last); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	n := b.Applied().Network
	git := bailey.Endpoint{Host: "git.corp.example", Port: 443, Private: true}
	mirror := bailey.Endpoint{Host: "*.mirror.example", Port: 8443, NoSNI: true, ECH: true, Inspect: true}
	ssh := bailey.Endpoint{Host: "fd12::1", Port: 22, Private: true, Plain: true}
	want := settings.Network{Upstream: "http://proxy.example:3128", ByName: true,
		Endpoints: []settings.Reach{{Endpoint: git, For: []string{"wrap", "http.*"}}, {Endpoint: mirror, For: nil}, {Endpoint: ssh, For: []string{"git.fetch"}}}}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("%+v\nwant %+v", n, want)
	}
	for who, want := range map[string][]bailey.Endpoint{settings.ForWrap: {git}, "http.get": {git}, "git.fetch": {ssh}, "git.status": nil, "http": nil, "": nil} {
		if got := n.For(who); !reflect.DeepEqual(got, want) {
			t.Errorf("for %q: %v, want %v", who, got, want)
		}
	}
	every := settings.Network{Endpoints: []settings.Reach{{Endpoint: git, For: []string{"*"}}}}
	if every.For(settings.ForWrap) != nil || len(every.For("a.b")) != 1 {
		t.Error("a star means the wall, or no capability")
	}
	if n.With(bailey.Endpoint{Host: git.Host, Port: 443}) != git || n.With(bailey.Endpoint{Host: git.Host, Port: 80}).Private {
		t.Error("flags are of another place")
	}
	if st, err := b.State(""); err != nil || !reflect.DeepEqual(st.Network, want) || st.Changed {
		t.Errorf("%+v, %v", st.Network, err)
	}
}
