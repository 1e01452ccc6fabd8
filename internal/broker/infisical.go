package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// infisical reads one secret of Infisical, after a login by universal auth, or with a service token
// (https://infisical.com/docs/api-reference/endpoints/universal-auth/login). The secret itself has no expiry.
type infisical struct {
	irrevocable
	issuer
	client, secret, token            string // secret and token are files
	project, environment, path, name string
}

func makeInfisical(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server      string `yaml:"server"`
		CA          string `yaml:"ca"`
		Client      string `yaml:"client"`
		Secret      string `yaml:"secret"`
		Token       string `yaml:"token"`
		Project     string `yaml:"project"`
		Environment string `yaml:"environment"`
		Path        string `yaml:"path"`
		Name        string `yaml:"name"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("Infisical", cmp.Or(said.Server, "https://app.infisical.com"), said.CA, dir)
	if err != nil {
		return nil, "", err
	}
	i := &infisical{
		issuer:      server,
		client:      said.Client,
		secret:      resolveOptional(dir, said.Secret),
		token:       resolveOptional(dir, said.Token),
		project:     said.Project,
		environment: said.Environment,
		path:        cmp.Or(said.Path, "/"),
		name:        said.Name,
	}
	switch {
	case i.project == "" || i.environment == "":
		return nil, "", errors.New("it needs project, an id, and environment, for example prod")
	case !isVaultPath(i.name):
		return nil, "", errors.New("it needs name, that of the secret")
	case (i.client == "") != (i.secret == "") || (i.client == "") == (i.token == ""):
		return nil, "", errors.New(
			"it needs either client and secret, a file, for universal auth, or token, the file of a service token",
		)
	}
	return i, fmt.Sprintf("infisical %s of %s at %s", i.name, i.environment, server.base.Host), nil
}

func (i *infisical) Mint(ctx context.Context, _ time.Duration) (Minted, error) {
	token, err := i.logIn(ctx)
	if err != nil {
		return Minted{}, err
	}
	var got struct {
		Secret struct {
			Value   string `json:"secretValue"`
			ID      string `json:"id"`
			Version int    `json:"version"`
		} `json:"secret"`
	}
	query := url.Values{"workspaceId": {i.project}, "environment": {i.environment}, "secretPath": {i.path}}
	if err := i.sendRequest(ctx, exchange{method: http.MethodGet, path: "api/v3/secrets/raw/" + i.name, query: query,
		header: bearerHeader(token), into: &got,
		reason: jsonCode("error"), cure: "let the broker's identity read this secret"}); err != nil {
		return Minted{}, err
	}
	if got.Secret.Value == "" {
		return Minted{}, i.strangeAnswer()
	}
	m := Minted{Value: []byte(got.Secret.Value)}
	if isLabel(got.Secret.ID) {
		m.ID = fmt.Sprintf("%s.%d", got.Secret.ID, got.Secret.Version)
	}
	return m, nil
}

func (i *infisical) logIn(ctx context.Context) (string, error) {
	if i.token != "" {
		return readSecret(i.token)
	}
	secret, err := readSecret(i.secret)
	if err != nil {
		return "", err
	}
	body, header := jsonBody(map[string]string{"clientId": i.client, "clientSecret": secret}, nil)
	var got struct {
		AccessToken string `json:"accessToken"`
	}
	if err := i.sendRequest(ctx, exchange{method: http.MethodPost, path: "api/v1/auth/universal-auth/login",
		header: header, body: body, into: &got,
		reason: jsonCode("error"), cure: "check client and secret: a client secret may have expired or be used up"}); err != nil {
		return "", err
	}
	if got.AccessToken == "" {
		return "", i.strangeAnswer()
	}
	return got.AccessToken, nil
}
