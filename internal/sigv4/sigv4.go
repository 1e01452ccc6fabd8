// Package sigv4 signs HTTP requests to AWS with Signature Version 4
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html).
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Credentials are the keys of an account. Session is empty for long-lived keys.
type Credentials struct {
	ID, Secret, Session string
}

// Signer signs requests to one service of one region.
type Signer struct {
	Credentials
	Region, Service string
}

const (
	algorithm = "AWS4-HMAC-SHA256"
	timeForm  = "20060102T150405Z"
)

// Sign adds the headers of a signature over the method, the address, the host, all headers that are set, and the body.
func (s Signer) Sign(req *http.Request, body []byte, now time.Time) {
	at := now.UTC().Format(timeForm)
	req.Header.Set("X-Amz-Date", at)
	if s.Session != "" {
		req.Header.Set("X-Amz-Security-Token", s.Session)
	}
	req.Header.Del("Authorization")
	headers, names := canonicalHeaders(req)
	request := strings.Join(
		[]string{req.Method, canonicalPath(req.URL), canonicalQuery(req.URL), headers, names, hexSum(body)},
		"\n",
	)
	scope := strings.Join([]string{at[:8], s.Region, s.Service, "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, at, scope, hexSum([]byte(request))}, "\n")
	signature := hex.EncodeToString(hmacSum(s.signingKey(at[:8]), text))
	req.Header.Set(
		"Authorization",
		algorithm+" Credential="+s.ID+"/"+scope+", SignedHeaders="+names+", Signature="+signature,
	)
}

func (s Signer) signingKey(day string) []byte {
	key := []byte("AWS4" + s.Secret)
	for _, part := range []string{day, s.Region, s.Service, "aws4_request"} {
		key = hmacSum(key, part)
	}
	return key
}

// canonicalHeaders returns all headers in the form that is signed, each on a line, and their names.
func canonicalHeaders(req *http.Request) (lines, names string) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	all := map[string]string{"host": host}
	for name, values := range req.Header {
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		all[strings.ToLower(name)] = strings.Join(values, ",")
	}
	var sorted []string
	for name := range all {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		lines += name + ":" + all[name] + "\n"
	}
	return lines, strings.Join(sorted, ";")
}

// canonicalPath escapes each part twice, as every service but S3 requires.
func canonicalPath(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		return "/"
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = escapeReserved(p)
	}
	return strings.Join(parts, "/")
}

func canonicalQuery(u *url.URL) string {
	var pairs []string
	for name, values := range u.Query() {
		for _, v := range values {
			pairs = append(pairs, escapeReserved(name)+"="+escapeReserved(v))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escapeReserved escapes all but the unreserved characters (RFC 3986, section 2.3).
func escapeReserved(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

func hmacSum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
