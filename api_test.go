package bailey_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// TestParseRoute checks that a route has exactly one spelling, and that a route that could do more than a query is
// invalid.
func TestParseRoute(t *testing.T) {
	r, err := bailey.ParseRoute("GET /images/{name...}/stats?stream=0&stream=false&one-shot&x=")
	want := bailey.Route{Method: "GET", Path: []string{"images", "{name...}", "stats"}, Query: map[string][]string{"stream": {"0", "false"}, "one-shot": nil, "x": {""}}}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, s := range []string{"HEAD /_ping", "GET /1.0", "GET /libpod/containers/{id}/json", "GET /{a}/{b}", "GET /events?since", "POST /containers/{id}/stop?t", "DELETE /images/{name...}?force"} {
		if _, err := bailey.ParseRoute(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", "GET", "GET ", "/a", "get /a", "PUT /a", "PATCH /a", "post /a", "GET a", "GET //a", "GET /a/", "GET /", "GET /.", "GET /a/..", "GET /a/../b", "GET /a%2fb", "GET /a b", "GET  /a", "GET /a\x00",
		"GET /a*", "GET /{", "GET /{x", "GET /x}", "GET /{}", "GET /{...}", "GET /{..}", "GET /{x}y", "GET /{a b}", "GET /{x.../}", "GET /a?", "GET /a?x&", "GET /a?x&x", "GET /a?x&x=1", "GET /a?x=1&x", "GET /a?x=%31", "GET /a?=1",
		"GET /a?x?y", "GET /a#b", "GET http://x/a", "GET /containers/{id}/archive", "GET /containers/{id}/attach/ws", "GET /containers/{id}/export", "GET /images/get", "POST /containers/{id}/exec", "POST /containers/{id}/attach", "POST /containers/{id}/wait", "POST /images/load", "GET /libpod/containers/{id}/healthcheck", "POST /exec/{id}/resize", "GET /1.0/instances/{name}/console?x", "GET /exec", "GET /build",
		"GET /" + strings.Repeat("a/", 20) + "a", "GET /" + strings.Repeat("a", 600)} {
		if r, err := bailey.ParseRoute(s); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || r.Method != "" {
			t.Errorf("%q: %+v, %v", s, r, err)
		}
	}
	for text, want := range map[string][2]bool{"GET /a": {}, "HEAD /_ping": {}, "GET /a/prune": {true, true}, "POST /a": {true, false}, "POST /a/prune": {true, true}, "DELETE /a": {true, true}} {
		r, err := bailey.ParseRoute(text)
		if changes, removes := r.Changes(); err != nil || changes != want[0] || removes != want[1] {
			t.Errorf("%s changes %v, removes %v, %v", text, changes, removes, err)
		}
	}
	for name, allow := range map[string][]string{"unix:docker": {"GET /_ping", "GET /containers/json"}, "unix:docker:changes": {"GET /_ping", "POST /containers/{id}/stop"}} {
		if api := (bailey.API{Socket: "docker", Allow: allow}); api.String() != name {
			t.Errorf("%q is %s", allow, api)
		}
	}
	if api := (bailey.API{Socket: "docker"}); api.String() != "unix:docker" || api.Inside() != "/run/bailey/docker.sock" || !slices.Contains(bailey.Daemons(), "docker") || !slices.IsSorted(bailey.Daemons()) {
		t.Error(api)
	}
}
