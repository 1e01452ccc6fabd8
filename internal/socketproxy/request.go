package socketproxy

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey"
)

// Limits of a request, in bytes and fields.
const (
	maxHead   = 16 << 10
	maxTarget = 4 << 10
	maxFields = 64
)

// request is a parsed request. The daemon gets nothing else.
type request struct {
	method string
	path   []string          // at least one segment, none empty; nil if the target could not be parsed
	query  map[string]string // each parameter once
}

// requestFault says why a request is invalid.
type requestFault string

func (f requestFault) Error() string { return string(f) }

// parseHead parses a header, from the request line to the empty line. It tolerates nothing that RFC 9112 lets a recipient
// tolerate: if two parsers tolerate different things, requests can be smuggled.
func parseHead(head []byte) (request, error) {
	text, ended := bytes.CutSuffix(head, []byte("\r\n\r\n"))
	lines := strings.Split(string(text), "\r\n")
	word := strings.Split(lines[0], " ")
	switch {
	case !ended || strings.ContainsFunc(string(head), func(r rune) bool { return r != '\r' && r != '\n' && (r < ' ' || r > '~') }):
		return request{}, requestFault("it is not text that ends with an empty line")
	case strings.Count(string(text), "\r") != len(lines)-1 || strings.Count(string(text), "\n") != len(lines)-1:
		return request{}, requestFault("a line of it does not end in CR LF")
	case len(word) != 3 || word[2] != "HTTP/1.1" || word[0] == "" ||
		strings.Trim(word[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return request{}, requestFault("its first line is not METHOD /path HTTP/1.1")
	case len(lines)-1 > maxFields:
		return request{}, requestFault("it has too many header fields")
	}
	r := request{method: word[0]}
	if err := r.parseTarget(word[1]); err != nil {
		return r, err
	}
	return r, checkFields(lines[1:])
}

// forbiddenFields lists fields with which a request has more than a header, or a connection changes its protocol.
var forbiddenFields = []string{"transfer-encoding", "trailer", "te", "upgrade", "expect", "http2-settings"}

// checkFields checks the header fields. None of them is sent on.
func checkFields(lines []string) error {
	hosts, lengths := 0, 0
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" ||
			strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return requestFault("a line of its header is not a name, a colon and a value")
		}
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		switch {
		case slices.Contains(forbiddenFields, name):
			return requestFault("its header has " + name)
		case name == "host":
			hosts++
		case name == "content-length":
			lengths++
			if value != "0" {
				return requestFault("it has a body")
			}
		case name == "connection":
			if v := strings.ToLower(value); v != "close" && v != "keep-alive" {
				return requestFault("it would switch the protocol of its connection")
			}
		}
	}
	if hosts != 1 || lengths > 1 {
		return requestFault("its header has no host or two hosts, or two lengths")
	}
	return nil
}

// parseTarget parses a path and a query. An encoded slash counts as a slash, as for some of these daemons; a slash that is
// encoded twice is invalid. The compared text is exactly the text that is sent.
func (r *request) parseTarget(s string) error {
	path, query, asks := strings.Cut(s, "?")
	path = strings.NewReplacer("%2F", "/", "%2f", "/").Replace(path)
	if len(s) > maxTarget || !strings.HasPrefix(s, "/") {
		return requestFault("its target is not a path, or is too long")
	}
	segments, parameters := strings.Split(path[1:], "/"), map[string]string{}
	for _, seg := range segments {
		if seg == "" || seg == "." || seg == ".." || !isPlainName(seg) {
			return requestFault("its path has a segment that is empty, or dots, or has a character that is not allowed")
		}
	}
	for _, p := range strings.Split(query, "&") {
		if !asks {
			break
		}
		name, value, _ := strings.Cut(p, "=")
		value, err := url.QueryUnescape(value)
		_, twice := parameters[name]
		if err != nil || name == "" || !isPlainName(name) || strings.ContainsAny(name, "@:+") || twice ||
			!utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return requestFault("its query has a parameter twice, or an ambiguous one")
		}
		parameters[name] = value
	}
	r.path, r.query = segments, parameters
	return nil
}

// isPlainName reports whether s consists of the characters of names, digests and references. None of these must be encoded in
// a path.
func isPlainName(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~@:+-") == ""
}

// String returns the request in its only spelling: method and target.
func (r request) String() string {
	query := url.Values{}
	for name, value := range r.query {
		query.Set(name, value)
	}
	s := r.method + " /" + strings.Join(r.path, "/")
	if len(query) > 0 {
		s += "?" + query.Encode()
	}
	return s
}

// wireText returns the text that is sent to the daemon.
func (r request) wireText() string {
	head := r.String() + " HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bailey\r\nConnection: close\r\n"
	if r.method == "POST" { // the daemons want a length, and for images an object of registry credentials, here empty
		head += "Content-Length: 0\r\nX-Registry-Auth: e30=\r\n"
	}
	return head + "\r\n"
}

// mayBeQuiet reports whether the daemon may send nothing for a long time: if it does something first, or if it tells what
// happens from now on.
func (r request) mayBeQuiet() bool {
	follow := r.query["follow"]
	return r.method != "GET" && r.method != "HEAD" || r.path[len(r.path)-1] == "events" ||
		follow != "" && follow != "0" && follow != "false"
}

// isAllowed reports whether one of the routes matches the request, with or without an API version before the path.
func isAllowed(routes []bailey.Route, r request) bool {
	return slices.ContainsFunc(routes, func(route bailey.Route) bool {
		if route.Method != r.method || !matchQuery(route.Query, r.query) {
			return false
		}
		return matchPath(route.Path, r.path) || len(r.path) > 1 && isAPIVersion(r.path[0]) &&
			matchPath(route.Path, r.path[1:])
	})
}

// matchPath matches a path. A segment such as {name...} matches any number of segments, but at least one.
func matchPath(route, path []string) bool {
	for i, seg := range route {
		if strings.HasSuffix(seg, "...}") {
			for n := i + 1; n <= len(path); n++ {
				if matchPath(route[i+1:], path[n:]) {
					return true
				}
			}
			return false
		}
		if i >= len(path) || !strings.HasPrefix(seg, "{") && seg != path[i] {
			return false
		}
	}
	return len(route) == len(path)
}

// matchQuery compares parameters. Each parameter of the request must be in the route. If the route lists values for a
// parameter, the request must have it with one of them.
func matchQuery(route map[string][]string, query map[string]string) bool {
	for name := range query {
		if _, named := route[name]; !named {
			return false
		}
	}
	for name, values := range route {
		if value, there := query[name]; values != nil && (!there || !slices.Contains(values, value)) {
			return false
		}
	}
	return true
}

// isAPIVersion reports whether s is an API version, such as v1.41 or v4.3.1.
func isAPIVersion(s string) bool {
	rest, ok := strings.CutPrefix(s, "v")
	numbers := strings.Split(rest, ".")
	return ok && len(numbers) <= 3 &&
		!slices.ContainsFunc(numbers,
			func(n string) bool { return n == "" || len(n) > 4 || strings.Trim(n, "0123456789") != "" })
}
