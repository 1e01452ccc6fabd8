package control_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/control"
	"bailey/internal/store"
)

// wantStatus sends a request that must be refused.
func (c *client) wantStatus(want int, method, path string, body any, headers ...string) string {
	c.t.Helper()
	status, text := c.send(method, path, body, headers...)
	if status != want {
		c.t.Errorf("%s %s: got %d %s, want %d", method, path, status, text, want)
	}
	return string(text)
}

// form posts a form as a browser does.
func (c *client) form(path string, values url.Values, headers ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "POST", c.f.URL+path, strings.NewReader(values.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Forwarded-For", c.address)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestAttackOtherSite(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	path := "/api/v1/organisations/" + shop
	owner.wantStatus(http.StatusForbidden, "DELETE", path, nil, "Sec-Fetch-Site", "cross-site")
	owner.wantStatus(http.StatusForbidden, "DELETE", path, nil, "Origin", "https://evil.example")
	owner.wantStatus(http.StatusNotFound, "DELETE", path, nil, "Host", "evil.example:80") // rebound DNS
	if resp := owner.form("/logout", nil, "Origin", "https://evil.example"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site ends the session: %d", resp.StatusCode)
	}
	for _, content := range []string{"text/plain",
		"application/x-www-form-urlencoded"} { // what forms of other sites can send
		status, _ := owner.send("POST", "/api/v1/organisations", object{"name": "x"}, "Content-Type", content,
			"Sec-Fetch-Site", "cross-site")
		if status/100 == 2 {
			t.Errorf("a body of %s is accepted: %d", content, status)
		}
	}
	want[object](owner, "PATCH", path, object{"name": "Still here"})
	resp := f.newClient(t).form("/login", url.Values{"email": {"ann@example.com"}, "password": {"password of ann"}})
	for _, cookie := range resp.Cookies() {
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Domain != "" {
			t.Errorf("the cookie is %+v", cookie)
		}
	}
	if csp := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != http.StatusSeeOther ||
		len(resp.Cookies()) != 1 ||
		!strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("got %d with %v and %q", resp.StatusCode, resp.Cookies(), csp)
	}
}

func TestAttackHigherRole(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	admin, member := owner.join(shop, "admin@example.com", "admin"), owner.join(shop, "member@example.com", "member")
	base := "/api/v1/organisations/" + shop
	admin.wantStatus(http.StatusForbidden, "PUT", base+"/members/"+admin.account.ID, object{"role": "owner"})
	admin.wantStatus(http.StatusForbidden, "PUT", base+"/members/"+owner.account.ID, object{"role": "member"})
	admin.wantStatus(http.StatusForbidden, "DELETE", base+"/members/"+owner.account.ID, nil)
	admin.wantStatus(http.StatusForbidden, "POST", base+"/invitations", object{"email": "eve@example.com",
		"role": "owner"})
	member.wantStatus(http.StatusForbidden, "POST", base+"/tokens", object{"name": "x", "role": "admin", "days": 1})
	owner.wantStatus(http.StatusConflict, "DELETE", base+"/members/"+owner.account.ID, nil)
	program := owner.program(shop, "owner")
	for path, body := range map[string]object{ // a program makes no other way in, and is not a person
		base + "/tokens": {"name": "x", "role": "member", "days": 1}, base + "/hosts": {"name": "x",
			"kind": "gateway", "days": 1},
		base + "/invitations": {"email": "eve@example.com", "role": "member"}, "/api/v1/organisations": {"name": "x"}} {
		program.wantStatus(http.StatusForbidden, "POST", path, body)
	}
	// A token falls with the role of its account, and an unknown role is not a role.
	admins := admin.program(shop, "admin")
	want[object](owner, "PUT", base+"/members/"+admin.account.ID, object{"role": "member"})
	admins.wantStatus(http.StatusForbidden, "PATCH", base, object{"name": "x"})
	owner.wantStatus(http.StatusUnprocessableEntity, "PUT", base+"/members/"+member.account.ID, object{"role": "god"})
	owner.wantStatus(http.StatusUnprocessableEntity, "PUT", base+"/members/"+member.account.ID,
		object{"role": "member", "is_admin": true})
}

func TestAttackGuessing(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	eve := f.newClient(t)
	unknown := eve.wantStatus(http.StatusUnauthorized, "POST", "/api/v1/login",
		object{"email": "nobody@example.com", "password": "password"})
	known := eve.wantStatus(http.StatusUnauthorized, "POST", "/api/v1/login", object{"email": "ann@example.com",
		"password": "password"})
	if unknown != known {
		t.Errorf("the answers tell whether an account exists: %s and %s", unknown, known)
	}
	for range 8 {
		eve.wantStatus(http.StatusUnauthorized, "POST", "/api/v1/login", object{"email": "ann@example.com",
			"password": "password"})
	}
	right := object{"email": "ann@example.com", "password": "password of ann"}
	eve.wantStatus(http.StatusTooManyRequests, "POST", "/api/v1/login", right)
	if resp := eve.form("/login", url.Values{"email": {"ann@example.com"},
		"password": {"password of ann"}}); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the page does not share the limit: %d", resp.StatusCode)
	}
	f.advance(5 * time.Second)
	want[object](eve, "POST", "/api/v1/login", right)
	// An organisation that does not exist and one of others look the same.
	stranger := owner.join(shop, "s@example.com", "member")
	want[object](stranger, "DELETE", "/api/v1/organisations/"+shop+"/members/"+stranger.account.ID, nil)
	none := stranger.wantStatus(http.StatusNotFound, "GET", "/api/v1/organisations/o-none/members", nil)
	if other := stranger.wantStatus(http.StatusNotFound, "GET", "/api/v1/organisations/"+shop+"/members",
		nil); other != none {
		t.Errorf("the answers differ: %s and %s", none, other)
	}
	f.wantRecorded(t, "login denied", "login done")
}

func TestAttackBodies(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	secret := "the password that is not repeated"
	for name, body := range map[string]any{
		"another type":  object{"old": secret, "new": []string{secret}},
		"a field more":  object{"old": secret, "new": secret, "extra": secret},
		"a missing one": object{"new": secret}, "no object": secret, "too long": object{"old": secret,
			"new": strings.Repeat(secret, 10)},
	} {
		if text := owner.wantStatus(http.StatusUnprocessableEntity, "PUT", "/api/v1/me/password",
			body); strings.Contains(text, secret) {
			t.Errorf("%s: the answer repeats it: %s", name, text)
		}
	}
	owner.wantStatus(http.StatusRequestEntityTooLarge, "POST", "/api/v1/organisations",
		object{"name": strings.Repeat("x", 70_000)})
	owner.wantStatus(http.StatusUnprocessableEntity, "GET", "/api/v1/me?x=1", nil)
	for _, email := range []string{"x", "a@b@c", "Ann <ann@example.com>", "a\n@example.com", "ä@example.com", ""} {
		owner.wantStatus(http.StatusUnprocessableEntity, "POST", "/api/v1/organisations/"+shop+"/invitations",
			object{"email": email, "role": "member"})
		f.advance(10 * time.Second)
	}
	for _, name := range []string{"", " ", "a\x00b", "a\u0085b"} {
		owner.wantStatus(http.StatusUnprocessableEntity, "PATCH", "/api/v1/organisations/"+shop, object{"name": name})
	}
	// Forms have the same limits: their inputs pass no schema.
	invited := want[item](owner, "POST", "/api/v1/organisations/"+shop+"/invitations", object{"email": "long@example.com", "role": "member"})
	_, token, _ := strings.Cut(invited.Link, "token=")
	if resp := f.newClient(t).form("/join", url.Values{"token": {token}, "name": {strings.Repeat("x", 101)}, "password": {"password"}}); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a form with a long name: %d", resp.StatusCode)
	}
	// Names are text in pages, whatever they contain.
	want[object](owner, "PATCH", "/api/v1/organisations/"+shop, object{"name": `"><script>alert(1)</script>`})
	if _, text := owner.send("GET", "/", nil); strings.Contains(string(text), "<script>alert") ||
		!strings.Contains(string(text), "&lt;script&gt;") {
		t.Errorf("the page is %s", text)
	}
}

// TestNoSecretsInAnswers looks for hashes and secrets in each answer of the API.
func TestNoSecretsInAnswers(t *testing.T) {
	t.Parallel()
	f := newWorld(t, plainTexts)
	owner, shop := f.owner, f.shop
	base := "/api/v1/organisations/" + shop
	secrets := []string{"$2a$", "password of ann"}
	for path, body := range map[string]object{"/tokens": {"name": "x", "role": "member", "days": 1},
		"/hosts":       {"name": "h", "kind": "host", "days": 1},
		"/invitations": {"email": "x@example.com", "role": "member"}} {
		made := want[item](owner, "POST", base+path, body)
		_, token, _ := strings.Cut(made.Link, "token=")
		secret := made.Secret + token
		secrets = append(secrets, secret, store.Hash(secret))
	}
	for _, c := range owner.http.Jar.Cookies(mustURL(t, f.URL)) {
		secrets = append(secrets, c.Value, store.Hash(c.Value))
	}
	checked := 0
	for _, r := range f.Routes() {
		if r.Method != "GET" || r.Open || r.Stream || strings.Contains(r.Path, "{provider}") { // which leads elsewhere
			continue
		}
		id := cmp.Or(requests[r.Operation].id, pageIDs[r.Operation])
		if id == "{recorded}" {
			id = f.host
		} else {
			id = makeSubject(t, owner, shop, id)
		}
		status, text := owner.send("GET", strings.ReplaceAll(f.path(r.Path), "{id}", id), nil)
		if status != http.StatusOK {
			t.Errorf("%s: %d", r.Path, status)
		}
		checked++
		for _, secret := range secrets {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s contains %.12s…: %s", r.Path, secret, text)
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d routes were checked", checked)
	}
	for _, e := range f.events(t) {
		text := fmt.Sprintf("%+v", e)
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the ledger contains %.12s…: %s", secret, text)
			}
		}
	}
}

// TestNothingUnrecorded: a change that cannot be recorded is not made.
func TestNothingUnrecorded(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	if err := f.Ledger.Close(); err != nil {
		t.Fatal(err)
	}
	owner.wantStatus(http.StatusServiceUnavailable, "PATCH", "/api/v1/organisations/"+shop, object{"name": "Changed"})
	got := want[itemList](owner, "GET", "/api/v1/organisations", nil)
	if len(got.Items) != 1 || got.Items[0].Name != "Shop" {
		t.Errorf("got %+v", got)
	}
}

// TestDocumentedAPI: the OpenAPI document has every route, with what it needs.
func TestDocumentedAPI(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	_, text := f.newClient(t).send("GET", "/openapi.json", nil)
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Security    []map[string][]string
		}
	}
	if err := json.Unmarshal(text, &document); err != nil || !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Fatalf("%v: %.200s", err, text)
	}
	for _, r := range f.Routes() {
		if r.Page {
			continue
		}
		o, ok := document.Paths[r.Path][strings.ToLower(r.Method)]
		if !ok || o.OperationID != r.Operation || (len(o.Security) == 0) != r.Open {
			t.Errorf("%s %s is documented as %+v", r.Method, r.Path, o)
		}
	}
}

// TestAttackComesBack: an admin that is removed or loses its role has no way back by an invitation of its own.
func TestAttackComesBack(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop
	for i, undo := range []func(admin *client){
		func(admin *client) { want[object](owner, "DELETE", base+"/members/"+admin.account.ID, nil) },
		func(admin *client) {
			want[object](owner, "PUT", base+"/members/"+admin.account.ID, object{"role": "member"})
		},
	} {
		admin := owner.join(shop, fmt.Sprintf("admin%d@example.com", i), "admin")
		made := want[item](admin, "POST", base+"/invitations", object{"email": fmt.Sprintf("second%d@example.com", i), "role": "admin"})
		undo(admin)
		_, token, _ := strings.Cut(made.Link, "token=")
		f.newClient(t).wantStatus(http.StatusForbidden, "POST", "/api/v1/signup", object{"token": token, "name": "x",
			"password": "password"})
	}
}

// TestAttackManyAddresses: guesses at one account are limited however many addresses they come from.
func TestAttackManyAddresses(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	f.setUp(t)
	for range 20 {
		f.newClient(t).wantStatus(http.StatusUnauthorized, "POST", "/api/v1/login",
			object{"email": "ANN@example.com", "password": "password"})
	}
	f.newClient(t).wantStatus(http.StatusTooManyRequests, "POST", "/api/v1/login",
		object{"email": "ann@example.com", "password": "password of ann"})
}

// TestConsoleOrigin: pages of exactly the configured origin may use the API with the session, and no others.
func TestConsoleOrigin(t *testing.T) {
	t.Parallel()
	const console = "https://console.example.com"
	f := startServer(t)
	f.Console = console
	h := httptest.NewServer(f.Handler())
	t.Cleanup(h.Close)
	for _, c := range []struct {
		method, path, origin string
		status               int
		allowed              bool
	}{
		{"OPTIONS", "/api/v1/me", console, http.StatusNoContent, true},
		{"GET", "/api/v1/me", console, http.StatusUnauthorized, true},
		{"POST", "/api/v1/logout", console, http.StatusUnauthorized, true},
		{"POST", "/api/v1/logout", "https://console.example.com.evil.example", http.StatusForbidden, false},
		{"POST", "/api/v1/logout", "http://console.example.com", http.StatusForbidden, false},
		{"OPTIONS", "/api/v1/me", "https://evil.example", http.StatusMethodNotAllowed, false},
		{"GET", "/api/v1/me", "https://evil.example", http.StatusUnauthorized, false},
		{"GET", "/api/v1/me", "null", http.StatusUnauthorized, false},
		{"GET", "/api/v1/me", "", http.StatusUnauthorized, false},
		{"GET", "/login", console, http.StatusOK, false},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, h.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = mustURL(t, f.URL).Host
		req.Header.Set("Access-Control-Request-Method", "GET")
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		origin, credentials := resp.Header.Get("Access-Control-Allow-Origin"),
			resp.Header.Get("Access-Control-Allow-Credentials")
		if resp.StatusCode != c.status || (origin == console) != c.allowed || (credentials == "true") != c.allowed {
			t.Errorf("%+v: %d, %q, %q", c, resp.StatusCode, origin, credentials)
		}
	}
	for _, origin := range []string{"*", "https://a.example/", "http://a.example", "null", "a.example"} {
		c := f.Config
		c.Console = origin
		if _, err := control.New(c); err == nil {
			t.Errorf("the origin %q is accepted", origin)
		}
	}
}

// TestSecretFields: no type of an answer has a field for a secret, apart from those that show a new one once.
func TestSecretFields(t *testing.T) {
	t.Parallel()
	counts := []string{"inputTokens", "outputTokens"} // of a model
	once := []string{"add-token secret", "list-tokens secret", "add-host secret", "list-hosts secret",
		"invite link"}
	word := regexp.MustCompile(`(?i)password|secret|hash|sealed|token|record|verifier|nonce|private|client_id`)
	checked := 0
	for _, r := range startServer(t).Routes() {
		if r.Answer == nil {
			continue
		}
		checked++
		filled := reflect.New(r.Answer).Elem()
		fillValue(filled, 0)
		if body := filled.FieldByName("Body"); body.IsValid() {
			filled = body
		} else {
			continue // an answer without a body
		}
		if filled.Kind() == reflect.Func {
			continue // a stream
		}
		text, err := json.Marshal(filled.Interface())
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range regexp.MustCompile(`"([^"]+)":`).FindAllStringSubmatch(string(text), -1) {
			if word.MatchString(field[1]) && !slices.Contains(counts, field[1]) && !slices.Contains(once, r.Operation+" "+field[1]) {
				t.Errorf("%s answers with %q: %s", r.Operation, field[1], text)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d routes", checked)
	}
}

// fillValue sets every field to something that is not empty.
func fillValue(v reflect.Value, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte("1"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0), depth+1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Now()))
			return
		}
		for i := range v.NumField() {
			fillValue(v.Field(i), depth+1)
		}
	}
}
