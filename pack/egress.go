package pack

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// maxEgress limits the destinations of a capability, because each one that can be forwarded needs its own listener in
// the cage.
const maxEgress = 64

// reached is one entry of network.egress: a destination, or the input that contains it.
type reached struct {
	place string // canonical host:port, or unix:daemon; "" if it comes from an input
	input string
	port  string // port for the host in the input; "" if the input is a url
}

// inject describes where a credential is inserted at the edge of the cage.
type inject struct {
	To      []string `json:"to"`
	Headers []string `json:"headers,omitempty"`
	Query   []string `json:"query,omitempty"`
	Basic   string   `json:"basic,omitempty"`
}

// Egress returns the destinations that the tool needs, host:port or unix:daemon, for an input that Check has typed. The
// list is sorted and has no duplicates. An input without a value adds none.
func (m *Capability) Egress(input map[string]any) ([]string, error) {
	var places []string
	for _, to := range m.egress {
		place := to.place
		if to.input != "" {
			v, given := input[to.input].(string)
			if !given {
				continue
			}
			e, err := to.from(v)
			if err != nil {
				return nil, m.invalid("input /%s: \"%s\" %s", to.input, show(m.hidden(v)), err)
			}
			place = e.String()
		}
		places = append(places, place)
	}
	slices.Sort(places)
	return slices.Compact(places), nil
}

// unreachable is the reason why an input contains no valid destination.
type unreachable string

func (u unreachable) Error() string { return string(u) }

// from returns the destination in the value of an input. The port of a url is its explicit port or that of its scheme.
// The scheme must be https, so that no secret or answer can be read or changed on the network.
func (to reached) from(v string) (bailey.Endpoint, error) {
	host, port := v, to.port
	if port == "" {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return bailey.Endpoint{}, unreachable("is not https://, which is all that is reached")
		}
		if host, port = u.Hostname(), u.Port(); port == "" {
			port = "443"
		}
	}
	e, err := bailey.ParseEndpoint(net.JoinHostPort(host, port))
	if err != nil || strings.HasPrefix(e.Host, "*") {
		return e, unreachable("names no host in the one spelling it has")
	}
	return e, nil
}

// Reaches returns network.egress as written in the manifest, and the daemon of network.api.
func (m *Capability) Reaches() []string {
	list := slices.Clone(m.spec.Sandbox.Egress)
	if api := m.spec.Sandbox.API; api != nil {
		list = append(list, api.String())
	}
	return list
}

// egress reads network.egress and checks the destinations of injected credentials. It runs after the schema, because
// entries refer to inputs.
func (r *reader) egress(at *nodes, m *manifest, s *schema) (list []reached) {
	if at.egress != nil {
		items := r.items(at.egress, "egress")
		if len(items) > maxEgress {
			r.fault(tokenOf(at.egress), "egress names at most %d places, found %d", maxEgress, len(items))
			items = nil
		}
		for _, item := range items {
			if to, text, ok := r.place(item, s); ok {
				if slices.Contains(m.Sandbox.Egress, text) {
					r.fault(tokenOf(item), "egress names %q twice", clip(text))
				}
				list, m.Sandbox.Egress = append(list, to), append(m.Sandbox.Egress, text)
			}
		}
		if len(list) > 0 && m.Isolation != Jail {
			r.fault(tokenOf(at.egress), "isolation %s contradicts egress: only a cage of ours has a network of names", m.Isolation)
		}
		if len(list) > 0 && m.SideEffect == None {
			r.fault(tokenOf(at.egress), "sideEffectClass none contradicts egress: what reaches the network can tell it something")
		}
	}
	for n, in := range at.inject {
		for _, to := range in.To {
			if !slices.Contains(m.Sandbox.Egress, to) {
				r.fault(tokenOf(n), "inject sends a credential to %q, which network.egress does not name%s", clip(to), near(to, m.Sandbox.Egress))
			}
		}
	}
	return list
}

// place reads one entry. text is the entry as it stands in the manifest and its digest.
func (r *reader) place(n ast.Node, s *schema) (to reached, text string, ok bool) {
	before := len(r.faults)
	r.spelt("egress", n, &text)
	if len(r.faults) > before {
		return to, "", false
	}
	e := r.template(n, text)
	if len(r.faults) > before {
		return to, "", false
	}
	p := e.parts
	if len(p) == 1 && p[0].input == "" {
		place, err := bailey.ParseEndpoint(text)
		if err != nil {
			r.fault(tokenOf(n), "%s; %s", err, bailey.HintOf(err))
			return to, "", false
		}
		return reached{place: place.String()}, place.String(), true
	}
	if len(p) == 0 || p[0].input == "" || p[0].def != nil || p[0].flag != "" || len(p) > 2 || len(p) == 2 && p[1].input != "" {
		r.fault(tokenOf(n), "egress wants host:port, \"{{ input.x }}\" of a url, or \"{{ input.x }}:443\" of a host, found %q", clip(text))
		return to, "", false
	}
	to.input = p[0].input
	format := "url"
	if len(p) == 2 {
		format = "host"
		to.port = strings.TrimPrefix(p[1].text, ":")
	}
	in := s.props[to.input]
	switch {
	case in == nil:
		r.fault(tokenOf(n), "input.%s is not in the inputSchema%s", clip(to.input), near(to.input, s.names))
	case !in.only("string") || in.Format != format:
		r.fault(tokenOf(n), "egress wants input.%s to be a string of format %s", clip(to.input), format)
	case len(p) == 2 && (p[1].text[0] != ':' || !port(to.port)):
		r.fault(tokenOf(n), "egress wants a port behind input.%s, as \"{{ input.%s }}:443\", found %q", clip(to.input), clip(to.input), clip(text))
	default:
		return to, text, true
	}
	return to, "", false
}

// injected reads where a credential is inserted outside the cage. Destinations must be literal: the caller could choose
// one that comes from an input.
func (r *reader) injected(at *nodes, p **inject) func(ast.Node) {
	return func(n ast.Node) {
		in := &inject{}
		seen := r.fields(n, "inject", map[string]func(ast.Node){
			"to":      r.places(&in.To),
			"headers": r.names("headers", headerName(), &in.Headers),
			"query":   r.names("query", parameterName(), &in.Query),
			"basic":   r.text("basic", &in.Basic),
		})
		r.need(n, "inject", seen, "to")
		if len(in.To) == 0 || len(in.Headers)+len(in.Query) == 0 {
			r.fault(tokenOf(n), "inject wants places, and headers or query parameters")
		}
		for _, h := range in.Headers {
			if slices.ContainsFunc(framing, func(f string) bool { return strings.EqualFold(f, h) }) {
				r.fault(tokenOf(n), "inject cannot stand in the header %s", h)
			}
		}
		if seen["basic"] {
			r.basic(n, in)
		}
		if at.inject == nil {
			at.inject = map[ast.Node]*inject{}
		}
		at.inject[n], *p = in, in
	}
}

// basic checks the user name (RFC 7617: the first colon ends it). The Authorization header must be the only place of
// injection.
func (r *reader) basic(n ast.Node, in *inject) {
	if !basicUser.MatchString(in.Basic) {
		r.fault(tokenOf(n), "basic wants a user of letters, digits, dots, - and _, found %q", clip(in.Basic))
	}
	if len(in.Headers) != 1 || !strings.EqualFold(in.Headers[0], "Authorization") || len(in.Query) > 0 {
		r.fault(tokenOf(n), "basic makes a header of its own: inject wants headers: [Authorization] beside it, and no query")
	}
}

var basicUser = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// framing contains the headers that control the destination or the end of a request.
var framing = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization"}

func (r *reader) places(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.items(n, "to") {
			var v string
			before := len(r.faults)
			r.spelt("to", item, &v)
			if len(r.faults) > before {
				continue
			}
			e, err := bailey.ParseEndpoint(v)
			switch {
			case err != nil:
				r.fault(tokenOf(item), "%s; %s", err, bailey.HintOf(err))
			case slices.Contains(*p, e.String()):
				r.fault(tokenOf(item), "to names %q twice", clip(v))
			default:
				*p = append(*p, e.String())
			}
		}
	}
}

// spelt reads a text with a colon, which YAML parses as a key in a list on one line.
func (r *reader) spelt(what string, n ast.Node, p *string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		r.fault(tokenOf(n), "%s wants host:port in quotes, as \"example.com:443\"", what)
	default:
		r.text(what, p)(n)
	}
}
