package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// gcloud issues access tokens of a Google service account that the broker's own account may impersonate
// (https://cloud.google.com/iam/docs/create-short-lived-credentials-direct), limited to OAuth scopes, and optionally to
// permissions on resources of Cloud Storage by a credential access boundary
// (https://cloud.google.com/iam/docs/downscoping-short-lived-credentials). They cannot be revoked alone.
type gcloud struct {
	irrevocable
	login, iam, sts issuer
	account         string
	key             string // file: the broker's own service account key, JSON
	scopes          []string
	boundary        []boundaryRule
	parsed          *keptKey
}

// boundaryRule limits a token to permissions on one resource.
type boundaryRule struct {
	Resource    string   `yaml:"resource"    json:"availableResource"`
	Permissions []string `yaml:"permissions" json:"availablePermissions"`
}

func makeGcloud(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Login    string         `yaml:"login"`
		IAM      string         `yaml:"iam"`
		STS      string         `yaml:"sts"`
		CA       string         `yaml:"ca"`
		Account  string         `yaml:"account"`
		Key      string         `yaml:"key"`
		Scopes   []string       `yaml:"scopes"`
		Boundary []boundaryRule `yaml:"boundary"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	g := &gcloud{
		account:  said.Account,
		parsed:   &keptKey{},
		key:      resolveOptional(dir, said.Key),
		scopes:   said.Scopes,
		boundary: said.Boundary,
	}
	var err error
	for _, part := range []struct {
		into              *issuer
		address, standard string
	}{{&g.login, said.Login, "https://oauth2.googleapis.com"}, {&g.iam, said.IAM,
		"https://iamcredentials.googleapis.com"}, {&g.sts, said.STS, "https://sts.googleapis.com"}} {
		if *part.into, err = newIssuer("Google", cmp.Or(part.address, part.standard), said.CA, dir); err != nil {
			return nil, "", err
		}
	}
	user, domain, _ := strings.Cut(said.Account, "@")
	switch {
	case user == "" || !isLabel(user) || !strings.HasSuffix(domain, ".gserviceaccount.com") || !isLabel(domain):
		return nil, "", errors.New("it needs account, for example agents@project.iam.gserviceaccount.com")
	case said.Key == "":
		return nil, "", errors.New("it needs key, the file of the broker's own service account key")
	case len(said.Scopes) == 0:
		return nil, "", errors.New(
			"it needs scopes, for example [https://www.googleapis.com/auth/devstorage.read_only]",
		)
	}
	for _, rule := range said.Boundary {
		if rule.Resource == "" || len(rule.Permissions) == 0 {
			return nil, "", errors.New(
				"each rule of boundary needs resource and permissions, for example inRole:roles/storage.objectViewer",
			)
		}
	}
	about := fmt.Sprintf("gcloud %s with %s", said.Account, strings.Join(said.Scopes, " "))
	for _, rule := range said.Boundary {
		about += fmt.Sprintf(", only %s on %s", strings.Join(rule.Permissions, " "), rule.Resource)
	}
	return g, about, nil
}

// tokenAnswer is that of an OAuth token endpoint (RFC 6749, section 5.1; RFC 8693, section 2.2.1).
type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
	TokenType   string `json:"token_type"`
}

func (g *gcloud) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	own, err := g.logIn(ctx)
	if err != nil {
		return Minted{}, err
	}
	lifetime := int64(min(ttl, time.Hour) / time.Second)
	body, header := jsonBody(
		map[string]any{"scope": g.scopes, "lifetime": fmt.Sprintf("%ds", lifetime)},
		bearerHeader(own),
	)
	var got struct {
		AccessToken string    `json:"accessToken"`
		ExpireTime  time.Time `json:"expireTime"`
	}
	if err := g.iam.sendRequest(ctx, exchange{method: http.MethodPost,
		path:   "v1/projects/-/serviceAccounts/" + g.account + ":generateAccessToken",
		header: header, body: body, into: &got, cure: "give the broker's account roles/iam.serviceAccountTokenCreator on " + g.account}); err != nil {
		return Minted{}, err
	}
	if got.AccessToken == "" || got.ExpireTime.IsZero() {
		return Minted{}, g.iam.strangeAnswer()
	}
	m := Minted{Value: []byte(got.AccessToken), ID: g.account, Until: got.ExpireTime.UTC()}
	if len(g.boundary) == 0 {
		return m, nil
	}
	narrow, err := g.narrowToken(ctx, got.AccessToken)
	m.Value = []byte(narrow)
	return m, err
}

// logIn gets a token of the broker's own account with a signed assertion (RFC 7523, section 2.1). Google accepts one more
// than once, until it ends, which is at most an hour after its beginning. The token is asked for each loan, so that
// Google decides each time whether the key is still valid.
func (g *gcloud) logIn(ctx context.Context) (string, error) {
	text, err := readPrivate(g.key, MaxValue)
	if err != nil {
		return "", err
	}
	defer clear(text)
	var file struct {
		Email string `json:"client_email"`
		ID    string `json:"private_key_id"`
		Key   string `json:"private_key"`
	}
	if json.Unmarshal(text, &file) != nil || file.Email == "" {
		return "", unavailableError(
			nil,
			"store the JSON key of a service account there",
			"%s is not the key of a Google service account",
			g.key,
		)
	}
	key, err := g.parsed.parseKey([]byte(file.Key))
	if err != nil {
		return "", unavailableError(
			nil,
			"store the JSON key of a service account there",
			"%s contains no private key",
			g.key,
		)
	}
	now := time.Now()
	jwt, err := g.parsed.signAssertion(key, file.ID, now, 0, 2*keepAssertion, map[string]string{"iss": file.Email,
		"aud": g.login.base.JoinPath("token").String(), "scope": "https://www.googleapis.com/auth/iam"})
	if err != nil {
		return "", err
	}
	body, header := formBody(
		url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {jwt}},
		nil,
	)
	var got tokenAnswer
	if err := g.login.sendRequest(ctx, exchange{method: http.MethodPost, path: "token", header: header, body: body,
		into: &got, reason: jsonCode("error"),
		cure: "check that the broker's service account key is still valid"}); err != nil {
		g.parsed.forgetAssertion()
		return "", err
	}
	if got.AccessToken == "" {
		return "", g.login.strangeAnswer()
	}
	return got.AccessToken, nil
}

// narrowToken exchanges a token for one that is limited by the access boundary.
func (g *gcloud) narrowToken(ctx context.Context, token string) (string, error) {
	options, err := json.Marshal(map[string]any{"accessBoundary": map[string]any{"accessBoundaryRules": g.boundary}})
	if err != nil {
		return "", err
	}
	const accessToken = "urn:ietf:params:oauth:token-type:access_token"
	body, header := formBody(
		url.Values{"grant_type": {grantExchange}, "subject_token": {token}, "subject_token_type": {accessToken},
			"requested_token_type": {accessToken}, "options": {string(options)}},
		nil,
	)
	var got tokenAnswer
	if err := g.sts.sendRequest(ctx, exchange{method: http.MethodPost, path: "v1/token", header: header, body: body,
		into: &got, reason: jsonCode("error"),
		cure: "correct boundary in " + TableName}); err != nil {
		return "", err
	}
	if got.AccessToken == "" {
		return "", g.sts.strangeAnswer()
	}
	return got.AccessToken, nil
}

func bearerHeader(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}
