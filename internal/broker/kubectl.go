package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"bailey"
)

// kubectl mints a token of a Kubernetes service account with the TokenRequest API (authentication.k8s.io/v1). Such a
// token cannot be revoked: it is valid until its expiry, which is at least ten minutes ahead.
type kubectl struct {
	irrevocable
	url        string
	audiences  []string
	ca, secret string // files

	server, namespace string
	whole             bool // lent as a kubeconfig that contains the token
}

const (
	minToken     = 600 * time.Second // TokenRequestSpec: expirationSeconds must be at least 10 minutes
	maxReply     = 256 << 10
	tokenTimeout = 10 * time.Second
)

func makeKubectl(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server     string   `yaml:"server"`
		CA         string   `yaml:"ca"`
		Credential string   `yaml:"credential"`
		Namespace  string   `yaml:"namespace"`
		Account    string   `yaml:"account"`
		Audiences  []string `yaml:"audiences"`
		Form       string   `yaml:"form"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := url.Parse(said.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil || server.RawQuery != "" ||
		server.Fragment != "":
		return nil, "", errors.New("server must be an address that begins with https://")
	case said.CA == "" || said.Credential == "":
		return nil, "", errors.New("it needs ca, the file of the server's CA certificate, and credential, the file of the broker's own token")
	case !isLabel(said.Namespace) || !isLabel(said.Account):
		return nil, "", errors.New("it needs namespace and account, as in Kubernetes")
	}
	if said.Form != "" && said.Form != "token" && said.Form != "kubeconfig" {
		return nil, "", errors.New("form must be token, or kubeconfig, which contains the token")
	}
	at := server.JoinPath("api/v1/namespaces", said.Namespace, "serviceaccounts", said.Account, "token")
	k := &kubectl{url: at.String(), audiences: said.Audiences, ca: resolveIn(dir, said.CA),
		secret: resolveIn(dir, said.Credential),
		server: said.Server, namespace: said.Namespace, whole: said.Form == "kubeconfig"}
	about := fmt.Sprintf("kubectl %s/%s of %s", said.Namespace, said.Account, server.Host)
	if k.whole {
		about += ", as a kubeconfig"
	}
	return k, about, nil
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
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	authority, err := readTrusted(k.ca, maxTable)
	if err != nil {
		return Minted{}, err
	}
	client, err := k.newClient(authority)
	if err != nil {
		return Minted{}, err
	}
	defer client.CloseIdleConnections()
	own, err := readPrivate(k.secret, MaxValue)
	if err != nil {
		return Minted{}, err
	}
	defer clear(own)
	ask := tokenRequest{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
	ask.Spec.Audiences, ask.Spec.ExpirationSeconds = k.audiences, int64(max(ttl, minToken)/time.Second)
	body, err := json.Marshal(ask)
	if err != nil {
		return Minted{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, bytes.NewReader(body))
	if err != nil {
		return Minted{}, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(own)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return Minted{}, unavailableError(err, "check server and ca in "+TableName, "cannot reach the API server")
	}
	defer res.Body.Close()
	m, err := k.readToken(res)
	if err == nil && k.whole {
		token := m.Value
		defer clear(token)
		m.Value, err = renderKubeconfig(k.server, k.namespace, authority, string(token))
	}
	return m, err
}

// newClient trusts only the authority in the table, follows no redirect and uses no proxy.
func (k *kubectl) newClient(pem []byte) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, unavailableError(nil, "use the API server's CA certificate in PEM",
			"%s contains no certificate", k.ca)
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// readToken takes the token from a response. Other text of the server is not passed on: it is foreign and may be long.
func (k *kubectl) readToken(res *http.Response) (Minted, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	defer clear(body)
	if err != nil || len(body) > maxReply {
		return Minted{}, unavailableError(err, "check the API server",
			"the API server's answer is truncated, or over %d bytes", maxReply)
	}
	if res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK {
		kind, hint := bailey.Unavailable, "check the API server"
		if res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized {
			kind, hint = bailey.Denied, "allow the broker's own credential the verb create on serviceaccounts/token of this account"
		}
		return Minted{}, kind.Errorf(hint, "the API server issued no token: status %d", res.StatusCode)
	}
	var got tokenRequest
	if err := json.Unmarshal(body, &got); err != nil || got.Kind != "TokenRequest" || got.Status.Token == "" ||
		got.Status.ExpirationTimestamp.IsZero() {
		return Minted{}, unavailableError(nil, "check that server is the API server",
			"the answer is not that of an API server")
	}
	return Minted{Value: []byte(got.Status.Token), ID: tokenID(got.Status.Token),
		Until: got.Status.ExpirationTimestamp.UTC()}, nil
}

// tokenID returns the ID in a JSON web token (RFC 7519, section 4.1.7), for the record. Nothing is verified.
func tokenID(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(b, &claims) != nil || len(claims.ID) > 128 ||
		strings.ContainsFunc(claims.ID, func(r rune) bool { return !isTokenRune(r) }) {
		return ""
	}
	return claims.ID
}

// renderKubeconfig returns a file with which kubectl uses a token at one server and at no other: it contains the
// server, its certificate authority and the token, and names no program. JSON is valid YAML.
func renderKubeconfig(server, namespace string, authority []byte, token string) ([]byte, error) {
	type named map[string]any
	const one = "bailey"
	return json.Marshal(named{
		"apiVersion": "v1", "kind": "Config", "current-context": one,
		"clusters": []named{{"name": one, "cluster": named{"server": server, "certificate-authority-data": authority}}},
		"users":    []named{{"name": one, "user": named{"token": token}}},
		"contexts": []named{{"name": one, "context": named{"cluster": one, "user": one, "namespace": namespace}}},
	})
}
