//go:build linux || darwin

package broker

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/redact"
)

// TestLifeAfterTheCall checks that a receipt has the end of each credential that stays valid after its call, and of no
// other.
func TestLifeAfterTheCall(t *testing.T) {
	ktest.Long(t)
	for name, c := range issuerCases() {
		h, f := withIssuer(t, c)
		lease := h.lend(loanOf("", nil, "free"))
		id := lease.IDs[0]
		_, end, stays := strings.Cut(strings.TrimSuffix(id, SameUID), "~")
		token := ""
		if c.revocable {
			token = tokenIn(t, f, lease.Secrets[0].Reveal())
		}
		lease.Return()
		h.end()
		stored := strings.Contains(c.entry, "secret/data") || strings.Contains(c.entry, "infisical") // no end is known
		if until, err := time.Parse(time.RFC3339, end); stays && (err != nil || until.Before(time.Now()) || until.After(time.Now().Add(2*time.Hour))) {
			t.Errorf("%s: %q", name, id)
		}
		if stays == (c.revocable || stored) || c.revocable && f.isValid(token) {
			t.Errorf("%s: the receipt says %q, and the issuer accepts it: %v", name, id, f.isValid(token))
		}
	}
}

// TestTwoCallsOneLease checks that two calls at the same time, with one entry of the table, get credentials of their own:
// the end of one call does not end the credential of the other.
func TestTwoCallsOneLease(t *testing.T) {
	ktest.Long(t)
	for name, c := range issuerCases() {
		if !c.revocable {
			continue // nothing ends at the end of a call
		}
		h, f := withIssuer(t, c)
		var leases [2]bailey.Lease
		var both sync.WaitGroup
		for i := range leases {
			both.Go(func() { leases[i], _ = h.client.Lend(t.Context(), loanOf("", nil, "free")) })
		}
		both.Wait()
		if len(leases[0].Secrets) == 0 || len(leases[1].Secrets) == 0 {
			t.Fatalf("%s: %v", name, leases)
		}
		one, other := tokenIn(t, f, leases[0].Secrets[0].Reveal()), tokenIn(t, f, leases[1].Secrets[0].Reveal())
		if one == other || leases[0].IDs[0] == leases[1].IDs[0] {
			t.Errorf("%s: both calls have one credential: %v", name, leases)
		}
		leases[0].Return()
		if f.isValid(one) || !f.isValid(other) {
			t.Errorf("%s: after the first call its credential is accepted: %v, that of the second: %v", name, f.isValid(one), f.isValid(other))
		}
		leases[1].Return()
		h.end()
	}
}

// TestLentInEncodings checks, with each adapter and in the form in which its tool gets the value, that the credential is
// redacted in each encoding in which a tool may print it, also alone if the lent value is a document that contains it.
func TestLentInEncodings(t *testing.T) {
	ktest.Long(t)
	for name, c := range issuerCases() {
		h, f := withIssuer(t, c)
		loan := loanOf("", nil, "free")
		loan.Wants[0].File = isLentAsFile(name)
		lease := h.lend(loan)
		secret := value
		if !strings.Contains(c.entry, "secret/data") {
			secret = tokenIn(t, f, lease.Secrets[0].Reveal())
			secret = regexp.MustCompile(`[A-Za-z0-9_.-]*` + secret).FindString(lease.Secrets[0].Reveal()) // of a JWT, all parts
		}
		all := redact.NewTable()
		for _, known := range lease.Secrets {
			all.Learn("LENT", known.Reveal())
		}
		quoted, _ := json.Marshal("\t" + secret)
		for _, form := range []string{secret, string(quoted), url.QueryEscape(secret + "/"), url.PathEscape(secret + " "),
			hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
			base64.RawURLEncoding.EncodeToString([]byte("user:" + secret)), base64.StdEncoding.EncodeToString([]byte("x:" + secret))} {
			if shown, _ := all.Text("it says " + form + " here"); strings.Contains(shown, form) || strings.Contains(shown, secret) {
				t.Errorf("%s: %q is shown", name, shown)
			}
		}
		lease.Return()
		h.end()
	}
}
