package broker

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey/internal/sigv4"
)

// aws issues the credentials of a role for a session, by AssumeRole or AssumeRoleWithWebIdentity of the Security Token
// Service (https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html). A session policy limits them to
// what the role and the policy both allow. They cannot be revoked, and live for at least 15 minutes.
type aws struct {
	irrevocable
	issuer
	role, region, external string
	keys, token            string // files; one of them
	policy                 string // file of the session policy, or ""
	denied                 []any  // statements that limit one call
}

// Limits of AssumeRole.
const (
	minAWS    = 15 * time.Minute
	maxAWS    = 12 * time.Hour
	maxPolicy = 2048 // characters
)

func makeAWS(decode func(any) error, dir string) (Adapter, string, error) {
	var said struct {
		Server     string `yaml:"server"`
		CA         string `yaml:"ca"`
		Role       string `yaml:"role"`
		Region     string `yaml:"region"`
		ExternalID string `yaml:"externalId"`
		Keys       string `yaml:"keys"`
		Token      string `yaml:"token"`
		Policy     string `yaml:"policy"`
	}
	if err := decode(&said); err != nil {
		return nil, "", err
	}
	switch {
	case !strings.HasPrefix(said.Role, "arn:aws") || !strings.Contains(said.Role, ":role/") ||
		len(said.Role) > maxWord || !isPrintable(said.Role):
		return nil, "", errors.New("it needs role, for example arn:aws:iam::123456789012:role/agents")
	case said.Region == "" || strings.Trim(said.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return nil, "", errors.New("it needs region, for example eu-central-1")
	case (said.Keys == "") == (said.Token == ""):
		return nil, "", errors.New(
			"it needs either keys, a file with aws_access_key_id and aws_secret_access_key, or token, the file of a web identity",
		)
	}
	server, err := newIssuer("AWS", cmp.Or(said.Server, "https://sts."+said.Region+".amazonaws.com"), said.CA, dir)
	if err != nil {
		return nil, "", err
	}
	a := &aws{issuer: server, role: said.Role, region: said.Region, external: said.ExternalID,
		keys: resolveOptional(
			dir,
			said.Keys,
		), token: resolveOptional(dir, said.Token), policy: resolveOptional(dir, said.Policy)}
	about := "aws " + said.Role
	if a.policy != "" {
		about += " within " + said.Policy
	}
	return a, about, nil
}

// assumedRole is the answer of both calls.
type assumedRole struct {
	Credentials struct {
		AccessKeyID     string    `xml:"AccessKeyId"`
		SecretAccessKey string    `xml:"SecretAccessKey"`
		SessionToken    string    `xml:"SessionToken"`
		Expiration      time.Time `xml:"Expiration"`
	}
}

func (a *aws) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	x, err := a.assumeRequest(ttl)
	if err != nil {
		return Minted{}, err
	}
	var answer struct {
		Identity assumedRole `xml:"AssumeRoleWithWebIdentityResult"`
		Role     assumedRole `xml:"AssumeRoleResult"`
	}
	x.parse = func(body []byte) error { return xml.Unmarshal(body, &answer) }
	if err := a.sendRequest(ctx, x); err != nil {
		return Minted{}, err
	}
	got := answer.Role.Credentials
	if a.token != "" {
		got = answer.Identity.Credentials
	}
	for _, word := range []string{got.AccessKeyID, got.SecretAccessKey, got.SessionToken} {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !isTokenRune(r) }) {
			return Minted{}, a.strangeAnswer()
		}
	}
	if got.Expiration.IsZero() {
		return Minted{}, a.strangeAnswer()
	}
	lent := sigv4.Profile{Name: "default", Credentials: sigv4.Credentials{ID: got.AccessKeyID,
		Secret:  got.SecretAccessKey,
		Session: got.SessionToken}}
	return Minted{Value: []byte(lent.String()), ID: got.AccessKeyID, Until: got.Expiration.UTC()}, nil
}

// assumeRequest returns the request of the call that this table entry uses.
func (a *aws) assumeRequest(ttl time.Duration) (x exchange, err error) {
	form := url.Values{"Version": {"2011-06-15"}, "RoleArn": {a.role}, "RoleSessionName": {"bailey"},
		"DurationSeconds": {strconv.Itoa(int(min(max(ttl, minAWS), maxAWS) / time.Second))}}
	switch text, err := a.policyText(); {
	case err != nil:
		return x, err
	case text != "":
		form.Set("Policy", text)
	}
	if a.external != "" {
		form.Set("ExternalId", a.external)
	}
	x = exchange{method: http.MethodPost, reason: awsCode,
		cure: "check the broker's own keys, and that the role trusts them (ExpiredToken: renew them; AccessDenied: the role's trust policy)"}
	if a.token != "" {
		token, err := readSecret(a.token)
		if err != nil {
			return x, err
		}
		form.Set("Action", "AssumeRoleWithWebIdentity")
		form.Set("WebIdentityToken", token)
	} else {
		keys, err := readAWSKeys(a.keys)
		if err != nil {
			return x, err
		}
		form.Set("Action", "AssumeRole")
		x.sign = func(r *http.Request) error {
			sigv4.Signer{Credentials: keys, Region: a.region, Service: "sts"}.Sign(r, x.body, time.Now())
			return nil
		}
	}
	x.body, x.header = formBody(form, map[string]string{"Accept": "text/xml"})
	return x, nil
}

// awsCode returns the code of an error answer, for example ExpiredToken.
func awsCode(body []byte) string {
	var said struct {
		Code string `xml:"Error>Code"`
	}
	if xml.Unmarshal(body, &said) != nil {
		return ""
	}
	return said.Code
}

// readAWSKeys reads the keys of the profile default of a file as the aws command uses.
func readAWSKeys(name string) (c sigv4.Credentials, err error) {
	text, err := readPrivate(name, MaxValue)
	if err != nil {
		return c, err
	}
	defer clear(text)
	profiles, err := sigv4.ParseFile(string(text))
	i := slices.IndexFunc(profiles, func(p sigv4.Profile) bool { return p.Name == "default" })
	if err != nil || i < 0 {
		return c, unavailableError(nil, "write it as the file credentials of the aws command, with a section [default]",
			"%s has no aws_access_key_id and aws_secret_access_key", name)
	}
	return profiles[i].Credentials, nil
}
