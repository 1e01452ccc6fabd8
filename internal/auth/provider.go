package auth

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"bailey"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// FlowLife is how long a person has to sign in at a provider.
const FlowLife = 600 * time.Second

// A Provider signs people in with OpenID Connect, or with GitHub's OAuth, which has no ID token.
type Provider struct {
	GitHub         bool
	Issuer         string // https, or http on this machine
	Client, Secret string
	Redirect       string // where the provider sends the browser back to
	Now            func() time.Time
}

// A Flow is a sign-in that has begun: what the provider's answer must match.
type Flow struct {
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // of PKCE
}

// A Person is somebody whom a provider has identified.
type Person struct {
	Subject string // never used again for another person, unlike an address
	Email   string // in lower case; "" unless the provider says that it is verified
	Name    string
}

// CheckIssuer validates the URL of a provider.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || !isSafe(u) || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return bailey.Invalid.New("the issuer is not a URL such as https://accounts.example.com",
			"use https, or http://localhost for a trial")
	}
	return nil
}

func isSafe(u *url.URL) bool {
	local := u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1" || u.Hostname() == "::1"
	return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// maxAnswer is how many bytes an answer of a provider may have.
const maxAnswer = 1 << 20

// providerClient follows no redirect and reads no endless answer.
func providerClient() *http.Client {
	return &http.Client{Timeout: 15 * time.Second, Transport: boundedTransport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type boundedTransport struct{}

func (boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSafe(r.URL) {
		return nil, fmt.Errorf("the provider names an address without TLS: %s", r.URL.Host)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{http.MaxBytesReader(nil, resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// findEndpoints returns the endpoints, and the verifier of ID tokens, which GitHub lacks.
func (p *Provider) findEndpoints(ctx context.Context) (*oauth2.Config, *oidc.IDTokenVerifier, error) {
	c := &oauth2.Config{ClientID: p.Client, ClientSecret: p.Secret, RedirectURL: p.Redirect}
	if p.GitHub {
		c.Scopes = []string{"read:user", "user:email"}
		c.Endpoint = oauth2.Endpoint{AuthURL: p.Issuer + "/login/oauth/authorize",
			TokenURL: p.Issuer + "/login/oauth/access_token", AuthStyle: oauth2.AuthStyleInParams}
		return c, nil, nil
	}
	found, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, nil, bailey.Unavailable.Wrap(err, "the provider does not answer", "try again, or sign in otherwise")
	}
	c.Scopes, c.Endpoint = []string{oidc.ScopeOpenID, "email", "profile"}, found.Endpoint()
	if at, err := url.Parse(c.Endpoint.AuthURL); err != nil || !isSafe(at) {
		return nil, nil, bailey.Unavailable.New("the provider names an address without TLS", "ask its operator")
	}
	return c, found.VerifierContext(ctx, &oidc.Config{ClientID: p.Client, Now: p.Now}), nil
}

// Begin returns the address to which the browser goes.
func (p *Provider) Begin(ctx context.Context, state string) (string, Flow, error) {
	f := Flow{Nonce: NewToken(""), Verifier: oauth2.GenerateVerifier()}
	c, _, err := p.findEndpoints(oidc.ClientContext(ctx, providerClient()))
	if err != nil {
		return "", f, err
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(f.Verifier)}
	if !p.GitHub {
		options = append(options, oidc.Nonce(f.Nonce))
	}
	return c.AuthCodeURL(state, options...), f, nil
}

// End exchanges the code, and checks who signed in.
func (p *Provider) End(ctx context.Context, f Flow, code string) (Person, error) {
	ctx = oidc.ClientContext(ctx, providerClient())
	c, verifier, err := p.findEndpoints(ctx)
	if err != nil {
		return Person{}, err
	}
	token, err := c.Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return Person{}, providerFault(err)
	}
	if p.GitHub {
		return p.readGitHub(ctx, c.Client(ctx, token))
	}
	raw, _ := token.Extra("id_token").(string)
	checked, err := verifier.Verify(ctx, raw)
	if err != nil {
		return Person{}, providerFault(err)
	}
	var claims struct {
		Email    string          `json:"email"`
		Verified json.RawMessage `json:"email_verified"`
		Name     string          `json:"name"`
		Party    string          `json:"azp"`
	}
	if err := checked.Claims(&claims); err != nil {
		return Person{}, providerFault(err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(checked.Nonce), []byte(f.Nonce)) != 1:
		return Person{}, providerFault(fmt.Errorf("another nonce"))
	case claims.Party != "" && claims.Party != p.Client, len(checked.Audience) > 1 && claims.Party == "":
		return Person{}, providerFault(fmt.Errorf("issued to another party: %.40q", claims.Party))
	case checked.Subject == "" || len(checked.Subject) > 255:
		return Person{}, providerFault(fmt.Errorf("no subject"))
	}
	out := Person{Subject: checked.Subject, Name: claims.Name}
	if verified := string(claims.Verified); verified == "true" || verified == `"true"` { // some providers send a text
		out.Email = strings.ToLower(claims.Email)
	}
	return out, nil
}

// providerFault does not tell the browser what the provider said.
func providerFault(err error) error {
	return bailey.Denied.Wrap(err, "the answer of the provider was not accepted", "sign in again")
}

// readGitHub asks GitHub whose token it is. Only the primary address counts, and only if it is verified.
func (p *Provider) readGitHub(ctx context.Context, client *http.Client) (out Person, err error) {
	api := p.Issuer + "/api/v3" // GitHub Enterprise Server
	if p.Issuer == "https://github.com" {
		api = "https://api.github.com"
	}
	var user struct {
		ID          int64
		Login, Name string
	}
	var emails []struct {
		Email             string
		Primary, Verified bool
	}
	if err := readJSON(ctx, client, api+"/user", &user); err != nil {
		return out, providerFault(err)
	}
	if err := readJSON(ctx, client, api+"/user/emails", &emails); err != nil {
		return out, providerFault(err)
	}
	if user.ID <= 0 {
		return out, providerFault(fmt.Errorf("no user id"))
	}
	out = Person{Subject: strconv.FormatInt(user.ID, 10), Name: user.Name}
	if out.Name == "" {
		out.Name = user.Login
	}
	for _, e := range emails {
		if e.Primary && e.Verified {
			out.Email = strings.ToLower(e.Email)
		}
	}
	return out, nil
}

func readJSON(ctx context.Context, client *http.Client, address string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.URL.Path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(to)
}
