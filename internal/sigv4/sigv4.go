// Package sigv4 signs HTTP requests to AWS with Signature Version 4
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html).
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
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
	s.signNamed(req, nil, HashBody(body), now)
}

// Request is a signature that a request has.
type Request struct {
	ID, Day, Region, Service string
	Headers                  []string // names of the signed headers, in lower case
}

// ParseAuthorization reads the header Authorization of a signed request.
func ParseAuthorization(header string) (r Request, ok bool) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return r, false
	}
	for part := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch key {
		case "Credential":
			words := strings.Split(value, "/")
			if len(words) != 5 || words[4] != "aws4_request" {
				return r, false
			}
			r.ID, r.Day, r.Region, r.Service = words[0], words[1], words[2], words[3]
		case "SignedHeaders":
			r.Headers = strings.Split(value, ";")
		}
	}
	return r, r.ID != "" && len(r.Headers) > 0
}

// Again replaces the signature of a request by one of other credentials, over the same headers and the same hash of the
// body. hash is what the request's header X-Amz-Content-Sha256 has, or the SHA-256 of the body in hexadecimal.
func (r Request) Again(req *http.Request, c Credentials, hash string, now time.Time) {
	req.Header.Del("X-Amz-Security-Token")
	headers := slices.DeleteFunc(slices.Clone(r.Headers), func(name string) bool {
		return name == "host" || name == "x-amz-date" || name == "x-amz-security-token"
	})
	Signer{c, r.Region, r.Service}.signNamed(req, append([]string{}, headers...), hash, now)
}

// signNamed signs the named headers, or all if names is nil, and always the host, the date and the session.
func (s Signer) signNamed(req *http.Request, names []string, hash string, now time.Time) {
	at := now.UTC().Format(timeForm)
	req.Header.Set("X-Amz-Date", at)
	if s.Session != "" {
		req.Header.Set("X-Amz-Security-Token", s.Session)
	}
	req.Header.Del("Authorization")
	headers, signed := canonicalHeaders(req, names)
	request := strings.Join([]string{req.Method, s.canonicalPath(req.URL), canonicalQuery(req.URL), headers,
		signed, hash},
		"\n")
	scope := strings.Join([]string{at[:8], s.Region, s.Service, "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, at, scope, HashBody([]byte(request))}, "\n")
	signature := hex.EncodeToString(hmacSum(s.signingKey(at[:8]), text))
	req.Header.Set("Authorization",
		algorithm+" Credential="+s.ID+"/"+scope+", SignedHeaders="+signed+", Signature="+signature)
}

func (s Signer) signingKey(day string) []byte {
	key := []byte("AWS4" + s.Secret)
	for _, part := range []string{day, s.Region, s.Service, "aws4_request"} {
		key = hmacSum(key, part)
	}
	return key
}

// canonicalHeaders returns the headers in the form that is signed, each on a line, and their names.
func canonicalHeaders(req *http.Request, wanted []string) (lines, names string) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	all := map[string]string{"host": host}
	for name, values := range req.Header {
		key := strings.ToLower(name)
		if wanted != nil && key != "x-amz-date" && key != "x-amz-security-token" && !slices.Contains(wanted, key) {
			continue
		}
		var trimmed []string
		for _, v := range values {
			trimmed = append(trimmed, strings.Join(strings.Fields(v), " "))
		}
		all[key] = strings.Join(trimmed, ",")
	}
	sorted := slices.Sorted(maps.Keys(all))
	for _, name := range sorted {
		lines += name + ":" + all[name] + "\n"
	}
	return lines, strings.Join(sorted, ";")
}

// canonicalPath escapes each part once more, as every service but S3 requires.
func (s Signer) canonicalPath(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		return "/"
	}
	if s.Service == "s3" {
		return path
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

// HashBody returns the hash of a body as a signature contains it.
func HashBody(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
