package bailey

import (
	"fmt"
	"slices"
	"strings"
)

// API is the unix socket of a daemon on this machine. A cage can send only the requests that the routes name.
type API struct {
	Socket string   `json:"socket"`         // the daemon: one of [Daemons]
	Path   string   `json:"path,omitempty"` // path of the socket on the host; not set by a manifest
	Allow  []string `json:"allow"`          // routes in the syntax of [ParseRoute]
}

// Daemons returns the supported daemons, sorted.
func Daemons() []string { return []string{"docker", "incus", "podman"} }

// String returns the name for policy and receipts.
func (a API) String() string { return "unix:" + a.Socket }

// Inside returns the path of the socket in the cage.
func (a API) Inside() string { return "/run/bailey/" + a.Socket + ".sock" }

// Route is one kind of request that a daemon may receive. The zero Route matches no request.
type Route struct {
	Method string
	Path   []string            // segments: a word, "{x}" for any one segment, "{x...}" for one or more
	Query  map[string][]string // allowed parameters; one with values must occur exactly once, with one of them
}

// Limits of a route, in bytes and segments.
const (
	maxRoute    = 512
	maxSegments = 16
)

// actions are the last segments of paths that do more than a query although they use GET: they copy files out, stream
// endlessly, or take over the connection.
var actions = []string{"archive", "attach", "build", "console", "events", "exec", "export", "files", "get", "grpc",
	"load", "session", "sftp", "wait", "ws"}

// ParseRoute parses a route such as "GET /containers/{id}/stats?stream=0&one-shot". It accepts only queries: GET and
// HEAD.
func ParseRoute(s string) (Route, error) {
	bad := func(why string) (Route, error) {
		return Route{}, &Error{Kind: Invalid, Message: "route " + quoteTruncated(s) + ": " + why,
			Hint: `write "GET /containers/{id}/json?size"`}
	}
	method, target, _ := strings.Cut(s, " ")
	path, query, asks := strings.Cut(target, "?")
	switch {
	case len(s) > maxRoute:
		return bad(fmt.Sprintf("it has more than %d bytes", maxRoute))
	case method != "GET" && method != "HEAD":
		return bad("its method is neither GET nor HEAD")
	case !strings.HasPrefix(path, "/"):
		return bad("its path does not begin with a slash")
	}
	r := Route{Method: method, Path: strings.Split(path[1:], "/"), Query: map[string][]string{}}
	if len(r.Path) > maxSegments {
		return bad(fmt.Sprintf("it has more than %d segments", maxSegments))
	}
	for i, seg := range r.Path {
		if name, ok := strings.CutPrefix(seg, "{"); ok {
			name, ok = strings.CutSuffix(name, "}")
			if seg = strings.TrimSuffix(name, "..."); !ok {
				return bad("a brace is not closed")
			}
		}
		switch {
		case seg == "" || seg == "." || seg == ".." || !isPlainWord(seg):
			return bad("a segment is no word of letters, digits and ._-")
		case i == len(r.Path)-1 && slices.Contains(actions, r.Path[i]):
			return bad(seg + " does more than look")
		}
	}
	if asks {
		for _, p := range strings.Split(query, "&") {
			name, value, must := strings.Cut(p, "=")
			values, twice := r.Query[name]
			if name == "" || !isPlainWord(name) || !isPlainWord(value) || twice && (!must || values == nil) {
				return bad("its parameters are names, or name=value, with & between")
			}
			if must {
				values = append(values, value)
			}
			r.Query[name] = values
		}
	}
	return r, nil
}

// isPlainWord reports whether s consists only of letters, digits and ._-, or is empty.
func isPlainWord(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
