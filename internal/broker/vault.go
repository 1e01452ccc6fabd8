package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// vault reads one secret of HashiCorp Vault or OpenBao, which have the same API: version 2 of the key-value engine
// (data/…), or an engine that makes a secret for each request and gives it a lease, such as database, aws or pki. The
// broker logs in for each loan. To revoke a secret with a lease, it revokes the token of its login, which ends the
// lease
// (https://developer.hashicorp.com/vault/docs/concepts/tokens#token-hierarchies-and-orphan-tokens); the policy of the
// role needs nothing for that. With a fixed token the lease is revoked by its id, which needs sys/leases/revoke.
type vault struct {
	issuer
	namespace string
	token     string // file, or "": log in
	login     vaultLogin
	path      string
	field     string // "": the whole secret as an object of JSON
}

// vaultLogin is a login by AppRole, or by the token of a Kubernetes service account.
type vaultLogin struct {
	Mount  string `yaml:"mount"`
	Role   string `yaml:"role"`
	Secret string `yaml:"secret"` // AppRole: the file of the secret id
	Token  string `yaml:"token"`  // Kubernetes: the file of the service account's token
}

func makeVault(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server     string      `yaml:"server"`
		CA         string      `yaml:"ca"`
		Namespace  string      `yaml:"namespace"`
		Token      string      `yaml:"token"`
		AppRole    *vaultLogin `yaml:"appRole"`
		Kubernetes *vaultLogin `yaml:"kubernetes"`
		Path       string      `yaml:"path"`
		Field      string      `yaml:"field"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("Vault", said.Server, said.CA, dir)
	if err != nil {
		return nil, "", err
	}
	v := &vault{issuer: server, namespace: said.Namespace, path: said.Path, field: said.Field}
	ways := 0
	if said.Token != "" {
		ways, v.token = ways+1, resolveIn(dir, said.Token)
	}
	if l := said.AppRole; l != nil {
		ways, v.login = ways+1, vaultLogin{Mount: cmp.Or(l.Mount, "approle"), Role: l.Role, Secret: l.Secret}
		err = cmp.Or(err, requireKeys("appRole.role", l.Role, "appRole.secret, a file", l.Secret))
	}
	if l := said.Kubernetes; l != nil {
		ways, v.login = ways+1, vaultLogin{Mount: cmp.Or(l.Mount, "kubernetes"), Role: l.Role, Token: l.Token}
		err = cmp.Or(err, requireKeys("kubernetes.role", l.Role, "kubernetes.token, a file", l.Token))
	}
	switch {
	case err != nil:
		return nil, "", err
	case ways != 1:
		return nil, "", errors.New("it needs one login: token, appRole or kubernetes")
	case !isVaultPath(v.path) || v.login.Mount != "" && !isVaultPath(v.login.Mount):
		return nil, "", errors.New(
			"path and mount must be paths as in Vault, for example secret/data/app, without .. and without / at either end",
		)
	}
	v.login.Secret, v.login.Token = resolveOptional(dir, v.login.Secret), resolveOptional(dir, v.login.Token)
	about := fmt.Sprintf("vault %s of %s", v.path, server.base.Host)
	if v.field != "" {
		about = fmt.Sprintf("vault %s, field %s, of %s", v.path, v.field, server.base.Host)
	}
	return v, about, nil
}

func resolveOptional(dir, name string) string {
	if name == "" {
		return ""
	}
	return resolveIn(dir, name)
}

// isVaultPath reports whether s is a path whose parts become parts of an address unchanged.
func isVaultPath(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.Trim(part, ".") == "" ||
			strings.ContainsFunc(part, func(r rune) bool { return !isTokenRune(r) && r != '@' }) {
			return false
		}
	}
	return len(s) <= maxWord
}

// vaultAnswer is the part of every answer that is read here.
type vaultAnswer struct {
	LeaseID       string                     `json:"lease_id"`
	LeaseDuration int64                      `json:"lease_duration"`
	Data          map[string]json.RawMessage `json:"data"`
	Auth          *struct {
		ClientToken string `json:"client_token"`
	} `json:"auth"`
}

const vaultCure = "check the broker's credential for Vault, that its policy allows this path, and that the secret exists"

func (v *vault) tokenHeader(token string) map[string]string {
	h := map[string]string{
		"X-Vault-Request": "true",
	}
	if token != "" {
		h["X-Vault-Token"] = token
	}
	if v.namespace != "" {
		h["X-Vault-Namespace"] = v.namespace
	}
	return h
}

// logIn returns a token and whether it was made for this loan alone.
func (v *vault) logIn(ctx context.Context) (token string, own bool, err error) {
	if v.token != "" {
		token, err = readSecret(v.token)
		return token, false, err
	}
	ask := map[string]string{"role": v.login.Role}
	if v.login.Secret != "" {
		secret, err := readSecret(v.login.Secret)
		if err != nil {
			return "", false, err
		}
		ask = map[string]string{"role_id": v.login.Role, "secret_id": secret}
	} else if ask["jwt"], err = readSecret(v.login.Token); err != nil {
		return "", false, err
	}
	body, header := jsonBody(ask, v.tokenHeader(""))
	var got vaultAnswer
	if err := v.sendRequest(ctx, exchange{method: http.MethodPost, path: "v1/auth/" + v.login.Mount + "/login",
		header: header, body: body, into: &got,
		cure: "check role and secret of the broker's login at Vault: a secret id may have expired or be used up"}); err != nil {
		return "", false, err
	}
	if got.Auth == nil || got.Auth.ClientToken == "" {
		return "", false, v.strangeAnswer()
	}
	return got.Auth.ClientToken, true, nil
}

func (v *vault) Mint(ctx context.Context, _ time.Duration) (m Minted, err error) {
	token, own, err := v.logIn(ctx)
	if err != nil {
		return Minted{}, err
	}
	defer func() {
		if own && m.Handle == nil { // nothing depends on this login any more
			v.endLogin(ctx, token)
		}
	}()
	var got vaultAnswer
	if err := v.sendRequest(ctx, exchange{method: http.MethodGet, path: "v1/" + v.path, header: v.tokenHeader(token),
		into: &got, cure: vaultCure}); err != nil {
		return Minted{}, err
	}
	if got.LeaseID != "" {
		m.ID, m.Until, m.Handle = got.LeaseID, validFor(got.LeaseDuration), []byte{}
		if own {
			m.Handle = []byte(token)
		}
	}
	m.Value, err = v.pickValue(got)
	return m, err
}

// endLogin ends the token of a login that made nothing. If that fails, the token ends by itself: it was used to read only.
func (v *vault) endLogin(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
	defer cancel()
	v.revokeToken(ctx, token)
}

// pickValue takes the value from an answer. In version 2 of the key-value engine the secret is below data.data.
func (v *vault) pickValue(got vaultAnswer) ([]byte, error) {
	fields := got.Data
	if inner, ok := fields["data"]; ok && fields["metadata"] != nil {
		fields = nil
		if err := json.Unmarshal(inner, &fields); err != nil {
			return nil, v.strangeAnswer()
		}
	}
	if len(fields) == 0 {
		return nil, v.strangeAnswer()
	}
	if v.field == "" {
		return json.Marshal(fields)
	}
	var text string
	if err := json.Unmarshal(fields[v.field], &text); err != nil || text == "" {
		return nil, unavailableError(
			nil,
			"correct field in "+TableName,
			"the secret %s of Vault has no text in the field %q",
			v.path,
			v.field,
		)
	}
	return []byte(text), nil
}

func (v *vault) Revoke(ctx context.Context, id string, handle []byte) error {
	if id == "" {
		return nil
	}
	if len(handle) > 0 {
		return v.revokeToken(ctx, string(handle))
	}
	token, own, err := v.logIn(ctx)
	if err != nil {
		return err
	}
	if own {
		defer v.revokeToken(ctx, token)
	}
	body, header := jsonBody(map[string]string{"lease_id": id}, v.tokenHeader(token))
	return v.sendRequest(ctx, exchange{method: http.MethodPut, path: "v1/sys/leases/revoke", header: header, body: body,
		cure: "allow the broker's token update on sys/leases/revoke"})
}

// revokeToken ends a token and every lease that was made with it.
func (v *vault) revokeToken(ctx context.Context, token string) error {
	body, header := jsonBody(struct{}{}, v.tokenHeader(token))
	return v.sendRequest(
		ctx,
		exchange{
			method: http.MethodPost,
			path:   "v1/auth/token/revoke-self",
			header: header,
			body:   body,
			cure:   vaultCure,
		},
	)
}
