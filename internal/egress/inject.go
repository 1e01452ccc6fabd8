package egress

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"bailey"
)

// Injection is a secret for which the cage has a placeholder, made by [bailey.NewPlaceholder].
type Injection = bailey.Injection

const minPlaceholder = 16

type secret struct {
	Injection
	headers []string // canonical names
}

// bindInjections checks the injections and adds each to its entries.
func bindInjections(list *Allowlist, all []Injection) ([]*secret, error) {
	var secrets []*secret
	for _, in := range all {
		if err := injectionFault(in, secrets); err != nil {
			return nil, err
		}
		s := &secret{Injection: in}
		for _, h := range in.Headers {
			s.headers = append(s.headers, textproto.CanonicalMIMEHeaderKey(h))
		}
		for _, to := range in.To {
			i := slices.IndexFunc(list.entries, func(e *entry) bool { return e.String() == to })
			if i < 0 {
				return nil, invalidError(fmt.Sprintf("%s is to be sent to %s, which is not an egress entry", in.Name,
					quoteShort(to)), "name an entry exactly as in the egress list")
			}
			if list.entries[i].Plain {
				return nil, invalidError(fmt.Sprintf("%s is to be sent to %s, which is plain", in.Name, to),
					"leave plain out: a secret is sent only over TLS")
			}
			list.entries[i].inject = append(list.entries[i].inject, s)
		}
		secrets = append(secrets, s)
	}
	return secrets, nil
}

func injectionFault(in Injection, before []*secret) error {
	v := in.Value.Reveal()
	odd := func(r rune) bool { return r < ' ' || r > '~' }
	if in.Sign != "" {
		if _, err := awsKeys(in); err != nil {
			return invalidError("the value of "+in.Name+" cannot sign requests: "+err.Error(),
				"lend a file in the form of ~/.aws/credentials")
		}
		v = "keys"
	}
	switch {
	case len(in.Placeholder) < minPlaceholder ||
		strings.Trim(in.Placeholder, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "":
		return invalidError("the placeholder of "+in.Name+" could occur in other text",
			fmt.Sprintf("use at least %d letters, digits, - and _", minPlaceholder))
	case v == "" || strings.IndexFunc(v, odd) >= 0:
		return invalidError("the value of "+in.Name+" is not valid in a header",
			"use printable ASCII on one line for an injected secret")
	case len(in.To) == 0 || len(in.Headers)+len(in.Query) == 0:
		return invalidError(in.Name+" has no destination", "name endpoints, and headers or query parameters")
	case strings.Contains(v, in.Placeholder):
		return invalidError("the placeholder of "+in.Name+" is part of its value", "use a random placeholder")
	}
	for _, s := range before {
		if strings.Contains(s.Placeholder, in.Placeholder) || strings.Contains(in.Placeholder, s.Placeholder) {
			return invalidError("the placeholders of "+in.Name+" and "+s.Name+" contain each other",
				"use a random one for each")
		}
	}
	return nil
}

// injectSecrets replaces placeholders in a request with their secrets. It refuses the request if a placeholder occurs
// where its secret must not go.
func (g *grant) injectSecrets(r *http.Request) *Refusal {
	if r.Body != nil && r.Body != http.NoBody && len(g.p.secrets) > 0 {
		r.Body = &searchedBody{ReadCloser: r.Body, g: g, left: maxSearched}
	}
	if ref := g.signRequests(r); ref != nil {
		return ref
	}
	for _, s := range g.p.secrets {
		here := s.Sign == "" && slices.Contains(g.entry.inject, s) && s.isBelow(g.target.String(), r.URL)
		if where := s.replaceInRequest(r, here); where != "" {
			return g.misuseRefusal(s, where)
		}
	}
	return nil
}

// isBelow reports whether a request is at or below one of the paths of the secret. The path must be spelled plainly,
// because a server could understand another spelling as another path.
func (s *secret) isBelow(target string, u *url.URL) bool {
	if s.Paths == nil {
		return true
	}
	path := u.EscapedPath()
	if strings.ContainsAny(path, "%\\") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") ||
		strings.Contains(path, "//") {
		return false
	}
	return slices.ContainsFunc(s.Paths, func(p string) bool {
		rest, ok := strings.CutPrefix(target+path, p)
		return ok && (rest == "" || rest[0] == '/')
	})
}

func (g *grant) misuseRefusal(s *secret, where string) *Refusal {
	hint := "send it only to " + strings.Join(s.To, ", ")
	if slices.Contains(g.entry.inject, s) {
		hint = "send it in " + strings.Join(append(slices.Clone(s.Headers), s.Query...), ", ")
	}
	if s.Paths != nil {
		hint += ", below " + strings.Join(s.Paths, ", ")
	}
	ref := deniedRefusal(fmt.Sprintf("egress to %s is refused: the placeholder of %s is in %s", g.target, s.Name,
		where), hint)
	ref.kind = KindMisused
	return ref
}

// replaceInRequest replaces the placeholder where that is allowed. If the placeholder occurs elsewhere, it returns a
// name for that location, such as "the path"; otherwise it returns "".
func (s *secret) replaceInRequest(r *http.Request, here bool) string {
	path, err := url.PathUnescape(r.URL.EscapedPath())
	if err != nil || strings.Contains(path, s.Placeholder) || strings.Contains(r.URL.RawPath, s.Placeholder) {
		return "the path"
	}
	if strings.Contains(r.Method, s.Placeholder) {
		return "the method"
	}
	for name, values := range r.Header {
		if strings.Contains(strings.ToLower(name), strings.ToLower(s.Placeholder)) {
			return "the name of a header"
		}
		for i, v := range values {
			swapped, found := s.replaceInHeader(v)
			if !found {
				continue
			}
			if !here || !slices.Contains(s.headers, name) {
				return "the header " + quoteShort(name)
			}
			values[i] = swapped
		}
	}
	return s.replaceInQuery(r, here)
}

// replaceInHeader replaces the placeholder in the value of a header, also inside encoded Basic credentials (RFC 7617).
func (s *secret) replaceInHeader(v string) (string, bool) {
	if strings.Contains(v, s.Placeholder) {
		return strings.ReplaceAll(v, s.Placeholder, s.Value.Reveal()), true
	}
	scheme, code, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return v, false
	}
	pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(code))
	if err != nil || !bytes.Contains(pair, []byte(s.Placeholder)) {
		return v, false
	}
	pair = bytes.ReplaceAll(pair, []byte(s.Placeholder), []byte(s.Value.Reveal()))
	return scheme + " " + base64.StdEncoding.EncodeToString(pair), true
}

// replaceInQuery replaces the placeholder in the query. Parameters without a placeholder stay as they were written.
func (s *secret) replaceInQuery(r *http.Request, here bool) string {
	pairs := strings.Split(r.URL.RawQuery, "&")
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if strings.Contains(unescapeQuery(key), s.Placeholder) {
			return "the name of a query parameter"
		}
		plain := unescapeQuery(value)
		if !strings.Contains(plain, s.Placeholder) {
			continue
		}
		if !here || !slices.Contains(s.Query, unescapeQuery(key)) {
			return "the query parameter " + quoteShort(unescapeQuery(key))
		}
		pairs[i] = key + "=" + url.QueryEscape(strings.ReplaceAll(plain, s.Placeholder, s.Value.Reveal()))
	}
	r.URL.RawQuery = strings.Join(pairs, "&")
	return ""
}

// unescapeQuery decodes query text as a server does. It returns text that cannot be decoded unchanged.
func unescapeQuery(s string) string {
	if t, err := url.QueryUnescape(s); err == nil {
		return t
	}
	return s
}

// maskHeader puts placeholders back if the header of a response contains a secret.
func (g *grant) maskHeader(h http.Header) {
	for _, s := range g.entry.inject {
		for _, values := range h {
			for i, v := range values {
				values[i] = s.maskValue(v)
			}
		}
	}
}

// maskValue replaces the value in plain form, in URL encoding, and inside base64 such as Basic credentials.
func (s *secret) maskValue(v string) string {
	if s.Sign != "" {
		return s.maskKeys(v)
	}
	value := s.Value.Reveal()
	for _, as := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
		v = strings.ReplaceAll(v, as, s.Placeholder)
	}
	for _, word := range strings.Fields(v) {
		if pair, err := base64.StdEncoding.DecodeString(word); err == nil && bytes.Contains(pair, []byte(value)) {
			pair = bytes.ReplaceAll(pair, []byte(value), []byte(s.Placeholder))
			v = strings.ReplaceAll(v, word, base64.StdEncoding.EncodeToString(pair))
		}
	}
	return v
}

// maskingWriter covers the headers of all responses, including those before the final one (103, Early Hints).
type maskingWriter struct {
	http.ResponseWriter
	g *grant
}

func (c maskingWriter) WriteHeader(code int) {
	c.g.maskHeader(c.Header())
	c.ResponseWriter.WriteHeader(code)
}

func (c maskingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// maxSearched is how many bytes of a body are searched for placeholders. A later placeholder is passed on: it is
// useless by itself.
const maxSearched = 64 << 10

// searchedBody makes a body fail if it contains a placeholder. Secrets are never put into a body.
type searchedBody struct {
	io.ReadCloser
	g    *grant
	left int
	tail []byte // end of the previous piece: the length of the longest placeholder less one
}

func (b *searchedBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if n == 0 || b.left <= 0 {
		return n, err
	}
	text := append(b.tail, to[:min(n, b.left)]...)
	b.left -= min(n, b.left)
	longest := 0
	for _, s := range b.g.p.secrets {
		if bytes.Contains(text, []byte(s.Placeholder)) {
			b.left = 0
			return 0, &refused{ref: b.g.p.record.recordRefusal(b.g.via, b.g.target.String(),
				b.g.misuseRefusal(s, "the body")), noted: true}
		}
		longest = max(longest, len(s.Placeholder)-1)
	}
	b.tail = bytes.Clone(text[max(0, len(text)-longest):])
	return n, err
}
