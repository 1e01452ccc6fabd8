package pack

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/sigv4"
	"bailey/internal/strictyaml"
)

// maxEgress limits the destinations of a capability, because each one that can be forwarded needs its own listener in
// the cage.
const maxEgress = 64

// egressEntry is one entry of network.egress: a destination, or the input that contains it.
type egressEntry struct {
	place string // canonical host:port, or unix:daemon; "" if it comes from an input
	input string
	port  string // port for the host in the input; "" if the input is a url
	plain bool   // the url may be http://, or have no scheme
}

// inject describes where a credential is inserted at the edge of the cage.
type inject struct {
	To      []string `json:"to"`
	Headers []string `json:"headers,omitempty"`
	Query   []string `json:"query,omitempty"`
	Basic   string   `json:"basic,omitempty"`
	Below   string   `json:"below,omitempty"`  // input of format url: the credential goes only below this address
	Sign    string   `json:"sign,omitempty"`   // aws: requests are signed with the credential, which is a file
	Tokens  string   `json:"tokens,omitempty"` // npmrc: the credential is such a file, and its tokens are inserted
}

// Egress returns the destinations that the tool needs, host:port or unix:daemon, for an input that Check has typed. The
// list is sorted and has no duplicates. An input without a value adds none.
func (m *Capability) Egress(input map[string]any) ([]string, error) {
	var places []string
	for _, to := range m.egress {
		place := to.place
		if to.input != "" {
			from, err := m.egressOf(to, input[to.input])
			if err != nil {
				return nil, err
			}
			places = append(places, from...)
			continue
		}
		places = append(places, place)
	}
	slices.Sort(places)
	return slices.Compact(places), nil
}

// egressOf returns the destinations in the value of an input, which is one text or a list.
func (m *Capability) egressOf(to egressEntry, value any) (places []string, err error) {
	list, many := value.([]any)
	if !many {
		list = []any{value}
	}
	for _, item := range list {
		v, given := item.(string)
		if !given {
			continue
		}
		e, err := to.endpointOf(v)
		if err != nil {
			return nil, m.invalidError("input /%s: \"%s\" %s", to.input, safeText(m.redactText(v)), err)
		}
		places = append(places, e.String())
	}
	return places, nil
}

// endpointOf returns the destination in the value of an input. The port of a url is its explicit port or that of its scheme.
// The scheme must be https, so that no secret or answer can be read or changed on the network, unless the manifest says
// plain: the proxy then requires that the operator's settings say so too.
func (to egressEntry) endpointOf(v string) (bailey.Endpoint, error) {
	host, port := v, to.port
	if port == "" {
		if to.plain {
			v = withScheme(v)
		}
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "https" && !(to.plain && u.Scheme == "http") || u.Host == "" {
			return bailey.Endpoint{}, errors.New("is not https://, the only supported scheme")
		}
		if host, port = u.Hostname(), u.Port(); port == "" {
			port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
		}
	}
	e, err := bailey.ParseEndpoint(net.JoinHostPort(host, port))
	if err != nil || strings.HasPrefix(e.Host, "*") {
		return e, errors.New("names no host in canonical spelling")
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

// readEgress reads network.egress and checks the destinations of injected credentials. It runs after the schema, because
// entries refer to inputs.
func (r *reader) readEgress(at *deferredNodes, m *manifest, s *schema) (list []egressEntry) {
	if at.egress != nil {
		items := r.Items(at.egress, "egress")
		if len(items) > maxEgress {
			r.AddFault(at.egress, "egress can name at most %d places, not %d", maxEgress, len(items))
			items = nil
		}
		for _, item := range items {
			if to, text, ok := r.readDestination(item, s, r.builtin && at.remote != nil); ok {
				if slices.Contains(m.Sandbox.Egress, text) {
					r.AddFault(item, "egress names %q twice", strictyaml.Clip(text))
				}
				list, m.Sandbox.Egress = append(list, to), append(m.Sandbox.Egress, text)
			}
		}
		if len(list) > 0 && m.Isolation != Jail {
			r.AddFault(at.egress,
				"isolation %s contradicts egress, which needs a jail", m.Isolation)
		}
		if len(list) > 0 && m.SideEffect == None {
			r.AddFault(at.egress,
				"sideEffectClass none contradicts egress: a tool with a network can send data")
		}
	}
	for n, in := range at.inject {
		below := in.Below != "" && slices.Contains(m.Sandbox.Egress, "{{ input."+in.Below+" }}")
		if in.Below != "" && !below {
			r.AddFault(n, "inject needs below to name an input of network.egress, not %q", strictyaml.Clip(in.Below))
		}
		for _, to := range in.To {
			if !below && !slices.Contains(m.Sandbox.Egress, to) {
				r.AddFault(n, "inject sends a credential to %q, which is not in network.egress%s",
					strictyaml.Clip(to), strictyaml.DidYouMean(to, m.Sandbox.Egress))
			}
		}
	}
	return list
}

// readDestination reads one entry. text is the entry as it stands in the manifest and its digest. If the gate fills in
// an input, it may be a list.
func (r *reader) readDestination(n ast.Node, s *schema, filled bool) (to egressEntry, text string, ok bool) {
	before := len(r.Faults)
	if text, ok = r.readHostPort("egress", n); !ok {
		return to, "", false
	}
	p := r.readTemplate(n, text).parts
	if len(r.Faults) > before {
		return to, "", false
	}
	if len(p) == 1 && p[0].input == "" {
		place, err := bailey.ParseEndpoint(text)
		if err != nil {
			r.AddFault(n, "%s; %s", err, bailey.HintOf(err))
			return to, "", false
		}
		return egressEntry{place: place.String()}, place.String(), true
	}
	if len(p) == 0 || p[0].input == "" || p[0].def != nil || p[0].flag != "" || len(p) > 2 || len(p) == 2 &&
		p[1].input != "" {
		r.AddFault(n,
			"egress must be host:port, \"{{ input.x }}\" of a url, or \"{{ input.x }}:443\" of a host, not %q", strictyaml.Clip(text))
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
		r.AddFault(n, "input.%s is not in the inputSchema%s", strictyaml.Clip(to.input),
			strictyaml.DidYouMean(to.input, s.names))
	case filled && format == "url" && in.hasOnlyTypes("array") && in.Items.followRef() != nil &&
		in.Items.followRef().Format == format:
		return to, text, true
	case !in.hasOnlyTypes("string") || in.Format != format:
		r.AddFault(n, "egress needs input.%s to be a string of format %s", strictyaml.Clip(to.input), format)
	case len(p) == 2 && (p[1].text[0] != ':' || !isPort(to.port)):
		r.AddFault(n, "egress needs a port after input.%s, as \"{{ input.%s }}:443\", not %q",
			strictyaml.Clip(to.input), strictyaml.Clip(to.input), strictyaml.Clip(text))
	default:
		to.plain = slices.Contains(in.Bailey.Allow, "plain")
		return to, text, true
	}
	return to, "", false
}

// injectField reads where a credential is inserted outside the cage. Destinations must be literal: the caller could choose
// one that comes from an input.
func (r *reader) injectField(at *deferredNodes, p **inject) func(ast.Node) {
	return func(n ast.Node) {
		in := &inject{}
		seen := r.Fields(n, "inject", strictyaml.Fields{
			"to":      r.destinationsField(&in.To),
			"headers": r.wordsField("headers", headerName(), &in.Headers),
			"query":   r.wordsField("query", parameterName(), &in.Query),
			"basic":   strictyaml.TextField(r.File, "basic", &in.Basic),
			"below":   r.wordField("below", inputName(), &in.Below),
			"sign":    strictyaml.TextField(r.File, "sign", &in.Sign),
			"tokens":  strictyaml.TextField(r.File, "tokens", &in.Tokens),
		})
		r.requireKeys(n, "inject", seen, "to")
		switch {
		case seen["sign"]:
			r.checkSigning(n, in)
		case seen["tokens"]:
			r.checkTokens(n, in)
		case len(in.To) == 0 || len(in.Headers)+len(in.Query) == 0:
			r.AddFault(n, "inject needs places, and headers or query parameters")
		}
		for _, h := range in.Headers {
			if slices.ContainsFunc(framingHeaders, func(f string) bool { return strings.EqualFold(f, h) }) {
				r.AddFault(n, "inject cannot use the header %s", h)
			}
		}
		if seen["basic"] {
			r.checkBasicAuth(n, in)
		}
		if at.inject == nil {
			at.inject = map[ast.Node]*inject{}
		}
		at.inject[n], *p = in, in
	}
}

// checkSigning checks an injection that signs requests. The signature is in the header Authorization, which questions show.
func (r *reader) checkSigning(n ast.Node, in *inject) {
	if in.Sign != bailey.SignAWS || len(in.To) == 0 || len(in.Headers)+len(in.Query) > 0 || in.Basic != "" || in.Below != "" {
		r.AddFault(n, "inject signs as sign: aws, with to, and without headers, query, basic and below")
	}
	in.Headers = []string{"Authorization"}
}

// checkTokens checks an injection of the tokens in a file.
func (r *reader) checkTokens(n ast.Node, in *inject) {
	if in.Tokens != bailey.TokensNpm || len(in.To) == 0 || len(in.Headers)+len(in.Query) > 0 || in.Basic != "" || in.Below != "" {
		r.AddFault(n, "inject inserts tokens as tokens: npmrc, with to, and without headers, query, basic and below")
	}
	in.Headers = []string{"Authorization"}
}

// checkBasicAuth checks the user name (RFC 7617: the first colon ends it). The Authorization header must be the only place of
// injection.
func (r *reader) checkBasicAuth(n ast.Node, in *inject) {
	if !basicUser.MatchString(in.Basic) {
		r.AddFault(n, "basic needs a user of letters, digits, dots, - and _, not %q", strictyaml.Clip(in.Basic))
	}
	if len(in.Headers) != 1 || !strings.EqualFold(in.Headers[0], "Authorization") || len(in.Query) > 0 {
		r.AddFault(n, "basic makes its own header: inject needs headers: [Authorization] beside it, and no query")
	}
}

var basicUser = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// framingHeaders contains the headers that control the destination or the end of a request.
var framingHeaders = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade",
	"Keep-Alive", "Proxy-Connection", "Proxy-Authorization"}

func (r *reader) destinationsField(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.Items(n, "to") {
			v, ok := r.readHostPort("to", item)
			if !ok {
				continue
			}
			e, err := bailey.ParseEndpoint(v)
			switch {
			case err != nil:
				r.AddFault(item, "%s; %s", err, bailey.HintOf(err))
			case slices.Contains(*p, e.String()):
				r.AddFault(item, "to names %q twice", strictyaml.Clip(v))
			default:
				*p = append(*p, e.String())
			}
		}
	}
}

// readHostPort reads a text with a colon, which YAML parses as a key in a list on one line.
func (r *reader) readHostPort(what string, n ast.Node) (string, bool) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		r.AddFault(n, "%s must be host:port in quotes, as \"example.com:443\"", what)
		return "", false
	}
	return r.ReadText(n, what)
}

// maxRoutes limits the routes of a capability to a daemon.
const maxRoutes = 32

// API returns the daemon and the requests that the tool may send, or nil. A manifest does not contain the path of the
// socket.
func (m *Capability) API() *bailey.API {
	api := m.spec.Sandbox.API
	if api == nil {
		return nil
	}
	return &bailey.API{Socket: api.Socket, Allow: slices.Clone(api.Allow)}
}

// apiField reads network.api.
func (r *reader) apiField(s *sandbox, at *deferredNodes) func(ast.Node) {
	return func(n ast.Node) {
		api := &bailey.API{}
		seen := r.Fields(n, "api", strictyaml.Fields{
			"socket": r.socketField(&api.Socket),
			"allow":  r.routesField(&api.Allow),
		})
		r.requireKeys(n, "api", seen, "socket", "allow")
		at.api, s.API = n, api
	}
}

func (r *reader) socketField(p *string) func(ast.Node) {
	return func(n ast.Node) {
		words := map[string]string{}
		for _, d := range bailey.Daemons() {
			words[d] = d
		}
		choiceField(r, "socket", words, p)(n)
	}
}

// routesField reads the allowed requests and refuses duplicates.
func (r *reader) routesField(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		items := r.Items(n, "allow")
		if len(items) == 0 || len(items) > maxRoutes {
			r.AddFault(n, "allow must have 1 to %d routes, not %d", maxRoutes, len(items))
			return
		}
		for _, item := range items {
			v, ok := r.ReadText(item, "allow")
			if !ok {
				continue
			}
			switch _, err := bailey.ParseRoute(v); {
			case err != nil:
				r.AddFault(item, "%s; %s", err, bailey.HintOf(err))
			case slices.Contains(*p, v):
				r.AddFault(item, "allow names %q twice", strictyaml.Clip(v))
			default:
				*p = append(*p, v)
			}
		}
	}
}

// permits reports whether a class is not milder than the requests to a daemon.
func (s SideEffect) permits(routes []string) bool {
	return !slices.ContainsFunc(routes, func(text string) bool {
		route, err := bailey.ParseRoute(text)
		changes, removes := route.Changes()
		return err == nil && (changes && s.Rank() < Mutating.Rank() || removes && s.Rank() < Destructive.Rank())
	})
}

// checkDaemonAPI checks that network.api does not conflict with the rest of the manifest. A tool that may create Unix sockets
// must not see a directory of the caller, because another socket could be in it.
func (r *reader) checkDaemonAPI(n ast.Node, m *manifest, s *schema) []egressEntry {
	if n == nil {
		return nil
	}
	path := func(name string) bool { return pathInput(s, m, name) }
	switch b := &m.Sandbox; {
	case !r.builtin:
		r.AddFault(n, "api is only for built-in packs: access to a daemon includes the powers that it passes on")
	case m.Isolation != Jail:
		r.AddFault(n, "isolation %s contradicts api, which needs a jail",
			m.Isolation)
	case m.SideEffect != ReadOnly && m.SideEffect != Mutating && m.SideEffect != Destructive:
		r.AddFault(n, "sideEffectClass %s contradicts api: it must be readOnly, mutating or destructive", m.SideEffect)
	case !m.SideEffect.permits(b.API.Allow):
		r.AddFault(n, "sideEffectClass %s contradicts api: POST needs mutating, DELETE and prune need destructive",
			m.SideEffect)
	case len(b.Egress) > 0:
		r.AddFault(n, "egress contradicts api: data from a daemon could leave the jail")
	case slices.ContainsFunc(s.names, path) || len(b.Read) > 0:
		r.AddFault(n, "path inputs and fs.ro contradict api: a socket could be there")
	default:
		return []egressEntry{{place: m.Sandbox.API.String()}}
	}
	return nil
}

// SignOutside returns a copy of a file of keys in which placeholders stand for the keys, and the injections with which the
// edge of the cage signs each request. The tool sees the names of the profiles and their regions, and no other setting.
func SignOutside(w bailey.Want, file bailey.Secret) (inject []bailey.Injection, shown bailey.Secret, err error) {
	profiles, err := sigv4.ParseFile(file.Reveal())
	if err != nil {
		return nil, shown, bailey.Invalid.Wrap(err, "the credential "+w.Name+" cannot sign requests",
			"lend a file in the form of ~/.aws/credentials, or let the broker ask AWS for one (docs/broker.md, Issuers)")
	}
	var text strings.Builder
	for _, p := range profiles {
		in := bailey.Injection{Name: w.Name, Placeholder: bailey.NewPlaceholder(), Value: bailey.NewSecret(p.String()),
			To: w.Inject.To, Headers: w.Inject.Headers, Sign: w.Inject.Sign}
		inject = append(inject, in)
		p.Credentials = sigv4.Credentials{ID: in.Placeholder, Secret: "signed-outside-the-cage"}
		text.WriteString(p.String())
	}
	return inject, bailey.NewSecret(text.String()), nil
}

// maxTokens limits the tokens of a file.
const maxTokens = 16

// HideTokens returns a copy of an npmrc with the tokens for the places of w alone, as placeholders, and the injections that
// insert them at the edge of the cage. All other lines are left out: some name programs.
func HideTokens(w bailey.Want, file bailey.Secret) (inject []bailey.Injection, shown bailey.Secret, err error) {
	var text strings.Builder
	for line := range strings.Lines(file.Reveal()) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		place, isToken := strings.CutSuffix(strings.TrimSpace(key), ":_authToken")
		place, isPlace := strings.CutPrefix(place, "//")
		host, path, _ := strings.Cut(place, "/")
		at := host
		if !strings.Contains(host, ":") {
			at += ":443"
		}
		if value = strings.Trim(strings.TrimSpace(value), `"'`); !ok || !isToken || !isPlace || value == "" ||
			strings.ContainsAny(value, "${} \t") || strings.ContainsAny(path, " \t") || !slices.Contains(w.Inject.To, at) || len(inject) == maxTokens {
			continue
		}
		in := bailey.Injection{Name: w.Name, Placeholder: bailey.NewPlaceholder(), Value: bailey.NewSecret(value),
			To: w.Inject.To, Headers: w.Inject.Headers}
		inject = append(inject, in)
		fmt.Fprintf(&text, "//%s:_authToken=%s\n", place, in.Placeholder)
	}
	if len(inject) == 0 {
		return nil, shown, bailey.Invalid.New("the credential "+w.Name+" has no token for "+strings.Join(w.Inject.To, ", "),
			"lend an npmrc with the line //registry.npmjs.org/:_authToken=TOKEN, without variables")
	}
	return inject, bailey.NewSecret(text.String()), nil
}
