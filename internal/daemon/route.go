package daemon

import (
	"slices"
	"strings"

	"bailey"
)

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
