package broker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// kubectl mints a token of a Kubernetes service account with the TokenRequest API (authentication.k8s.io/v1). Such a
// token cannot be revoked: it is valid until its expiry, which is at least ten minutes ahead.
type kubectl struct {
	irrevocable
	issuer
	path      string
	audiences []string
	secret    string // file

	account    string
	namespace  string
	namespaces []string // that have an account of this name for their own calls
	whole      bool     // lent as a kubeconfig that contains the token
}

const minToken = 600 * time.Second // TokenRequestSpec: expirationSeconds must be at least 10 minutes

func makeKubectl(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server     string   `yaml:"server"`
		CA         string   `yaml:"ca"`
		Credential string   `yaml:"credential"`
		Namespace  string   `yaml:"namespace"`
		Namespaces []string `yaml:"namespaces"`
		Account    string   `yaml:"account"`
		Audiences  []string `yaml:"audiences"`
		Form       string   `yaml:"form"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("the API server", said.Server, said.CA, dir)
	switch {
	case err != nil:
		return nil, "", err
	case said.CA == "" || said.Credential == "":
		return nil, "", errors.New(
			"it needs ca, the file of the server's CA certificate, and credential, the file of the broker's own token",
		)
	case !isLabel(said.Namespace) || !isLabel(said.Account):
		return nil, "", errors.New("it needs namespace and account, as in Kubernetes")
	case slices.ContainsFunc(said.Namespaces, func(n string) bool { return !isLabel(n) }):
		return nil, "", errors.New("namespaces must be names of namespaces that have the account too")
	}
	if said.Form != "" && said.Form != "token" && said.Form != "kubeconfig" {
		return nil, "", errors.New("form must be token, or kubeconfig, which contains the token")
	}
	k := &kubectl{
		issuer:     server,
		account:    said.Account,
		audiences:  said.Audiences,
		secret:     resolveIn(dir, said.Credential),
		namespaces: said.Namespaces,
		whole:      said.Form == "kubeconfig",
	}
	k.setNamespace(said.Namespace)
	about := fmt.Sprintf("kubectl %s/%s of %s", said.Namespace, said.Account, server.base.Host)
	if len(k.namespaces) > 0 {
		about += ", in calls for " + strings.Join(k.namespaces, ", ") + " the account there"
	}
	if k.whole {
		about += ", as a kubeconfig"
	}
	return k, about, nil
}

// setNamespace sets the namespace of the account, which is also that of calls without one.
func (k *kubectl) setNamespace(name string) {
	k.namespace = name
	k.path = "api/v1/namespaces/" + name + "/serviceaccounts/" + k.account + "/token"
}

// isLabel reports whether s is a Kubernetes name (RFC 1123). Such names become part of a path here.
func isLabel(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" &&
		strings.Trim(s, ".") != ""
}

// tokenRequest is the part of authentication.k8s.io/v1 TokenRequest that is sent and read here.
type tokenRequest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Audiences         []string `json:"audiences,omitempty"`
		ExpirationSeconds int64    `json:"expirationSeconds"`
	} `json:"spec"`
	Status struct {
		Token               string    `json:"token"`
		ExpirationTimestamp time.Time `json:"expirationTimestamp"`
	} `json:"status,omitzero"`
}

func (k *kubectl) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	own, err := readSecret(k.secret)
	if err != nil {
		return Minted{}, err
	}
	ask := tokenRequest{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
	ask.Spec.Audiences, ask.Spec.ExpirationSeconds = k.audiences, int64(max(ttl, minToken)/time.Second)
	body, header := jsonBody(ask, map[string]string{"Authorization": "Bearer " + own})
	var got tokenRequest
	if err := k.sendRequest(ctx, exchange{method: http.MethodPost, path: k.path, header: header, body: body, into: &got,
		reason: jsonCode("reason"),
		cure:   "allow the broker's own credential the verb create on serviceaccounts/token of this account"}); err != nil {
		return Minted{}, err
	}
	if got.Kind != "TokenRequest" || got.Status.Token == "" || got.Status.ExpirationTimestamp.IsZero() {
		return Minted{}, k.strangeAnswer()
	}
	m := Minted{
		Value: []byte(got.Status.Token),
		ID:    tokenID(got.Status.Token),
		Until: got.Status.ExpirationTimestamp.UTC(),
	}
	if k.whole {
		defer clear(m.Value)
		m.Value, err = k.renderKubeconfig(got.Status.Token)
	}
	return m, err
}

// tokenID returns the ID in a JSON web token (RFC 7519, section 4.1.7), for the record.
func tokenID(token string) string { return tokenClaim(token, "jti") }

// tokenClaim returns a short claim of a JSON web token. Nothing is verified.
func tokenClaim(token, name string) string {
	var claims map[string]any
	if !tokenClaims(token, &claims) {
		return ""
	}
	id, _ := claims[name].(string)
	if len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return !isTokenRune(r) }) {
		return ""
	}
	return id
}

// tokenClaims decodes the claims of a JSON web token. Nothing is verified.
func tokenClaims(token string, into any) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && json.Unmarshal(b, into) == nil
}

// renderKubeconfig returns a file with which kubectl uses a token at one server and at no other: it contains the
// server, its certificate authority and the token, and names no program. JSON is valid YAML.
func (k *kubectl) renderKubeconfig(token string) ([]byte, error) {
	authority, err := readTrusted(k.ca, maxTable)
	if err != nil {
		return nil, err
	}
	type named map[string]any
	const one = "bailey"
	return json.Marshal(named{
		"apiVersion": "v1", "kind": "Config", "current-context": one,
		"clusters": []named{
			{"name": one, "cluster": named{"server": k.base.String(), "certificate-authority-data": authority}},
		},
		"users":    []named{{"name": one, "user": named{"token": token}}},
		"contexts": []named{{"name": one, "context": named{"cluster": one, "user": one, "namespace": k.namespace}}},
	})
}
