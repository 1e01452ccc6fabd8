package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// grantExchange is the grant type of token exchange (RFC 8693, section 2.1).
const grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"

// tokenExchange exchanges a token in a file, for example that of a workload identity, for an access token with an
// audience
// and scopes (RFC 8693). If the issuer can revoke (RFC 7009), revoke is the path for it.
type tokenExchange struct {
	issuer
	path, revoke             string
	client, secret           string // secret is a file
	subject, subjectType     string // subject is a file
	audience, resource, want string
}

func makeExchange(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server      string   `yaml:"server"`
		CA          string   `yaml:"ca"`
		Path        string   `yaml:"path"`
		Revoke      string   `yaml:"revoke"`
		Client      string   `yaml:"client"`
		Secret      string   `yaml:"secret"`
		Subject     string   `yaml:"subject"`
		SubjectType string   `yaml:"subjectType"`
		Audience    string   `yaml:"audience"`
		Resource    string   `yaml:"resource"`
		Scopes      []string `yaml:"scopes"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("the token endpoint", said.Server, said.CA, dir)
	e := &tokenExchange{
		issuer: server,
		path:   said.Path,
		revoke: said.Revoke,
		client: said.Client,
		secret: resolveOptional(dir, said.Secret),
		subject: resolveOptional(
			dir,
			said.Subject,
		),
		subjectType: cmp.Or(said.SubjectType, "urn:ietf:params:oauth:token-type:jwt"),
		audience:    said.Audience,
		resource:    said.Resource,
		want:        strings.Join(said.Scopes, " "),
	}
	switch {
	case err != nil:
		return nil, "", err
	case !isVaultPath(e.path) || e.revoke != "" && !isVaultPath(e.revoke):
		return nil, "", errors.New(
			"it needs path, that of the token endpoint below server, for example oauth2/token; revoke is such a path too",
		)
	case e.subject == "":
		return nil, "", errors.New("it needs subject, the file of the token that is exchanged")
	case e.audience == "" && e.resource == "" || e.want == "":
		return nil, "", errors.New("it needs scopes, and audience or resource, so that the token is limited")
	case (e.client == "") != (e.secret == ""):
		return nil, "", errors.New("client and secret, a file, belong together")
	}
	return e, fmt.Sprintf("exchange for %s at %s", cmp.Or(e.audience, e.resource), server.base.Host), nil
}

// header returns the client's authentication (RFC 6749, section 2.3.1).
func (e *tokenExchange) clientHeader() (map[string]string, error) {
	if e.client == "" {
		return nil, nil
	}
	secret, err := readSecret(e.secret)
	if err != nil {
		return nil, err
	}
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(url.QueryEscape(e.client), url.QueryEscape(secret))
	return map[string]string{"Authorization": r.Header.Get("Authorization")}, nil
}

func (e *tokenExchange) Mint(ctx context.Context, _ time.Duration) (Minted, error) {
	subject, err := readSecret(e.subject)
	if err != nil {
		return Minted{}, err
	}
	client, err := e.clientHeader()
	if err != nil {
		return Minted{}, err
	}
	form := url.Values{"grant_type": {grantExchange}, "subject_token": {subject}, "subject_token_type": {e.subjectType},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "scope": {e.want}}
	if e.audience != "" {
		form.Set("audience", e.audience)
	}
	if e.resource != "" {
		form.Set("resource", e.resource)
	}
	body, header := formBody(form, client)
	var got tokenAnswer
	if err := e.sendRequest(ctx, exchange{method: http.MethodPost, path: e.path, header: header, body: body, into: &got,
		reason: jsonCode("error"),
		cure:   "check the client, and that the token in " + e.subject + " has not expired"}); err != nil {
		return Minted{}, err
	}
	if got.AccessToken == "" {
		return Minted{}, e.strangeAnswer()
	}
	m := Minted{Value: []byte(got.AccessToken), ID: tokenID(got.AccessToken), Until: validFor(got.ExpiresIn)}
	if e.revoke != "" {
		m.Handle = []byte(got.AccessToken)
	}
	if !strings.EqualFold(got.TokenType, "Bearer") && got.TokenType != "N_A" {
		return m, e.strangeAnswer()
	}
	for scope := range strings.FieldsSeq(got.Scope) { // no scope in the answer: the one that was asked for
		if !slices.Contains(strings.Fields(e.want), scope) {
			return m, unavailableError(nil, "correct scopes in "+TableName+", or the client at the issuer",
				"the token endpoint issued more than was asked for: scope %.64q", scope)
		}
	}
	return m, nil
}

func (e *tokenExchange) Revoke(ctx context.Context, _ string, handle []byte) error {
	if e.revoke == "" || len(handle) == 0 {
		return nil
	}
	client, err := e.clientHeader()
	if err != nil {
		return err
	}
	body, header := formBody(url.Values{"token": {string(handle)}, "token_type_hint": {"access_token"}}, client)
	return e.sendRequest(
		ctx,
		exchange{method: http.MethodPost, path: e.revoke, header: header, body: body, reason: jsonCode("error"),
			cure: "check that the client may revoke tokens"},
	)
}
