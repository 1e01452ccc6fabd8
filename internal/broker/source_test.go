//go:build linux || darwin

package broker

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"bailey"
)

// TestToken checks that a token is one word, and that a newline at its end is not part of it.
func TestToken(t *testing.T) {
	h := newHouse(t, strings.Replace(table(), `free: {literal: "`+value+`"`, `free: {token: {file: api}`, 1))
	for text, want := range map[string]string{value: value, value + "\n": value, value + "\r\n": value, "a b": "", value + "\n\n": "", "x\ny": "", "\n": "", "é": ""} {
		if err := os.WriteFile(filepath.Join(h.dir, "api"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lease, err := h.client.Lend(t.Context(), loanOf("", nil, "free"))
		if want == "" {
			if err == nil {
				t.Errorf("%q was lent", text)
			}
			silent(t, err)
			continue
		}
		if err != nil || lease.Secrets[0].Reveal() != want {
			t.Errorf("%q: %v", text, err)
		}
		lease.Return()
	}
}

// apiServer answers a TokenRequest like a Kubernetes API server, with the same checks.
type apiServer struct {
	token string
	mu    sync.Mutex // guards the following fields
	seen  []tokenRequest
	reply func(w http.ResponseWriter) bool // if it returns true, it has replied instead
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refuse := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"%s"}`, reason, code, value)
	}
	var ask tokenRequest
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch {
	case a.reply != nil && a.reply(w):
	case r.Header.Get("Authorization") != "Bearer own-credential":
		refuse(http.StatusUnauthorized, "Unauthorized")
	case r.Method != http.MethodPost:
		refuse(http.StatusMethodNotAllowed, "MethodNotAllowed")
	case r.URL.Path != "/api/v1/namespaces/web/serviceaccounts/reader/token":
		refuse(http.StatusNotFound, "NotFound")
	case r.Header.Get("Content-Type") != "application/json" || d.Decode(&ask) != nil || ask.APIVersion != "authentication.k8s.io/v1" || ask.Kind != "TokenRequest":
		refuse(http.StatusBadRequest, "BadRequest")
	case ask.Spec.ExpirationSeconds < 600 || ask.Spec.ExpirationSeconds > 1<<32:
		refuse(http.StatusUnprocessableEntity, "Invalid") // "may not specify a duration less than 10 minutes"
	default:
		a.seen = append(a.seen, ask)
		ask.Status.Token, ask.Status.ExpirationTimestamp = a.token, time.Now().Add(time.Duration(ask.Spec.ExpirationSeconds)*time.Second).UTC().Truncate(time.Second)
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(ask)
	}
}

// TestKubectl checks that a token is requested in the form of the API server, over TLS with the authority of the table,
// for at least the ten minutes that the API requires. The journal must hold the token's own name and its remaining
// lifetime.
func TestKubectl(t *testing.T) {
	api := &apiServer{token: "eyJhbGciOiJub25lIn0.eyJqdGkiOiJ0b2tlbi1uYW1lIn0." + value}
	server := httptest.NewUnstartedServer(api)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	h := newHouse(t, strings.Replace(table(), `free: {literal: "`+value+`", scope: anything, ttl: 1m`,
		`free: {kubectl: {server: "`+server.URL+`", ca: ca.pem, credential: own, namespace: web, account: reader, audiences: [api]}, scope: read pods, ttl: 5m`, 1))
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		os.Remove(filepath.Join(h.dir, name))
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	put("ca.pem", ca, 0o644)
	put("own", "own-credential\n", 0o600)
	lease := h.lend(loanOf("", nil, "free"))
	api.mu.Lock()
	if lease.Secrets[0].Reveal() != api.token || len(api.seen) != 1 || api.seen[0].Spec.ExpirationSeconds != 600 || !slices.Equal(api.seen[0].Spec.Audiences, []string{"api"}) {
		t.Errorf("%+v", api.seen)
	}
	api.mu.Unlock()
	lease.Return()
	if j := h.journal(); !strings.Contains(j, `"mint":"token-name"`) || !strings.Contains(j, `"lives":"`) || strings.Contains(j, value) {
		t.Errorf("%s", j)
	}
	adapter, _, err := makeKubectl(func(into any) error {
		return yaml.Unmarshal([]byte(`{server: "`+server.URL+`", ca: ca.pem, credential: own, namespace: web, account: reader, form: kubeconfig}`), into)
	}, h.dir)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := adapter.Mint(t.Context(), time.Minute)
	if err != nil || whole.ID != "token-name" {
		t.Fatal(whole.ID, err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server    string
				Authority []byte `json:"certificate-authority-data"`
			}
		}
		Users    []struct{ User map[string]string }
		Contexts []struct{ Context struct{ Namespace string } }
	}
	if err := json.Unmarshal(whole.Value, &config); err != nil || len(config.Users) != 1 || len(config.Users[0].User) != 1 || config.Users[0].User["token"] != api.token ||
		config.Clusters[0].Cluster.Server != server.URL || string(config.Clusters[0].Cluster.Authority) != ca || config.Contexts[0].Context.Namespace != "web" {
		t.Errorf("%s, %v", whole.Value, err)
	}
	answer := func(reply func(http.ResponseWriter) bool) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.reply = reply
	}
	refused := func(what string, kind bailey.Kind, says string) {
		t.Helper()
		h.refused(what, loanOf("", nil, "free"), kind, says)
	}
	for what, c := range map[string]struct {
		reply func(w http.ResponseWriter) bool
		says  string
	}{
		"a redirection": {func(w http.ResponseWriter) bool {
			w.Header().Set("Location", server.URL+"/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, "status 307"},
		"no JSON": {func(w http.ResponseWriter) bool { io.WriteString(w, value); return true }, "is not that of the API server"},
		"no token": {func(w http.ResponseWriter) bool {
			io.WriteString(w, `{"kind":"TokenRequest","status":{}}`)
			return true
		}, "is not that of the API server"},
		"no expiry": {func(w http.ResponseWriter) bool {
			io.WriteString(w, `{"kind":"TokenRequest","status":{"token":"x"}}`)
			return true
		}, "is not that of the API server"},
		"an endless answer": {func(w http.ResponseWriter) bool {
			io.WriteString(w, strings.Repeat(value, maxReply/len(value)+1))
			return true
		}, "truncated"},
		"its own fault": {func(w http.ResponseWriter) bool { http.Error(w, value, http.StatusInternalServerError); return true }, "status 500"},
	} {
		answer(c.reply)
		refused(what, bailey.Unavailable, c.says)
	}
	answer(nil)
	put("own", "another\n", 0o600)
	refused("a credential that does not count", bailey.Unavailable, "status 401")
	put("own", "own-credential\n", 0o644)
	refused("a credential that others can read", bailey.Unavailable, "other users can read it")
	put("own", "own-credential\n", 0o600)
	put("ca.pem", ca, 0o666)
	os.Chmod(filepath.Join(h.dir, "ca.pem"), 0o666)
	refused("an authority that others can change", bailey.Unavailable, "other users can change it")
	put("ca.pem", "nothing", 0o644)
	refused("no authority", bailey.Unavailable, "contains no certificate")
	put("ca.pem", foreign(t), 0o644)
	refused("another authority", bailey.Unavailable, "cannot reach the API server")
	put("ca.pem", ca, 0o644)
	h.lend(loanOf("", nil, "free")).Return()
}

// foreign returns a certificate authority that nothing trusts.
func foreign(t *testing.T) string {
	key := newHolder("foreign").key
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// TestJTI checks that the name of a token is read, and that a malformed token gives an empty name.
func TestJTI(t *testing.T) {
	for token, want := range map[string]string{
		"a.eyJqdGkiOiJ4In0.b": "x", "": "", "a.b": "", "a.!.b": "", "a.eyJqdGkiOjF9.b": "", "a.eyJqdGkiOiJcbiJ9.b": "",
	} {
		if got := tokenID(token); got != want {
			t.Errorf("%q: %q", token, got)
		}
	}
}
