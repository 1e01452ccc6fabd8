package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// argocd issues tokens of a role of a project (https://argo-cd.readthedocs.io/en/stable/user-guide/projects/#project-roles)
// and lends each in a configuration file that names one server. A token is revoked by the time at which it was issued.
type argocd struct {
	issuer
	project, role string
	token         string // file: the broker's own token
}

func makeArgoCD(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server  string `yaml:"server"`
		CA      string `yaml:"ca"`
		Token   string `yaml:"token"`
		Project string `yaml:"project"`
		Role    string `yaml:"role"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	server, err := newIssuer("Argo CD", said.Server, said.CA, dir)
	switch {
	case err != nil:
		return nil, "", err
	case said.Token == "":
		return nil, "", errors.New("it needs token, the file of the broker's own token")
	case !isLabel(said.Project) || !isLabel(said.Role):
		return nil, "", errors.New("it needs project and role, as in Argo CD")
	}
	a := &argocd{issuer: server, project: said.Project, role: said.Role, token: resolveIn(dir, said.Token)}
	return a, fmt.Sprintf("argocd role %s of project %s at %s", a.role, a.project, server.base.Host), nil
}

func (a *argocd) tokenPath() string {
	return "api/v1/projects/" + a.project + "/roles/" + a.role + "/token"
}

func (a *argocd) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	own, err := readSecret(a.token)
	if err != nil {
		return Minted{}, err
	}
	body, header := jsonBody(map[string]any{"project": a.project, "role": a.role, "description": "bailey",
		"expiresIn": strconv.Itoa(int(ttl / time.Second))}, map[string]string{"Authorization": "Bearer " + own})
	var got struct {
		Token string `json:"token"`
	}
	if err := a.sendRequest(ctx, exchange{method: http.MethodPost, path: a.tokenPath(), header: header, body: body, into: &got,
		cure: "allow the broker's own account the action update on this project"}); err != nil {
		return Minted{}, err
	}
	issued, expires, ok := tokenTimes(got.Token)
	m := Minted{ID: tokenID(got.Token), Until: expires, Handle: []byte(strconv.FormatInt(issued, 10))}
	if !ok && issued <= 0 && m.ID == "" { // nothing names it
		return Minted{}, a.strangeAnswer()
	}
	if !ok { // without an end, it would be valid until someone finds it
		return m, a.strangeAnswer()
	}
	if subject := "proj:" + a.project + ":" + a.role; tokenClaim(got.Token, "sub") != subject && tokenClaim(got.Token, "sub") != "" {
		return m, unavailableError(nil, "check that server in "+TableName+" is that of Argo CD",
			"Argo CD issued a token for another subject than %s", subject)
	}
	m.Value, err = a.renderConfig(got.Token)
	return m, err
}

// tokenTimes returns when a JSON web token was issued, in seconds, and its end. If it returns false, either may be 0.
func tokenTimes(token string) (issued int64, expires time.Time, ok bool) {
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if !tokenClaims(token, &claims) || claims.Issued <= 0 || claims.Expires <= claims.Issued {
		return claims.Issued, expires, false
	}
	return claims.Issued, time.Unix(claims.Expires, 0).UTC(), true
}

// renderConfig returns the file that argocd reads, with one server and no refresh token. JSON is valid YAML.
func (a *argocd) renderConfig(token string) ([]byte, error) {
	type named map[string]any
	const one = "bailey"
	server := named{"server": a.base.Host, "grpc-web": true}
	if path := strings.Trim(a.base.Path, "/"); path != "" {
		server["grpc-web-root-path"] = path
	}
	if a.ca != "" {
		authority, err := readTrusted(a.ca, maxTable)
		if err != nil {
			return nil, err
		}
		server["certificate-authority-data"] = authority
	}
	return json.Marshal(named{"current-context": one, "servers": []named{server},
		"contexts": []named{{"name": one, "server": a.base.Host, "user": one}},
		"users":    []named{{"name": one, "auth-token": token}}})
}

func (a *argocd) Revoke(ctx context.Context, id string, handle []byte) error {
	own, err := readSecret(a.token)
	if err != nil {
		return err
	}
	query := url.Values{}
	if id != "" {
		query.Set("id", id)
	}
	return a.sendRequest(ctx, exchange{method: http.MethodDelete, path: a.tokenPath() + "/" + string(handle), query: query,
		header: map[string]string{"Authorization": "Bearer " + own}, cure: "it may have expired or been revoked before"})
}

func (a *argocd) setupText() string {
	return fmt.Sprintf(`# Argo CD: a role of the project with the rights of the calls, and no more.
argocd proj role create %[1]s %[2]s
argocd proj role add-policy %[1]s %[2]s --action get --permission allow --object '*'
# The broker's own account (argocd-rbac-cm) may issue tokens of the project's roles, which is the action update:
# p, role:bailey-broker, projects, get, %[1]s, allow
# p, role:bailey-broker, projects, update, %[1]s, allow
`, a.project, a.role)
}
