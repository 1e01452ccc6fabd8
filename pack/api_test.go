package pack

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
)

// asking returns a built-in pack with the given api. more holds further replacements.
func asking(api string, more ...string) string {
	return strings.NewReplacer(append(more, "API", api)...).Replace(`name: demo
version: 1.0.0
capabilities:
  - name: ps
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    backend: {type: subprocess, command: docker, args: [ps]}
    sandboxProfile:
      fs: {ro: []}
      network: {egress: [], api: API}
    inputSchema: {type: object, properties: {name: {type: string}}}
`)
}

const someAPI = `{socket: docker, allow: ["GET /_ping", "GET /containers/json?all"]}`

func demoPS(text string) (*Capability, error) {
	c, err := LoadBuiltin(fstest.MapFS{"demo/pack.yaml": {Data: []byte(text)}})
	if err != nil {
		return nil, err
	}
	return c.Lookup("demo.ps")
}

// TestAPI checks that policy and questions show the daemon that a tool may query, and that the digest depends on the
// permitted routes.
func TestAPI(t *testing.T) {
	m, err := demoPS(asking(someAPI))
	if err != nil {
		t.Fatal(err)
	}
	want := &bailey.API{Socket: "docker", Allow: []string{"GET /_ping", "GET /containers/json?all"}}
	if places, err := m.Egress(nil); err != nil || !slices.Equal(places, []string{"unix:docker"}) || !slices.Equal(m.Reaches(), places) || !reflect.DeepEqual(m.API(), want) {
		t.Errorf("%v, %q, %q, %+v", err, places, m.Reaches(), m.API())
	}
	m.API().Allow[0] = "GET /changed"
	if !reflect.DeepEqual(m.API(), want) {
		t.Error("who asks can change it")
	}
	seen := map[string]bool{m.Digest: true}
	for _, api := range []string{`{socket: podman, allow: ["GET /_ping", "GET /containers/json?all"]}`, `{socket: docker, allow: ["GET /_ping"]}`, `{socket: docker, allow: ["GET /_ping", "GET /containers/json"]}`} {
		o, err := demoPS(asking(api))
		if err != nil || seen[o.Digest] {
			t.Errorf("%s: %v", api, err)
			continue
		}
		seen[o.Digest] = true
	}
	if none, err := demoPS(asking("API", ", api: API", "")); err != nil || none.API() != nil || len(none.Reaches()) > 0 {
		t.Errorf("without one: %v", err)
	}
}

// changing are replacements for a capability that changes something.
func changing(class string) []string {
	return []string{"sideEffectClass: readOnly\n    reversibility: readOnly", "sideEffectClass: " + class + "\n    reversibility: reversible"}
}

// TestAPIChanges checks that a class allows the requests of its own and of milder classes.
func TestAPIChanges(t *testing.T) {
	for class, routes := range map[string]string{"mutating": `"GET /a", "POST /containers/{id}/stop?t"`, "destructive": `"GET /a", "POST /b", "POST /containers/prune", "DELETE /containers/{id}"`} {
		if m, err := demoPS(asking(`{socket: docker, allow: [`+routes+`]}`, changing(class)...)); err != nil || string(m.SideEffect) != class || !slices.Equal(m.Reaches(), []string{"unix:docker:changes"}) {
			t.Errorf("%s: %v, %v", class, err, m)
		}
	}
}

func TestAPIRefused(t *testing.T) {
	long := strings.Repeat(`"GET /a", `, maxRoutes)
	for name, c := range map[string]struct{ text, want string }{
		"no socket":        {asking(`{allow: ["GET /a"]}`), "socket"},
		"no routes":        {asking(`{socket: docker}`), "allow"},
		"none":             {asking(`{socket: docker, allow: []}`), "allow must have 1 to 32 routes"},
		"many":             {asking(`{socket: docker, allow: [` + long + `"GET /b"]}`), "allow must have 1 to 32 routes"},
		"twice":            {asking(`{socket: docker, allow: ["GET /a", "GET /a"]}`), "twice"},
		"unknown key":      {asking(`{socket: docker, allow: ["GET /a"], path: /x}`), "path"},
		"another daemon":   {asking(`{socket: dockr, allow: ["GET /a"]}`), "socket must be one of docker, incus, podman"},
		"a path":           {asking(`{socket: /var/run/docker.sock, allow: ["GET /a"]}`), "socket must be one of"},
		"a method":         {asking(`{socket: docker, allow: ["PUT /containers/create"]}`), ":11:59: route"},
		"a file":           {asking(`{socket: docker, allow: ["GET /containers/{id}/archive?path"]}`), "copies files"},
		"a change":         {asking(`{socket: docker, allow: ["POST /containers/{id}/stop"]}`), "sideEffectClass readOnly contradicts api: POST needs mutating"},
		"a removal":        {asking(`{socket: docker, allow: ["DELETE /containers/{id}"]}`, changing("mutating")...), "sideEffectClass mutating contradicts api: POST needs mutating, DELETE"},
		"a prune":          {asking(`{socket: docker, allow: ["POST /containers/prune"]}`, changing("mutating")...), "DELETE and prune need destructive"},
		"a list":           {asking(`[a]`), "api"},
		"side effects":     {asking(someAPI, "sideEffectClass: readOnly", "sideEffectClass: none"), "sideEffectClass none contradicts api"},
		"that adds":        {asking(someAPI, changing("additive")...), "sideEffectClass additive contradicts api"},
		"with egress":      {asking(someAPI, "egress: []", `egress: ["a.example:443"]`), "egress contradicts api"},
		"with a directory": {asking(someAPI, "{type: string}", "{type: string, format: path}"), "path inputs and fs.ro contradict api"},
		"in a directory":   {asking(someAPI, "args: [ps]", "args: [ps], cwdFromInput: name"), "path inputs and fs.ro contradict api"},
		"with files":       {asking(someAPI, "ro: []", "ro: [/run]"), "path inputs and fs.ro contradict api"},
	} {
		if _, err := demoPS(c.text); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("pack.yaml", []byte(asking(someAPI))); err == nil || !strings.Contains(err.Error(), "api is only for built-in packs") {
		t.Errorf("not built in: %v", err)
	}
}
