package broker

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// github issues tokens of a GitHub App's installation, limited to repositories and permissions
// (https://docs.github.com/en/rest/apps/apps#create-an-installation-access-token-for-an-app). GitHub decides their
// lifetime: one hour. They are revoked with the token itself.
type github struct {
	issuer
	app          string // client id or app id
	key          string // file of the app's private key
	installation int64
	owner        string   // of the installation, or ""
	repositories []string // names without the owner
	permissions  map[string]string
	wanted       []string // OWNER/NAME of repositories that a call names
	parsed       *keptKey
}

// keptKey is a private key as it was parsed last, and the last assertion that it signed: to check a key and to sign each
// take longer than the rest of a loan. Its file is read for each loan, and another key there forgets both.
type keptKey struct {
	mu  sync.Mutex
	sum [sha256.Size]byte // digest of its text
	key *rsa.PrivateKey

	jwt    string
	id     string // of the key
	says   map[string]string
	signed time.Time // when jwt was made
}

// keepAssertion is how long an assertion serves further loans. The issuer must accept it for some minutes more, because
// clocks differ.
const keepAssertion = 5 * time.Minute

// parseKey returns the key of a text in PEM.
func (k *keptKey) parseKey(text []byte) (*rsa.PrivateKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sum := sha256.Sum256(text); k.key == nil || k.sum != sum {
		key, err := parseRSAKey(text)
		if err != nil {
			return nil, err
		}
		k.sum, k.key, k.jwt = sum, key, ""
	}
	return k.key, nil
}

// signAssertion returns an assertion with these claims that key signed in the last minutes, or signs one that is valid
// from the time early before now to the time late after it.
func (k *keptKey) signAssertion(key *rsa.PrivateKey, id string, now time.Time, early, late time.Duration,
	says map[string]string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := now.Sub(k.signed)
	if k.jwt != "" && k.key == key && k.id == id && maps.Equal(k.says, says) && age >= 0 && age < keepAssertion {
		return k.jwt, nil
	}
	claims := map[string]any{"iat": now.Add(-early).Unix(), "exp": now.Add(late).Unix()}
	for name, text := range says {
		claims[name] = text
	}
	jwt, err := signJWT(key, id, claims)
	if err != nil {
		return "", err
	}
	if k.key == key { // another loan may have read another key meanwhile
		k.jwt, k.id, k.says, k.signed = jwt, id, says, now
	}
	return jwt, nil
}

// forgetAssertion makes the next loan sign again, for example because the issuer refused this one.
func (k *keptKey) forgetAssertion() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jwt = ""
}

func makeGitHub(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server       string            `yaml:"server"`
		CA           string            `yaml:"ca"`
		App          string            `yaml:"app"`
		Key          string            `yaml:"key"`
		Installation int64             `yaml:"installation"`
		Owner        string            `yaml:"owner"`
		Repositories []string          `yaml:"repositories"`
		Permissions  map[string]string `yaml:"permissions"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	if said.Server == "" {
		said.Server = "https://api.github.com"
	}
	server, err := newIssuer("GitHub", said.Server, said.CA, dir)
	switch {
	case err != nil:
		return nil, "", err
	case said.App == "" || len(said.App) > maxWord || said.Key == "" || said.Installation <= 0:
		return nil, "", errors.New(
			"it needs app (client id or app id), key, the file of its private key, and installation, a number",
		)
	case len(said.Repositories) == 0 || slices.ContainsFunc(said.Repositories,
		func(r string) bool { return !isRepository(r) }):
		return nil, "", errors.New("it needs repositories: their names without the owner")
	case said.Owner != "" && !isRepository(said.Owner):
		return nil, "", errors.New("owner must be the account on which the App is installed")
	case len(said.Permissions) == 0:
		return nil, "", errors.New("it needs permissions, for example {contents: read, pull_requests: write}")
	}
	for name, level := range said.Permissions {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" ||
			!slices.Contains([]string{"read", "write", "admin"}, level) {
			return nil, "", fmt.Errorf(
				"permission %.40q must be a name of GitHub's list with read, write or admin",
				name,
			)
		}
	}
	g := &github{issuer: server, app: said.App, key: resolveIn(dir, said.Key), installation: said.Installation,
		owner: said.Owner, repositories: said.Repositories, permissions: said.Permissions, parsed: &keptKey{}}
	return g, "github " + g.describeRights(), nil
}

// isRepository reports whether s is the name of a repository.
func isRepository(s string) bool {
	return s != "" && len(s) <= 100 && strings.Trim(s, ".") != "" &&
		!strings.ContainsFunc(s, func(r rune) bool { return !isTokenRune(r) || strings.ContainsRune("~+/=:", r) })
}

// permissionRank orders the levels of a permission. An unknown level is above all others.
func permissionRank(level string) int {
	levels := []string{"", "read", "write", "admin"}
	if i := slices.Index(levels, level); i >= 0 {
		return i
	}
	return len(levels)
}

// installationToken is GitHub's answer.
type installationToken struct {
	Token        string            `json:"token"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Permissions  map[string]string `json:"permissions"`
	Selection    string            `json:"repository_selection"`
	Repositories []struct {
		Name string `json:"name"`
		Full string `json:"full_name"`
	} `json:"repositories"`
}

func (g *github) Mint(ctx context.Context, _ time.Duration) (Minted, error) {
	jwt, err := g.ownAssertion(time.Now())
	if err != nil {
		return Minted{}, err
	}
	body, header := jsonBody(
		map[string]any{"repositories": g.repositories, "permissions": g.permissions},
		githubHeader(jwt),
	)
	var got installationToken
	if err := g.sendRequest(ctx, exchange{method: http.MethodPost,
		path:   "app/installations/" + strconv.FormatInt(g.installation, 10) + "/access_tokens",
		header: header, body: body, into: &got, cure: "check the app's key and id, and that it is installed with these permissions"}); err != nil {
		g.parsed.forgetAssertion()
		return Minted{}, err
	}
	if got.Token == "" {
		return Minted{}, g.strangeAnswer()
	}
	m := Minted{Value: []byte(got.Token), Handle: []byte(got.Token), Until: got.ExpiresAt.UTC()}
	sum := sha256.Sum256(m.Value)
	m.ID = base64.StdEncoding.EncodeToString(sum[:]) // hashed_token in GitHub's audit log
	if got.ExpiresAt.IsZero() {
		return m, g.strangeAnswer()
	}
	if wider := g.widerThanAsked(got); wider != "" {
		return m, unavailableError(nil, "check that server in "+TableName+" is that of GitHub",
			"GitHub issued more than was asked for: %s", wider)
	}
	return m, nil
}

// widerThanAsked names a right of the token that was not asked for. Every token may read metadata.
func (g *github) widerThanAsked(got installationToken) string {
	for name, level := range got.Permissions {
		if permissionRank(level) > permissionRank(g.permissions[name]) && (name != "metadata" || level != "read") {
			return "permission " + fmt.Sprintf("%.40q", name)
		}
	}
	for _, r := range got.Repositories {
		if !slices.Contains(g.repositories, r.Name) {
			return "repository " + fmt.Sprintf("%.100q", r.Name)
		}
		if g.wanted != nil && !slices.ContainsFunc(g.wanted, func(w string) bool { return strings.EqualFold(w, r.Full) }) {
			return fmt.Sprintf("repository %.200q, which the call does not name; set owner to tell them apart", r.Full)
		}
	}
	if got.Selection == "all" {
		return "all repositories"
	}
	return ""
}

func (g *github) Revoke(ctx context.Context, _ string, handle []byte) error {
	return g.sendRequest(
		ctx,
		exchange{method: http.MethodDelete, path: "installation/token", header: githubHeader(string(handle)),
			cure: "it may have expired or been revoked before"},
	)
}

func githubHeader(bearer string) map[string]string {
	return map[string]string{
		"Authorization":        "Bearer " + bearer,
		"Accept":               "application/vnd.github+json",
		"X-GitHub-Api-Version": "2022-11-28",
	}
}

// ownAssertion returns the JSON web token that names the app. GitHub refuses one that is valid for more than ten
// minutes, and recommends that it begin a minute ago, because clocks differ. It may be sent more than once.
func (g *github) ownAssertion(now time.Time) (string, error) {
	key, err := g.parsed.readKey(g.key)
	if err != nil {
		return "", err
	}
	return g.parsed.signAssertion(key, "", now, time.Minute, 8*time.Minute, map[string]string{"iss": g.app})
}

// readKey reads a private key in PEM, of PKCS #1 or PKCS #8, from a file that only the broker's user can read.
func (k *keptKey) readKey(name string) (*rsa.PrivateKey, error) {
	text, err := readPrivate(name, MaxValue)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	key, err := k.parseKey(text)
	if err != nil {
		return nil, unavailableError(
			nil,
			"store the issuer's private key there, in PEM",
			"%s contains no RSA key in PEM",
			name,
		)
	}
	return key, nil
}

func parseRSAKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	defer clear(block.Bytes)
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if k, ok := key.(*rsa.PrivateKey); ok {
		return k, nil
	}
	return nil, errors.Join(err, errors.New("no RSA key"))
}

// signJWT signs claims with RS256 (RFC 7515, RFC 7518).
func signJWT(key *rsa.PrivateKey, id string, claims map[string]any) (string, error) {
	header := map[string]string{"alg": "RS256", "typ": "JWT"}
	if id != "" {
		header["kid"] = id
	}
	h, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	c, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(c)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", unavailableError(nil, "use a key of at least 2048 bits", "the issuer's private key cannot sign")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}
