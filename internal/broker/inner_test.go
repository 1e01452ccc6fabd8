//go:build linux || darwin

package broker

import (
	"path/filepath"
	"slices"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestInnerSecrets checks that the secrets inside a lent file are found, and no names or addresses.
func TestInnerSecrets(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ktest.Write(t, ca, "-----BEGIN CERTIFICATE-----")
	server, err := newIssuer("the API server", "https://api.example:6443", ca, "")
	if err != nil {
		t.Fatal(err)
	}
	made, err := (&kubectl{issuer: server, namespace: "web"}).renderKubeconfig("eyJhbGciOi.minted.token")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		string(made): {"eyJhbGciOi.minted.token"},
		"[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPx\naws_session_token=FwoGZXIvYXdzEJr=\n": {"wJalrXUtnFEMI/K7MDENG+bPx", "FwoGZXIvYXdzEJr="},
		`{"Authorization":"Bearer ya29.headers"}`: {"ya29.headers"},
		"users:\n- name: someone-of-ours\n  user:\n    client-key-data: LS0tLS1CRUdJTg==\n    'password': \"correct horse\"\n    id-token:\n      none\n": {"LS0tLS1CRUdJTg=="},
		"ghp_theWholeValueIsOne":                                    nil,
		`{"dsn":"postgres://u:p@db/shop","user":"app","zone":"eu"}`: {"postgres://u:p@db/shop"},
	} {
		if got := embeddedSecrets(text); !slices.Equal(got, want) {
			t.Errorf("%q\n%q, want %q", text, got, want)
		}
	}
}

// TestInnerSecretsAreLearnt checks that these secrets are among those of the lease, lent as a file or in a variable.
func TestInnerSecretsAreLearnt(t *testing.T) {
	h := newHouse(t, table()+`  whole: {literal: '{"Authorization":"Bearer ya29.headers"}', ttl: 1m, approval: none}`+"\n")
	for _, file := range []bool{true, false} {
		l := loanOf("", nil, "whole", "free")
		l.Wants[0].File = file
		lease := h.lend(l)
		has := slices.ContainsFunc(lease.Secrets, func(s bailey.Secret) bool { return s.Reveal() == "ya29.headers" })
		if !has || lease.Secrets[1].Reveal() != value {
			t.Errorf("a file %v: learnt %v of %d", file, has, len(lease.Secrets))
		}
		lease.Return()
	}
}
