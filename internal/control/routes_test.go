package control_test

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/control"
	"bailey/internal/store"
)

// requests has a body for each route of the API that needs one, and the id that its path names. A route that is missing
// here fails TestEveryRouteAsEverybody. The id "{…}" is replaced by something of the organisation.
var requests = map[string]struct {
	needs string
	body  object
	id    string
}{
	"health": {needs: "open"},
	"setup": {needs: "open", body: object{"token": "x", "name": "Eve", "email": "eve@example.com",
		"password": "password of eve", "organisation": "x"}},
	"login":               {needs: "open", body: object{"email": "ann@example.com", "password": "wrong password"}},
	"signup":              {needs: "open", body: object{"token": "x", "name": "Eve", "password": "password of eve"}},
	"logout":              {needs: "person"},
	"me":                  {needs: "anyone signed in"},
	"set-password":        {needs: "person", body: object{"old": "wrong", "new": "password"}},
	"list-sessions":       {needs: "person"},
	"end-session":         {needs: "person", id: "ws-none"},
	"accept-invitation":   {needs: "person", body: object{"token": "x"}},
	"list-providers":      {needs: "open"},
	"list-identities":     {needs: "person"},
	"remove-identity":     {needs: "fresh person", id: "id-none"},
	"begin-passkey-login": {needs: "open"},
	"passkey-login":       {needs: "open", body: object{"ceremony": "x", "credential": object{}}},
	"list-passkeys":       {needs: "person"},
	"begin-passkey":       {needs: "fresh person"},
	"add-passkey":         {needs: "fresh person", body: object{"name": "x", "ceremony": "x", "credential": object{}}},
	"remove-passkey":      {needs: "fresh person", id: "none"},
	"end-other-sessions":  {needs: "person"},
	"list-push":           {needs: "person"},
	"add-push": {needs: "person", body: object{"endpoint": "https://push.example.net/x", "keys": object{
		"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
		"auth":   "BTBZMqHH6r4Tts7J_aSIgg"}}},
	"remove-push":         {needs: "person", id: "p-none"},
	"list-organisations":  {needs: "anyone signed in"},
	"add-organisation":    {needs: "person", body: object{"name": "Second"}},
	"rename-organisation": {needs: "admin", body: object{"name": "Shop"}},
	"delete-organisation": {needs: "person, owner"},
	"list-members":        {needs: "member"},
	"set-role":            {needs: "admin", body: object{"role": "member"}, id: "{member}"},
	"remove-member":       {needs: "member", id: "{spare}"},
	"end-member-sessions": {needs: "admin", id: "{spare}"},
	"list-invitations":    {needs: "admin"},
	"invite":              {needs: "person, admin", body: object{"email": "new@example.com", "role": "member"}},
	"uninvite":            {needs: "admin", id: "{invitation}"},
	"list-tokens":         {needs: "person, member"},
	"add-token":           {needs: "person, member", body: object{"name": "x", "role": "member", "days": 1}},
	"remove-token":        {needs: "person, member", id: "{token}"},
	"list-hosts":          {needs: "member"},
	"add-host":            {needs: "person, admin", body: object{"name": "h", "kind": "gateway", "days": 1}},
	"list-receipts":       {needs: "admin"},
	"show-record":         {needs: "member", id: "{recorded}"},
	"export-ledger":       {needs: "admin", id: "{recorded}"},
	"this-host":           {needs: "open"},
	"remove-host":         {needs: "person, admin", id: "{host}"},
	"list-approvals":      {needs: "member"},
	"show-approval":       {needs: "member", id: "{approval}"},
	"answer-approval":     {needs: "member", body: object{"grant": false}, id: "{approval}"},
	"approval-page":       {id: "{approval}"}, // pages need no body, and are not of the API
	"deny-page":           {id: "{approval}"},
	"list-stops":          {needs: "member"},
	"add-stop":            {needs: "admin", body: object{"reason": "test"}},
	"end-stop":            {needs: "admin", id: "{stop}"},
	"list-bundles":        {needs: "member"},
	"add-bundle": {needs: "admin", body: object{"serial": 1, "signature": "x",
		"files": []object{{"name": "a.cedar", "text": ""}}}},
}

// beyondRole are the routes whose handlers refuse some callers that have the role of the route.
var beyondRole = map[string]string{
	"remove-member": "a member only removes itself",
	"remove-token":  "a member only sees its own tokens",

	"answer-approval": "a member may not deny",
}

// TestEveryRouteAsEverybody sends each request as each kind of caller, and compares the answer with what the route
// needs.
func TestEveryRouteAsEverybody(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	for _, r := range f.Routes() {
		if needs := needsOf(r); !r.Page && requests[r.Operation].needs != needs {
			t.Errorf("the route %s needs %s, and this test wants %q", r.Operation, needs, requests[r.Operation].needs)
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			t.Parallel()
			f := startServer(t) // of its own, since the requests change it
			callers := makeCallers(t, f)
			for _, kind := range slices.Sorted(maps.Keys(callers)) {
				checkRoute(t, callers, kind, r)
			}
			f.wantRecorded(t)
		})
	}
}

// needsOf describes what a route needs.
func needsOf(r control.Route) string {
	var needs []string
	if r.Open {
		needs = append(needs, "open")
	}
	switch {
	case r.Fresh:
		needs = append(needs, "fresh person")
	case r.People:
		needs = append(needs, "person")
	}
	if r.Role > 0 {
		needs = append(needs, r.Role.String())
	}
	if len(needs) == 0 {
		return "anyone signed in"
	}
	return strings.Join(needs, ", ")
}

type caller struct {
	*client
	role    store.Role // in the organisation
	expired bool       // its session or token is no longer valid
	unknown bool       // nobody
	fresh   bool       // signed in a short time ago
}

// makeCallers makes callers of each kind. Their organisation is the only one that exists, apart from the stranger's.
func makeCallers(t *testing.T, f *fixture) map[string]caller {
	t.Helper()
	owner, shop := f.setUp(t)
	admin, member := owner.join(shop, "admin@example.com", "admin"), owner.join(shop, "member@example.com", "member")
	stranger := owner.join(shop, "stranger@example.com", "member")
	want[object](stranger, "POST", "/api/v1/organisations", object{"name": "Elsewhere"})
	want[object](stranger, "DELETE", "/api/v1/organisations/"+shop+"/members/"+stranger.account.ID, nil)
	elsewhere := want[itemList](stranger, "GET", "/api/v1/organisations", nil).Items[0].ID
	loggedOut := owner.join(shop, "left@example.com", "owner")
	server := mustURL(t, f.URL)
	old := loggedOut.http.Jar.Cookies(server)
	want[object](loggedOut, "POST", "/api/v1/logout", nil)
	loggedOut.http.Jar.SetCookies(server, old) // replayed
	revoked := owner.program(shop, "owner")
	for _, i := range want[itemList](owner, "GET", "/api/v1/organisations/"+shop+"/tokens", nil).Items {
		want[object](owner, "DELETE", "/api/v1/organisations/"+shop+"/tokens/"+i.ID, nil)
	}
	expired := owner.program(shop, "owner")
	f.advance(25 * time.Hour)
	all := map[string]caller{
		"owner": {client: owner, role: store.Owner}, "admin": {client: admin,
			role: store.Admin}, "member": {client: member, role: store.Member},
		"fresh member":         {client: signInAgain(t, f, "member@example.com"), role: store.Member, fresh: true},
		"ended session":        {client: endedSession(t, f), expired: true},
		"stranger":             {client: stranger},
		"nobody":               {client: f.newClient(t), unknown: true},
		"replayed session":     {client: loggedOut, expired: true},
		"revoked token":        {client: revoked, expired: true},
		"expired token":        {client: expired, expired: true},
		"owner's token":        {client: owner.program(shop, "owner"), role: store.Owner},
		"owner's member token": {client: owner.program(shop, "member"), role: store.Member},
		"admin's token":        {client: admin.program(shop, "admin"), role: store.Admin},
		"stranger's token":     {client: stranger.program(elsewhere, "owner")},
	}
	f.shop = shop
	return all
}

// signInAgain returns another session of a member.
func signInAgain(t *testing.T, f *fixture, email string) *client {
	t.Helper()
	c := f.newClient(t)
	c.account = want[struct{ Account store.Account }](c, "POST", "/api/v1/login", object{"email": email,
		"password": "password of " + email}).Account
	return c
}

// endedSession returns a session that the person has ended from another one.
func endedSession(t *testing.T, f *fixture) *client {
	t.Helper()
	ended, other := signInAgain(t, f, "admin@example.com"), signInAgain(t, f, "admin@example.com")
	sessions := want[struct {
		Items []struct {
			ID, Address string
		}
	}](other, "GET", "/api/v1/me/sessions", nil)
	for _, n := range sessions.Items {
		if n.Address == ended.address {
			want[object](other, "DELETE", "/api/v1/me/sessions/"+n.ID, nil)
		}
	}
	return ended
}

// checkRoute sends a request and compares its status with what the route needs.
func checkRoute(t *testing.T, callers map[string]caller, kind string, r control.Route) {
	t.Helper()
	c := callers[kind]
	req := requests[r.Operation]
	path := strings.ReplaceAll(r.Path, "{organisation}", c.f.shop)
	if strings.Contains(path, "{id}") {
		path = strings.ReplaceAll(path, "{id}", makeSubject(t, callers["owner"].client, c.f.shop, req.id))
	}
	path = strings.TrimSuffix(path, "{$}")
	sender := *c.client
	sender.t, sender.address = t, c.f.newClient(t).address
	var body any
	if req.body != nil && !r.Page {
		body = req.body
	}
	if r.Operation == "add-bundle" {
		body.(object)["serial"] = time.Now().UnixMicro()
	}
	if r.Operation == "add-host" {
		body = object{"name": "h " + kind, "kind": "gateway", "days": 1}
	}
	if r.Stream { // it does not end by itself
		status := cmp.Or(whyRefused(c, r), http.StatusOK)
		if resp := sender.get(sender.f.URL + path); c.token == "" && resp.StatusCode != status {
			t.Errorf("%s: got %d, want %d", kind, resp.StatusCode, status)
		}
		return
	}
	status, text := sender.send(r.Method, path, body)
	if refused := whyRefused(c, r); refused != 0 {
		if status != refused {
			t.Errorf("%s: got %d %s, want %d", kind, status, text, refused)
		}
		return
	}
	allowed := status/100 == 2 || status/100 == 3 || r.Page
	switch { // the handlers refuse the wrong secrets of this test
	case status == http.StatusUnauthorized && r.Operation == "login", status == http.StatusForbidden && slices.Contains(
		[]string{"setup", "signup", "accept-invitation", "set-password", "this-host",
			"passkey-login", "add-passkey"}, r.Operation):
		allowed = true
	case status == http.StatusNotFound && slices.Contains([]string{"end-session", "remove-passkey",
		"remove-identity", "remove-push"}, r.Operation):
		allowed = true
	case status == http.StatusServiceUnavailable && r.Operation == "answer-approval": // its gateway is not connected
		allowed = true
	case beyondRole[r.Operation] != "" && c.role < store.Admin:
		allowed = status == http.StatusForbidden || status == http.StatusNotFound
	}
	if !allowed {
		t.Errorf("%s: got %d %s", kind, status, text)
	}
	if r.Operation == "logout" || r.Operation == "end-other-sessions" || r.Operation == "delete-organisation" { // they end what the next callers need
		for k, v := range makeCallers(t, startServer(t)) {
			callers[k] = v
		}
	}
}

// whyRefused is the status with which the route must refuse a caller, or 0.
func whyRefused(c caller, r control.Route) int {
	token := c.token != ""
	switch {
	case r.Open:
		return 0
	case r.Page && (c.unknown || c.expired):
		return http.StatusSeeOther // to the login
	case c.unknown || c.expired:
		return http.StatusUnauthorized
	case token && r.People, r.Fresh && !c.fresh:
		return http.StatusForbidden
	case r.Role > 0 && c.role == 0:
		return http.StatusNotFound
	case c.role < r.Role:
		return http.StatusForbidden
	}
	return 0
}

// makeSubject makes the thing that a path names.
func makeSubject(t *testing.T, owner *client, shop, kind string) string {
	t.Helper()
	c := *owner
	c.t, c.address = t, owner.f.newClient(t).address
	base := "/api/v1/organisations/" + shop
	switch kind {
	case "{member}":
		return memberID(&c, shop, "member@example.com")
	case "{spare}":
		return c.join(shop, "spare"+c.address+"@example.com", "member").account.ID
	case "{invitation}":
		return want[item](&c, "POST", base+"/invitations", object{"email": "x@example.com", "role": "member"}).ID
	case "{token}":
		return want[item](&c, "POST", base+"/tokens", object{"name": "x", "role": "member", "days": 1}).ID
	case "{recorded}":
		return recordedHost(&c, shop)
	case "{approval}":
		return askQuestion(&c, shop)
	case "{stop}":
		return want[item](&c, "POST", base+"/stops", object{"reason": "test"}).ID
	case "{host}":
		return want[item](&c, "POST", base+"/hosts", object{"name": "of " + c.address, "kind": "host", "days": 1}).ID
	}
	return kind
}

func memberID(c *client, shop, email string) string {
	for _, m := range want[struct{ Items []store.Account }](c, "GET", "/api/v1/organisations/"+shop+"/members",
		nil).Items {
		if m.Email == email {
			return m.ID
		}
	}
	return ""
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
