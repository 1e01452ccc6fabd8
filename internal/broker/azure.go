package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// azure issues access tokens of an Entra application by a federated token, so that the broker has no client secret
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation). A token is for one resource, and what
// it may do there is decided by the roles of the application. It cannot be revoked; its lifetime is Entra's.
type azure struct {
	irrevocable
	issuer
	tenant, client, token, scope string // token is a file
	headers                      bool   // lent as the headers that the az pack uses
}

func makeAzure(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server string `yaml:"server"`
		CA     string `yaml:"ca"`
		Tenant string `yaml:"tenant"`
		Client string `yaml:"client"`
		Token  string `yaml:"token"`
		Scope  string `yaml:"resource"`
		Form   string `yaml:"form"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("Entra", cmp.Or(said.Server, "https://login.microsoftonline.com"), said.CA, dir)
	switch {
	case err != nil:
		return nil, "", err
	case !isLabel(said.Tenant) || !isLabel(said.Client):
		return nil, "", errors.New("it needs tenant and client, the ids of the directory and the application")
	case said.Token == "":
		return nil, "", errors.New("it needs token, the file of the federated token")
	case !strings.HasPrefix(said.Scope, "https://") || !isPrintable(said.Scope) || strings.Contains(said.Scope, " "):
		return nil, "", errors.New("it needs resource, for example https://management.azure.com")
	case said.Form != "" && said.Form != "token" && said.Form != "headers":
		return nil, "", errors.New("form must be token, or headers, which the pack az uses")
	}
	a := &azure{issuer: server, tenant: said.Tenant, client: said.Client, token: resolveIn(dir, said.Token),
		scope: strings.TrimSuffix(said.Scope, "/") + "/.default", headers: said.Form == "headers"}
	return a, "azure " + a.client + " for " + said.Scope, nil
}

func (a *azure) Mint(ctx context.Context, _ time.Duration) (Minted, error) {
	assertion, err := readSecret(a.token)
	if err != nil {
		return Minted{}, err
	}
	body, header := formBody(
		url.Values{"grant_type": {"client_credentials"}, "client_id": {a.client}, "scope": {a.scope},
			"client_assertion_type": {
				"urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
			}, "client_assertion": {assertion}},
		nil,
	)
	var got tokenAnswer
	if err := a.sendRequest(ctx, exchange{method: http.MethodPost, path: a.tenant + "/oauth2/v2.0/token",
		header: header,
		body:   body, into: &got,
		reason: jsonCode("error"), cure: "check the federated credential of the application, and that the token in " + a.token + " has not expired"}); err != nil {
		return Minted{}, err
	}
	if got.AccessToken == "" || got.ExpiresIn <= 0 {
		return Minted{}, a.strangeAnswer()
	}
	m := Minted{Value: []byte(got.AccessToken), ID: tokenClaim(got.AccessToken, "uti"), Until: validFor(got.ExpiresIn)}
	if a.headers {
		m.Value, err = json.Marshal(map[string]string{"Authorization": "Bearer " + got.AccessToken})
	}
	return m, err
}
