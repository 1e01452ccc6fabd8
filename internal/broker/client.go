package broker

import (
	"cmp"
	"context"
	"crypto/ed25519"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Client borrows from the broker at Socket, which must run as UID. The zero Client borrows nothing: it refuses every
// call that needs a credential.
type Client struct {
	Socket string
	UID    int
	// Patience limits the time that a broker may take; default: 20 s, because the broker may have to ask an issuer.
	Patience time.Duration
}

// SameUID is appended to the ID of a lease if the broker runs as the gateway's user. Every process of that user could
// then take the value without asking.
const SameUID = "+same-uid"

// returnPatience is how long a call waits at its end until the broker has recorded it.
const returnPatience = 2 * time.Second

// Scope returns the terms of a loan without lending.
func (c Client) Scope(ctx context.Context, wants []bailey.Want) ([]bailey.LeaseScope, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	var got scopes
	_, err := c.requestOnce(ctx, wants, askScope, brokerRequest{Wants: wireWants(wants)}, &got)
	if err != nil {
		return nil, err
	}
	if len(got.Scopes) != len(wants) {
		return nil, malformedError(nil)
	}
	var list []bailey.LeaseScope
	for i, s := range got.Scopes {
		if s.Name != wants[i].Name || s.Env != wants[i].Env || s.TTL < 1 || s.TTL > int64(maxTTL/time.Second) {
			return nil, malformedError(nil)
		}
		list = append(list, bailey.LeaseScope{Name: s.Name, Env: s.Env, Adapter: s.Adapter, Scope: s.Scope,
			TTL: time.Duration(s.TTL) * time.Second, Approval: s.Approval})
	}
	return list, nil
}

// Lend returns a lease with every wanted credential, or an error and an empty lease. Env, Files and Secrets are in the
// order of wants. Return ends the lease and clears Env, Files and Secrets. It is never nil and may be called again.
func (c Client) Lend(ctx context.Context, l bailey.Loan) (bailey.Lease, error) {
	none := bailey.Lease{Return: func() {}}
	if err := context.Cause(ctx); err != nil {
		return none, unavailableError(err, "", "cannot lend %s: the call has ended", l.Receipt)
	}
	if err := checkNames(l.Wants); err != nil {
		return none, err
	}
	if len(l.Wants) == 0 {
		return none, nil
	}
	conn, done, err := c.dialBroker(ctx, l.Wants)
	if err != nil {
		return none, err
	}
	lease, err := c.requestLoan(conn, l)
	if err != nil {
		done()
		return none, err
	}
	lease.Return = sync.OnceFunc(func() {
		clear(lease.Env)
		clear(lease.Files)
		clear(lease.Secrets)
		_ = conn.SetDeadline(time.Now().Add(returnPatience))
		// the end of the connection has the same effect
		_ = roundTrip(conn, askReturn, brokerRequest{IDs: plainLeaseIDs(lease.IDs)}, &struct{}{})
		done()
	})
	return lease, nil
}

func (c Client) requestLoan(conn *peer.Conn, l bailey.Loan) (lease bailey.Lease, err error) {
	a := brokerRequest{Receipt: string(l.Receipt), Capability: string(l.Capability),
		Wants: wireWants(l.Wants), Text: l.Text, Signatures: l.Signatures}
	var got loanAnswer
	if err := roundTrip(conn, askLend, a, &got); err != nil {
		return lease, err
	}
	if len(got.Leases) != len(l.Wants) {
		return lease, malformedError(nil)
	}
	for i, w := range l.Wants {
		kind, value, err := conn.ReadFrameWithin(MaxValue)
		if err != nil || kind != aValue {
			return lease, connLostError(err)
		}
		text := string(value)
		clear(value)
		lease.IDs = append(lease.IDs, c.receiptLeaseID(got.Leases[i]))
		lease.Secrets = append(lease.Secrets, bailey.NewSecret(text))
		if w.File {
			lease.Files = append(lease.Files, bailey.LentFile{Env: w.Env, Value: bailey.NewSecret(text)})
		} else {
			lease.Env = append(lease.Env, w.Env+"="+text)
		}
	}
	for _, whole := range lease.Secrets[:len(l.Wants)] {
		for _, secret := range embeddedSecrets(whole.Reveal()) {
			lease.Secrets = append(lease.Secrets, bailey.NewSecret(secret))
		}
	}
	return lease, conn.SetDeadline(time.Time{})
}

// receiptLeaseID returns a lease's ID as it appears in receipts. If the issuer has a name for the value, "=" and that
// name follow. If the value stays valid after the call, "~" and the end of its validity follow. [SameUID] follows if the
// broker has no user of its own.
func (c Client) receiptLeaseID(l lease) string {
	id := l.ID
	if l.Mint != "" {
		id += "=" + l.Mint
	}
	if !l.Until.IsZero() && !l.Ends {
		id += "~" + l.Until.UTC().Format(time.RFC3339)
	}
	if c.UID == os.Geteuid() {
		id += SameUID
	}
	return id
}

// plainLeaseIDs returns the IDs without these additions.
func plainLeaseIDs(ids []string) (list []string) {
	for _, id := range ids {
		if i := strings.IndexAny(id, "=~+"); i >= 0 {
			id = id[:i]
		}
		list = append(list, id)
	}
	return list
}

// Hello asks the broker for its version and state.
func (c Client) Hello(ctx context.Context) (h Hello, err error) {
	h.UID, err = c.requestOnce(ctx, nil, askHello, brokerRequest{}, &h)
	return h, err
}

// Apply makes the broker use the table with this digest. The broker does this only for its own user.
func (c Client) Apply(ctx context.Context, digest string) error {
	_, err := c.requestOnce(ctx, nil, askApply, brokerRequest{Digest: digest}, &struct{}{})
	return err
}

// Revoke ends the open loans that contain one of the named leases, or all if none is named, and returns their number.
// The
// broker does this only for its own user.
func (c Client) Revoke(ctx context.Context, leases []string) (int, error) {
	a := brokerRequest{}
	for _, name := range leases {
		a.Wants = append(a.Wants, want{Name: name})
	}
	var out revoked
	_, err := c.requestOnce(ctx, nil, askRevoke, a, &out)
	return out.Loans, err
}

// dialBroker connects. The connection closes when ctx ends or done is called.
func (c Client) dialBroker(ctx context.Context, wants []bailey.Want) (conn *peer.Conn, done func(), err error) {
	if c.Socket == "" {
		what := "cannot lend a credential"
		if len(wants) > 0 {
			what = fmt.Sprintf("cannot lend credential %q", wants[0].Name)
		}
		return nil, nil, unavailableError(nil,
			"start bailey-broker, set its socket and uid under broker in settings.yaml, then run bailey init --apply; see docs/broker.md", "%s: no broker is configured", what)
	}
	conn, err = peer.DialUID(c.Socket, c.UID)
	if err != nil {
		if bailey.KindOf(err) == bailey.Denied {
			return nil, nil, err // a process of another user listens in its place
		}
		return nil, nil, unavailableError(err,
			"start bailey-broker, or correct broker in settings.yaml; bailey doctor checks it", "the broker at %s does not answer", c.Socket)
	}
	if err := conn.SetDeadline(time.Now().Add(cmp.Or(c.Patience, 20*time.Second))); err != nil {
		conn.Close()
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // when a call ends, its loan must end
	return conn, func() { stop(); conn.Close() }, nil
}

func wireWants(wants []bailey.Want) (list []want) {
	for _, w := range wants {
		list = append(list, want{Name: w.Name, Env: w.Env, File: w.File, Limits: w.Limits})
	}
	return list
}

// roundTrip sends one message and reads the answer.
func roundTrip(conn *peer.Conn, kind byte, a brokerRequest, into any) error {
	a.Version = version
	if err := conn.WriteJSON(kind, a); err != nil {
		return connLostError(err)
	}
	got, payload, err := conn.ReadFrameWithin(maxAsk)
	if err != nil {
		return connLostError(err)
	}
	switch got {
	case answerOK:
		return decodeStrict(payload, into)
	case answerErr:
		var r refusal
		if err := decodeStrict(payload, &r); err != nil {
			return err
		}
		return bailey.Kind(r.Kind).New(r.Message, r.Hint)
	}
	return malformedError(nil)
}

func connLostError(err error) error {
	return unavailableError(err, "look at the broker's log; it does not answer a uid that is not admitted",
		"the broker closed the connection")
}

//go:embed variables.txt
var barredText string

// barredVariables returns the variables in which a credential must never arrive: otherwise the author of a manifest
// could choose the code that the tool executes. An entry may end with *.
var barredVariables = sync.OnceValue(func() (list []string) {
	for line := range strings.Lines(barredText) {
		if !strings.HasPrefix(line, "#") {
			list = append(list, strings.Fields(line)...)
		}
	}
	return list
})

// checkNames refuses variables that are misspelt, barred or wanted twice.
func checkNames(wants []bailey.Want) error {
	seen := make(map[string]bool, len(wants))
	for _, w := range wants {
		switch {
		case !validName(w.Env):
			return bailey.Invalid.Errorf("use letters, digits and underscores, and do not begin with a digit",
				"credential %q names the variable %q, which is not a valid variable name", w.Name, w.Env)
		case isBarred(w.Env):
			return bailey.Denied.Errorf("use another variable in the manifest",
				"credential %q cannot be passed in %s: that variable controls what a tool runs", w.Name, w.Env)
		case seen[w.Env]:
			return bailey.Invalid.Errorf("give each credential a variable of its own in the manifest",
				"two credentials use the variable %s", w.Env)
		}
		seen[w.Env] = true
	}
	return nil
}

// validName reports whether name matches [A-Za-z_][A-Za-z0-9_]*.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// isBarred compares in upper case, because some tools read both http_proxy and HTTP_PROXY.
func isBarred(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(barredVariables(), func(v string) bool {
		prefix, open := strings.CutSuffix(v, "*")
		return v == name || open && strings.HasPrefix(name, prefix)
	})
}

// maxInner limits the number of secrets that are searched for in a file.
const maxInner = 64

// secretKey matches a key that precedes a secret in credential files (for example kubeconfig, ~/.aws/credentials,
// headers in JSON), and the secret.
var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:token|secret|password|passwd|authorization|key-data)[a-z_-]*["']?[ \t]*[:=][ \t]*["']?(?:(?:bearer|basic)[ \t]+)?([^\s"',}]{8,})`)
})

// embeddedSecrets returns the secrets in a lent document, for example in a file or in a secret of Vault with several
// fields. A tool can print one of them without printing the whole, and redaction would otherwise look for the whole only.
func embeddedSecrets(text string) (list []string) {
	for _, m := range secretKey().FindAllStringSubmatch(text, maxInner) {
		if m[1] != text {
			list = append(list, m[1])
		}
	}
	var fields map[string]string
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &fields) != nil {
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) { // of a plain object, the values under other names too
		v := fields[name]
		if len(v) >= 8 && len(list) < maxInner && !slices.ContainsFunc(list, func(found string) bool { return strings.Contains(v, found) }) {
			list = append(list, v)
		}
	}
	return list
}

// MakeKey makes the broker create a key that signs for a log, and returns its public half. The private half never
// leaves the broker.
func (c Client) MakeKey(ctx context.Context) (ed25519.PublicKey, error) {
	var got madeKey
	if _, err := c.requestOnce(ctx, nil, askMake, brokerRequest{}, &got); err != nil {
		return nil, err
	}
	public, ok := parsePublic(got.Key)
	if !ok {
		return nil, malformedError(nil)
	}
	return public, nil
}

// HasKey returns NotFound if the broker has no such key for this uid.
func (c Client) HasKey(ctx context.Context, public ed25519.PublicKey) error {
	name := hex.EncodeToString(public)
	var got keptKeys
	if _, err := c.requestOnce(ctx, nil, askKeys, brokerRequest{Key: name}, &got); err != nil {
		return err
	}
	if len(got.Keys) == 1 && got.Keys[0] == name {
		return nil
	}
	return noKey(name, nil)
}

// Keys returns the public halves of this uid's keys.
func (c Client) Keys(ctx context.Context) (list []ed25519.PublicKey, err error) {
	var got keptKeys
	if _, err := c.requestOnce(ctx, nil, askKeys, brokerRequest{}, &got); err != nil {
		return nil, err
	}
	for _, k := range got.Keys {
		public, ok := parsePublic(k)
		if !ok {
			return nil, malformedError(nil)
		}
		list = append(list, public)
	}
	return list, nil
}

// SignLog returns the key's signature over a log's text: a checkpoint, or the statement that the key is the log's
// first. It verifies the signature first.
func (c Client) SignLog(ctx context.Context, public ed25519.PublicKey, text []byte) ([]byte, error) {
	var got signature
	if _, err := c.requestOnce(ctx, nil, askSign,
		brokerRequest{Key: hex.EncodeToString(public), Text: string(text)}, &got); err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.DecodeString(got.Signature)
	if err != nil {
		return nil, malformedError(nil)
	}
	if !ed25519.Verify(public, text, sig) {
		return nil, bailey.Conflict.New("the broker's signature is invalid",
			"check whether the broker or its key was replaced")
	}
	return sig, nil
}

// requestOnce exchanges one message over a separate connection. It returns the broker's uid.
func (c Client) requestOnce(
	ctx context.Context, wants []bailey.Want, kind byte, a brokerRequest, into any,
) (uid int, err error) {
	conn, done, err := c.dialBroker(ctx, wants)
	if err != nil {
		return 0, err
	}
	defer done()
	return conn.UID, roundTrip(conn, kind, a, into)
}
