package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"bailey"
)

// Limits of a conversation with an issuer.
const (
	maxReply      = 256 << 10
	issuerTimeout = 10 * time.Second // for all requests of one Mint
)

// issuer is an HTTPS API that issues credentials. It is trusted by the certificate authorities in a file, or without a
// file by those of the system. No redirect is followed and no proxy is used, because either would show the broker's
// own credential to another server.
type issuer struct {
	name string // for messages, for example "Vault"
	base *url.URL
	ca   string // file, or ""
	kept *keptClient
}

// keptClient is a client for the requests of a loan and of its end, which follow one another. A connection that waits
// longer is closed, so that no request meets one that the issuer has closed.
type keptClient struct {
	mu     sync.Mutex
	ca     [sha256.Size]byte // digest of the authorities that it trusts
	client *http.Client
}

// keepConnection is how long a connection waits for the next request.
const keepConnection = 2 * time.Second

func newIssuer(name, address, ca, dir string) (issuer, error) {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" ||
		base.Fragment != "" {
		return issuer{}, errors.New("server must be an address that begins with https://")
	}
	if ca != "" {
		ca = resolveIn(dir, ca)
	}
	return issuer{name: name, base: base, ca: ca, kept: &keptClient{}}, nil
}

// exchange is one request to an issuer, with the place for its answer.
type exchange struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         []byte
	into         any // the answer's JSON is stored there; nil: the answer is ignored
	cure         string
	sign         func(*http.Request) error
	parse        func(body []byte) error // instead of into
	reason       func(body []byte) string
}

// jsonBody returns the body and the header of a request in JSON.
func jsonBody(v any, header map[string]string) ([]byte, map[string]string) {
	body, err := json.Marshal(v)
	if err != nil { // only structs and maps of this package come here
		panic(err)
	}
	return body, withHeader(header, "Content-Type", "application/json")
}

// formBody returns the body and the header of a request that is an HTML form.
func formBody(form url.Values, header map[string]string) ([]byte, map[string]string) {
	return []byte(form.Encode()), withHeader(header, "Content-Type", "application/x-www-form-urlencoded")
}

func withHeader(header map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for k, v := range header {
		all[k] = v
	}
	return all
}

// sendRequest makes one request. Its errors contain a status and a short code of the issuer, and no other text: that is
// foreign,
// may be long, and may quote a credential.
func (i issuer) sendRequest(ctx context.Context, x exchange) error {
	client, err := i.trustedClient()
	if err != nil {
		return err
	}
	at := i.base
	if x.path != "" {
		at = at.JoinPath(x.path)
	}
	address := *at
	address.RawQuery = x.query.Encode()
	req, err := http.NewRequestWithContext(ctx, x.method, address.String(), bytes.NewReader(x.body))
	if err != nil {
		return unavailableError(nil, "correct "+TableName, "the address of %s cannot be used", i.name)
	}
	req.Header.Set("Accept", "application/json")
	for name, value := range x.header {
		req.Header.Set(name, value)
	}
	if x.sign != nil {
		if err := x.sign(req); err != nil {
			return err
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return unavailableError(
			transportError(err),
			"check that it runs, and server and ca in "+TableName,
			"cannot reach %s at %s",
			i.name,
			i.base.Host,
		)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	defer clear(body)
	if err != nil || len(body) > maxReply {
		return unavailableError(
			transportError(err),
			"check "+i.name,
			"the answer of %s is truncated, or over %d bytes",
			i.name,
			maxReply,
		)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return i.statusError(res.StatusCode, body, x)
	}
	switch {
	case x.parse != nil:
		err = x.parse(body)
	case x.into != nil:
		err = json.Unmarshal(body, x.into)
	}
	if err != nil { // the parser's text may quote the answer
		return i.strangeAnswer()
	}
	return nil
}

// strangeAnswer is the error for an answer with status 200 that lacks what an issuer's answer has.
func (i issuer) strangeAnswer() error {
	return unavailableError(
		nil,
		"check that server in "+TableName+" is that of "+i.name,
		"the answer is not that of %s",
		i.name,
	)
}

func (i issuer) statusError(status int, body []byte, x exchange) error {
	kind, hint, about := bailey.Unavailable, "check "+i.name, fmt.Sprintf("status %d", status)
	if x.reason != nil {
		if code := x.reason(body); code != "" && len(code) <= 64 &&
			strings.Trim(code, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.") == "" { // no digits: not a value
			about += ", " + code
		}
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		kind, hint = bailey.Denied, x.cure+"; check also the clock of this machine"
	case http.StatusNotFound, http.StatusUnprocessableEntity:
		hint = x.cure
	}
	return kind.Errorf(hint, "%s issued nothing: %s", i.name, about)
}

// transportError returns the cause of a failed request without its address, which may have a query.
func transportError(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// trustedClient returns a client that trusts the authorities as their file is now.
func (i issuer) trustedClient() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var authorities []byte
	if i.ca != "" {
		var err error
		if authorities, err = readTrusted(i.ca, maxTable); err != nil {
			return nil, err
		}
	}
	i.kept.mu.Lock()
	defer i.kept.mu.Unlock()
	sum := sha256.Sum256(authorities)
	if i.kept.client != nil {
		if i.kept.ca == sum {
			return i.kept.client, nil
		}
		i.kept.client.CloseIdleConnections()
		i.kept.client = nil
	}
	if i.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, unavailableError(
				nil,
				"use the CA certificate of "+i.name+" in PEM",
				"%s contains no certificate",
				i.ca,
			)
		}
	}
	i.kept.ca, i.kept.client = sum, &http.Client{
		Timeout:       issuerTimeout,
		Transport:     &http.Transport{TLSClientConfig: config, IdleConnTimeout: keepConnection},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return i.kept.client, nil
}

// readSecret reads the broker's own credential from a file, without the newline at its end.
func readSecret(name string) (string, error) {
	b, err := readPrivate(name, MaxValue)
	if err != nil {
		return "", err
	}
	defer clear(b)
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", unavailableError(
			nil,
			"write the credential alone into it, in one line",
			"%s is not one line of printable ASCII",
			name,
		)
	}
	return text, nil
}

// jsonCode returns a function that takes a short code from an error answer: the value at the first of the names that is
// a string.
func jsonCode(names ...string) func([]byte) string {
	return func(body []byte) string {
		var said map[string]any
		if json.Unmarshal(body, &said) != nil {
			return ""
		}
		for _, name := range names {
			if text, ok := said[name].(string); ok {
				return text
			}
		}
		return ""
	}
}

// validFor returns the end of a validity that an issuer gives in seconds, or zero if it gives none or one without sense.
func validFor(seconds int64) time.Time {
	if seconds <= 0 || seconds > math.MaxInt32 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second)
}

// requireKeys returns an error that names the first key without a value. pairs are names and values in turn.
func requireKeys(pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return fmt.Errorf("it needs %s", pairs[i])
		}
	}
	return nil
}
