//go:build linux || darwin

package broker

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"bailey/internal/sigv4"
)

// fakeIssuer is a server that checks what an issuer checks. Its rules are those of the documents that the adapters
// name.
type fakeIssuer struct {
	*httptest.Server
	mu      sync.Mutex
	valid   map[string]string // tokens that are valid now, and what they are for
	asked   []string          // method and path of each request
	skew    time.Duration     // of its clock
	reply   func(http.ResponseWriter, *http.Request) bool
	handler func(*fakeIssuer, http.ResponseWriter, *http.Request)
}

func newFakeIssuer(t *testing.T, handler func(*fakeIssuer, http.ResponseWriter, *http.Request)) *fakeIssuer {
	f := &fakeIssuer{valid: map[string]string{}, handler: handler}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	reply := f.reply
	f.mu.Unlock()
	if reply != nil && reply(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler(f, w, r)
}

func (f *fakeIssuer) now() time.Time { return time.Now().Add(f.skew) }

// issue makes a token that is valid from now on. Each contains the value that must be shown nowhere.
func (f *fakeIssuer) issue(purpose string) string {
	token := fmt.Sprintf("%s-%d", value, len(f.asked))
	f.valid[token] = purpose
	return token
}

func (f *fakeIssuer) isValid(token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.valid[token] != ""
}

func (f *fakeIssuer) setReply(reply func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reply = reply
}

func (f *fakeIssuer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}))
}

func bearerOf(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// readJSON decodes a request strictly.
func readJSON(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// appKey is the key of GitHub App and of the Google service account.
var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// revokedKey is a key that the issuers do not know any more.
var revokedKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func appKeyPEM() string     { return rsaPEM(appKey()) }
func revokedKeyPEM() string { return rsaPEM(revokedKey()) }

func rsaPEM(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// claimsOf verifies an assertion and returns its claims: the signature, and that it is valid now for at most the given
// time.
func claimsOf(jwt string, now time.Time, most time.Duration) (map[string]any, error) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%d parts", len(parts))
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&appKey().PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		return nil, err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, err
	}
	iat, exp := int64(claims["iat"].(float64)), int64(claims["exp"].(float64))
	if now.Unix() < iat || now.Unix() >= exp || time.Duration(exp-now.Unix())*time.Second > most {
		return nil, fmt.Errorf("not valid at %v: %v to %v", now.Unix(), iat, exp)
	}
	return claims, nil
}

// serveGitHub is the part of GitHub's API that an App uses.
func serveGitHub(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /app/installations/7/access_tokens":
		// "Expiration time is too far in the future": more than ten minutes. "Issued at must be an integer in the past".
		claims, err := claimsOf(bearerOf(r), f.now(), 10*time.Minute)
		if err != nil || claims["iss"] != "Iv1.app" {
			writeJSON(w, 401, map[string]string{"message": "A JSON web token could not be decoded " + value})
			return
		}
		var ask struct {
			Repositories []string          `json:"repositories"`
			Permissions  map[string]string `json:"permissions"`
		}
		outside := func(name string) bool { return name != "web" && name != "api" }
		if readJSON(r, &ask) != nil || len(ask.Repositories) == 0 || slices.ContainsFunc(ask.Repositories, outside) ||
			ask.Permissions["contents"] == "admin" || len(ask.Permissions) == 0 {
			writeJSON(w, 422, map[string]string{"message": "The permissions requested are not granted to this installation."})
			return
		}
		ask.Permissions["metadata"] = "read"
		repositories := []map[string]string{}
		for _, name := range ask.Repositories {
			repositories = append(repositories, map[string]string{"name": name, "full_name": "octo/" + name})
		}
		writeJSON(w, 201, map[string]any{"token": f.issue("github"),
			"expires_at":  f.now().Add(time.Hour).UTC().Truncate(time.Second),
			"permissions": ask.Permissions, "repository_selection": "selected", "repositories": repositories})
	case "DELETE /installation/token":
		if f.valid[bearerOf(r)] != "github" {
			writeJSON(w, 401, map[string]string{"message": "Bad credentials"})
			return
		}
		delete(f.valid, bearerOf(r))
		w.WriteHeader(204)
	default:
		writeJSON(w, 404, map[string]string{"message": "Not Found"})
	}
}

// serveVault has one role, a secret of the key-value engine, and an engine that makes passwords of a database.
func serveVault(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	refuse := func(status int) {
		writeJSON(w, status, map[string]any{"errors": []string{"permission denied " + value}})
	}
	token := r.Header.Get("X-Vault-Token")
	if r.Method+" "+r.URL.Path == "POST /v1/auth/approle/login" {
		var ask map[string]string
		if readJSON(r, &ask) != nil || ask["role_id"] != "agents" || ask["secret_id"] != "own-credential" {
			refuse(400) // "invalid role or secret ID"
			return
		}
		writeJSON(w, 200, map[string]any{"auth": map[string]any{"client_token": f.issue("login"), "lease_duration": 600}})
		return
	}
	if f.valid[token] != "login" && token != "root-token" {
		refuse(403)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/secret/data/app":
		writeJSON(w, 200, map[string]any{"data": map[string]any{"data": map[string]string{"password": value},
			"metadata": map[string]any{"version": 3}}})
	case "GET /v1/database/creds/app":
		made := f.issue("password of " + token)
		writeJSON(w, 200, map[string]any{"lease_id": "database/creds/app/" + strconv.Itoa(len(f.asked)),
			"lease_duration": 3600,
			"data":           map[string]string{"username": "v-agents", "password": made}})
	case "POST /v1/auth/token/revoke-self": // and everything that was made with it
		delete(f.valid, token)
		for made, purpose := range f.valid {
			if purpose == "password of "+token {
				delete(f.valid, made)
			}
		}
		w.WriteHeader(204)
	case "PUT /v1/sys/leases/revoke":
		var ask map[string]string
		if readJSON(r, &ask) != nil || !strings.HasPrefix(ask["lease_id"], "database/creds/app/") {
			refuse(400)
			return
		}
		delete(f.valid, value+"-"+strings.TrimPrefix(ask["lease_id"], "database/creds/app/"))
		w.WriteHeader(204)
	default:
		refuse(404)
	}
}

// serveAWS is the Security Token Service.
func serveAWS(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w,
			`<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, code, value)
	}
	body, _ := io.ReadAll(r.Body)
	form, err := url.ParseQuery(string(body))
	if err != nil || r.Method != "POST" || r.URL.Path != "/" {
		refuse(400, "MalformedInput")
		return
	}
	seconds, _ := strconv.Atoi(form.Get("DurationSeconds"))
	answer := "AssumeRole"
	if form.Get("Action") == "AssumeRoleWithWebIdentity" {
		answer = form.Get("Action")
		if form.Get("WebIdentityToken") != "own-credential" || r.Header.Get("Authorization") != "" {
			refuse(400, "InvalidIdentityToken")
			return
		}
	} else {
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || at.Sub(f.now()).Abs() > 5*time.Minute { // "Signature expired", "Signature not yet current"
			refuse(403, "SignatureDoesNotMatch")
			return
		}
		again, _ := http.NewRequest(r.Method, f.URL+"/", nil)
		for _, name := range strings.Split(strings.Split(strings.Split(r.Header.Get("Authorization")+"SignedHeaders=,", "SignedHeaders=")[1], ",")[0], ";") {
			if v := r.Header.Get(name); v != "" {
				again.Header.Set(name, v)
			}
		}
		sigv4.Signer{Credentials: sigv4.Credentials{ID: "AKIDEXAMPLE", Secret: "own-credential"},
			Region: "eu-central-1", Service: "sts"}.Sign(again, body, at)
		if again.Header.Get("Authorization") != r.Header.Get("Authorization") {
			refuse(403, "SignatureDoesNotMatch")
			return
		}
	}
	switch {
	case seconds < 900 || seconds > 43200 || form.Get("Version") != "2011-06-15" || len(form.Get("RoleSessionName")) < 2:
		refuse(400, "ValidationError")
	case form.Get("RoleArn") != "arn:aws:iam::123456789012:role/agents" ||
		form.Has("Policy") && !json.Valid([]byte(form.Get("Policy"))):
		refuse(403, "AccessDenied")
	default:
		type creds struct {
			AccessKeyId, SecretAccessKey, SessionToken string
			Expiration                                 time.Time
		}
		c := creds{"ASIAIOSFODNN7EXAMPLE", f.issue("aws"), "FwoGZXIvYXdzEJr=",
			f.now().Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second)}
		var text strings.Builder
		xml.NewEncoder(&text).EncodeElement(c, xml.StartElement{Name: xml.Name{Local: "Credentials"}})
		fmt.Fprintf(w,
			`<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>`, answer, text.String())
	}
}

// serveGoogle is Google's token endpoint, the IAM credentials API and the Security Token Service.
func serveGoogle(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		writeJSON(w, status, map[string]string{"error": code, "error_description": value})
	}
	r.ParseForm()
	switch r.Method + " " + r.URL.Path {
	case "POST /token":
		claims, err := claimsOf(r.PostForm.Get("assertion"), f.now(), time.Hour)
		if err != nil || claims["iss"] != "broker@p.iam.gserviceaccount.com" || claims["aud"] != f.URL+"/token" ||
			r.PostForm.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			refuse(400, "invalid_grant")
			return
		}
		writeJSON(w, 200, tokenAnswer{AccessToken: f.issue("own"), ExpiresIn: 3599, TokenType: "Bearer"})
	case "POST /v1/projects/-/serviceAccounts/agents@p.iam.gserviceaccount.com:generateAccessToken":
		var ask struct {
			Scope    []string `json:"scope"`
			Lifetime string   `json:"lifetime"`
		}
		d, err := time.ParseDuration("0s")
		if readJSON(r, &ask) == nil {
			d, err = time.ParseDuration(ask.Lifetime)
		}
		if f.valid[bearerOf(r)] != "own" || err != nil || d <= 0 || d > time.Hour || len(ask.Scope) == 0 {
			refuse(403, "PERMISSION_DENIED")
			return
		}
		writeJSON(w, 200, map[string]any{"accessToken": f.issue("google"),
			"expireTime": f.now().Add(d).UTC().Truncate(time.Second)})
	case "POST /v1/token":
		if f.valid[r.PostForm.Get("subject_token")] != "google" || r.PostForm.Get("grant_type") != grantExchange ||
			!strings.Contains(r.PostForm.Get("options"), `"availableResource"`) {
			refuse(400, "invalid_request")
			return
		}
		writeJSON(w, 200, tokenAnswer{AccessToken: f.issue("narrow"), TokenType: "Bearer"})
	default:
		refuse(404, "NOT_FOUND")
	}
}

// serveTokens is a token endpoint with revocation (RFC 8693, RFC 7009), and that of Entra.
func serveTokens(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		writeJSON(w, status, map[string]string{"error": code, "error_description": value})
	}
	r.ParseForm()
	form := r.PostForm
	user, pass, _ := r.BasicAuth()
	switch r.URL.Path {
	case "/oauth2/token":
		switch {
		case user != "bailey" || pass != "own-credential":
			refuse(401, "invalid_client")
		case form.Get("grant_type") != grantExchange || form.Get("subject_token") != "workload" ||
			form.Get("audience") != "https://api.example":
			refuse(400, "invalid_grant")
		default:
			writeJSON(w, 200, tokenAnswer{AccessToken: f.issue("exchanged"), ExpiresIn: 300, Scope: form.Get("scope"),
				TokenType: "Bearer"})
		}
	case "/oauth2/revoke":
		if user != "bailey" || pass != "own-credential" {
			refuse(401, "invalid_client")
			return
		}
		delete(f.valid, form.Get("token"))
	case "/tenant-1/oauth2/v2.0/token":
		if form.Get("client_assertion") != "own-credential" || form.Get("client_id") != "app-1" ||
			form.Get("scope") != "https://management.azure.com/.default" ||
			form.Get("grant_type") != "client_credentials" {
			refuse(401, "invalid_client")
			return
		}
		writeJSON(w, 200, tokenAnswer{AccessToken: f.issue("azure"), ExpiresIn: 3599, TokenType: "Bearer"})
	default:
		refuse(404, "not_found")
	}
}

// serveInfisical has one identity and one secret.
func serveInfisical(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /api/v1/auth/universal-auth/login":
		var ask map[string]string
		if readJSON(r, &ask) != nil || ask["clientId"] != "bailey" || ask["clientSecret"] != "own-credential" {
			writeJSON(w, 401, map[string]any{"error": "Unauthorized", "message": value})
			return
		}
		writeJSON(w, 200, map[string]any{"accessToken": f.issue("login"), "expiresIn": 7200, "tokenType": "Bearer"})
	case "GET /api/v3/secrets/raw/DB_PASSWORD":
		q := r.URL.Query()
		if f.valid[bearerOf(r)] != "login" || q.Get("workspaceId") != "p1" || q.Get("environment") != "prod" ||
			q.Get("secretPath") != "/app" {
			writeJSON(w, 403, map[string]any{"error": "PermissionDenied", "message": value})
			return
		}
		writeJSON(w, 200, map[string]any{"secret": map[string]any{"id": "abc", "version": 2,
			"secretKey": "DB_PASSWORD", "secretValue": f.issue("secret")}})
	default:
		writeJSON(w, 404, map[string]any{"error": "NotFound"})
	}
}

// serveArgoCD has a project with a role. A token of it is known by the time at which it was issued, and by its id.
func serveArgoCD(f *fakeIssuer, w http.ResponseWriter, r *http.Request) {
	const path = "/api/v1/projects/shop/roles/agents/token"
	var ask struct{ Project, Role, Description, ExpiresIn string }
	switch {
	case bearerOf(r) != "own-credential":
		writeJSON(w, 401, map[string]any{"error": "invalid session", "code": 16})
	case r.Method == "POST" && r.URL.Path == path:
		seconds := 0
		if readJSON(r, &ask) == nil && ask.Project == "shop" && ask.Role == "agents" {
			seconds, _ = strconv.Atoi(ask.ExpiresIn)
		}
		if seconds <= 0 {
			writeJSON(w, 400, map[string]any{"error": "expiresIn", "code": 3})
			return
		}
		now := f.now().Unix()
		id := fmt.Sprintf("t-%d", len(f.asked))
		secret := f.issue(fmt.Sprintf("%d %s", now, id))
		claims, _ := json.Marshal(map[string]any{"iss": "argocd", "sub": "proj:shop:agents", "iat": now, "exp": now + int64(seconds), "jti": id})
		writeJSON(w, 200, map[string]string{"token": "e30." + base64.RawURLEncoding.EncodeToString(claims) + "." + secret})
	case r.Method == "DELETE" && strings.HasPrefix(r.URL.Path, path+"/"):
		for token, issued := range f.valid {
			if issued == strings.TrimPrefix(r.URL.Path, path+"/")+" "+r.URL.Query().Get("id") {
				delete(f.valid, token)
				writeJSON(w, 200, map[string]any{})
				return
			}
		}
		writeJSON(w, 404, map[string]any{"error": "NotFound", "code": 5})
	default:
		writeJSON(w, 404, map[string]any{"error": "NotFound", "code": 5})
	}
}

// issuerCase is an adapter with its issuer.
type issuerCase struct {
	handler   func(*fakeIssuer, http.ResponseWriter, *http.Request)
	entry     string            // of the table; URL stands for the server
	files     map[string]string // of the broker
	own       string            // the file with the broker's own credential
	unchecked bool              // the issuer does not look at the broker's clock
	revocable bool
	value     string // a part of the lent value besides the token
}

func issuerCases() map[string]issuerCase {
	google := fmt.Sprintf(`{"type": "service_account", "client_email": "broker@p.iam.gserviceaccount.com", "private_key_id": "k1", "private_key": %q}`, appKeyPEM())
	secret := map[string]string{"own": "own-credential\n"}
	return map[string]issuerCase{
		"github": {handler: serveGitHub,
			entry: `github: {server: URL, ca: ca.pem, app: Iv1.app, key: own, installation: 7, repositories: [web], permissions: {contents: read}}`,
			files: map[string]string{"own": appKeyPEM()}, own: "own", revocable: true},
		"vault": {handler: serveVault,
			entry: `vault: {server: URL, ca: ca.pem, appRole: {role: agents, secret: own}, path: database/creds/app, field: password}`,
			files: secret, own: "own", unchecked: true, revocable: true},
		"vault with a token": {handler: serveVault,
			entry: `vault: {server: URL, ca: ca.pem, token: own, path: database/creds/app}`,
			files: map[string]string{"own": "root-token"}, own: "own", unchecked: true, revocable: true, value: `"username":"v-agents"`},
		"vault, a stored secret": {handler: serveVault,
			entry: `vault: {server: URL, ca: ca.pem, appRole: {role: agents, secret: own}, path: secret/data/app, field: password}`,
			files: secret, own: "own", unchecked: true},
		"aws": {handler: serveAWS,
			entry: `aws: {server: URL, ca: ca.pem, role: "arn:aws:iam::123456789012:role/agents", region: eu-central-1, keys: own, policy: policy.json}`,
			files: map[string]string{"own": "[other]\naws_access_key_id=x\n[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = own-credential\n",
				"policy.json": `{"Version":"2012-10-17","Statement":[]}`}, own: "own", value: "aws_session_token = FwoGZXIvYXdzEJr="},
		"aws with a web identity": {handler: serveAWS,
			entry: `aws: {server: URL, ca: ca.pem, role: "arn:aws:iam::123456789012:role/agents", region: eu-central-1, token: own, policy: policy.json}`,
			files: map[string]string{"own": "own-credential",
				"policy.json": `{}`}, own: "own", unchecked: true, value: "aws_access_key_id = ASIAIOSFODNN7EXAMPLE"},
		"gcloud": {handler: serveGoogle,
			entry: `gcloud: {login: URL, iam: URL, sts: URL, ca: ca.pem, account: agents@p.iam.gserviceaccount.com, key: own, scopes: [https://www.googleapis.com/auth/devstorage.read_only]}`,
			files: map[string]string{"own": google}, own: "own"},
		"gcloud, narrowed": {handler: serveGoogle,
			entry: `gcloud: {login: URL, iam: URL, sts: URL, ca: ca.pem, account: agents@p.iam.gserviceaccount.com, key: own, scopes: [https://www.googleapis.com/auth/cloud-platform],
      boundary: [{resource: "//storage.googleapis.com/projects/_/buckets/b",
	permissions: ["inRole:roles/storage.objectViewer"]}]}`,
			files: map[string]string{"own": google}, own: "own"},
		"azure": {handler: serveTokens,
			entry: `azure: {server: URL, ca: ca.pem, tenant: tenant-1, client: app-1, token: own, resource: https://management.azure.com, form: headers}`,
			files: secret, own: "own", unchecked: true, value: `{"Authorization":"Bearer `},
		"exchange": {handler: serveTokens,
			entry: `exchange: {server: URL, ca: ca.pem, path: oauth2/token, revoke: oauth2/revoke, client: bailey, secret: own, subject: workload, audience: https://api.example, scopes: [read]}`,
			files: map[string]string{"own": "own-credential",
				"workload": "workload"}, own: "own", unchecked: true, revocable: true},
		"argocd": {handler: serveArgoCD, entry: `argocd: {server: URL, ca: ca.pem, token: own, project: shop, role: agents}`,
			files: secret, own: "own", unchecked: true, revocable: true, value: `"auth-token"`},
		"kubectl": {handler: serveCluster,
			entry: `kubectl: {server: URL, ca: ca.pem, credential: own, namespace: dev, account: agents, form: kubeconfig}`,
			files: secret, own: "own", unchecked: true, value: `"namespace":"dev"`},
		"infisical": {handler: serveInfisical,
			entry: `infisical: {server: URL, ca: ca.pem, client: bailey, secret: own, project: p1, environment: prod, path: /app, name: DB_PASSWORD}`,
			files: secret, own: "own", unchecked: true},
	}
}

// isLentAsFile reports whether the tool of an adapter reads a file.
func isLentAsFile(name string) bool {
	first, _, _ := strings.Cut(name, " ")
	return slices.Contains([]string{"aws", "gcloud", "azure", "kubectl", "argocd"}, strings.TrimSuffix(first, ","))
}

// revocableCases are the names of the adapters whose issuer can revoke.
func revocableCases() (names []string) {
	for name, c := range issuerCases() {
		if c.revocable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// begin starts the issuer and makes the adapter.
func (c issuerCase) begin(t *testing.T) (*fakeIssuer, Adapter, string) {
	t.Helper()
	f := newFakeIssuer(t, c.handler)
	dir := t.TempDir()
	for name, text := range c.files {
		putPrivate(t, dir, name, text)
	}
	putPrivate(t, dir, "ca.pem", f.authority())
	name, rest, _ := strings.Cut(strings.ReplaceAll(c.entry, "URL", f.URL), ": ")
	a, summary, err := Adapters()[name](func(into any) error {
		return yaml.UnmarshalWithOptions([]byte(rest), into,
			yaml.Strict())
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	shown(t, "the summary", summary)
	silent(t, a)
	return f, a, dir
}
