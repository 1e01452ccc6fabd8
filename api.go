package bailey

import (
	"fmt"
	"slices"
	"strings"
)

// API is a daemon's unix socket on this machine, of which a cage reaches what its routes name and nothing else.
type API struct {
	Socket string   `json:"socket"`         // the daemon: one of [Daemons]
	Path   string   `json:"path,omitempty"` // where it listens; a manifest does not say
	Allow  []string `json:"allow"`          // routes, as [ParseRoute] reads them
}

// Daemons are those that an API can be of, sorted.
func Daemons() []string { return []string{"docker", "incus", "podman"} }

// String is what policy and receipts call it.
func (a API) String() string { return "unix:" + a.Socket }

// Inside is where the cage finds it.
func (a API) Inside() string { return "/run/bailey/" + a.Socket + ".sock" }

// Route is one kind of request that a daemon may get. The zero Route is of none.
type Route struct {
	Method string
	Path   []string            // its segments: a word, "{x}" for any one, "{x...}" for one or more
	Query  map[string][]string // parameters that may be there; those with values have to be, once, with one of these
}

// Bounds of a route, in bytes and segments.
const (
	maxRoute    = 512
	maxSegments = 16
)

// actions are the last words of paths that look like reading and are not: they copy files out, stream without an end, or
// take the connection over.
var actions = []string{"archive", "attach", "build", "console", "events", "exec", "export", "files", "get", "grpc", "load", "session", "sftp", "wait", "ws"}

// ParseRoute reads "GET /containers/{id}/stats?stream=0&one-shot": what a daemon may be asked. Only what looks is let through: GET
// and HEAD.
func ParseRoute(s string) (Route, error) {
	bad := func(why string) (Route, error) {
		return Route{}, &Error{Kind: Invalid, Message: "route " + brief(s) + ": " + why, Hint: `write "GET /containers/{id}/json?size"`}
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
		case seg == "" || seg == "." || seg == ".." || !word(seg):
			return bad("a segment is no word of letters, digits and ._-")
		case i == len(r.Path)-1 && slices.Contains(actions, r.Path[i]):
			return bad(seg + " does more than look")
		}
	}
	if asks {
		for _, p := range strings.Split(query, "&") {
			name, value, must := strings.Cut(p, "=")
			values, twice := r.Query[name]
			if name == "" || !word(name) || !word(value) || twice && (!must || values == nil) {
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

// word tells of letters, digits and ._- alone, or of nothing.
func word(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
