package control

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Access is what a route needs.
type Access struct {
	// Open routes need no session. Their handlers check a one-time token or a password, and are limited by rate.
	Open bool
	// Rate limits attempts from an address.
	Rate Rate
	// Role is the least role in the organisation that the path names. If it is 0, a session is enough.
	Role store.Role
	// People means that tokens for programs are refused: a program must not change how people sign in.
	People bool
	// Unattended requests are made by a page that is left open. They are not use of the session, which ends without use.
	Unattended bool
	// Fresh means that the person must have signed in a short time ago: a session that was left open, or stolen, must not
	// become another way in.
	Fresh bool
}

// A Rate names a limit for each address.
type Rate int

// Rates.
const (
	Unlimited Rate = iota
	Attempts       // 0.2 in a second, burst 10
	Additions      // 0.1 in a second, burst 5
)

// A Route is a registered operation.
type Route struct {
	Method, Path string
	Operation    string
	Page         bool         // HTML, not part of the API
	Stream       bool         // events for a page, which end with the session
	Answer       reflect.Type // of the handler, or nil
	Access
}

// Routes lists all routes.
func (s *Server) Routes() []Route { return s.routes }

// A Caller is the sender of a request that was admitted.
type Caller struct {
	Account store.Account // the zero Account for open routes
	Session string        // the id of the session, or "" for a token
	Since   time.Time     // when the session began
	Token   string        // the id of the token, or "" for a session
	Of      string        // the organisation of the token
	Role    store.Role    // in the organisation of the path
	Address netip.Addr
	Client  string // User-Agent, shortened

	certificate *x509.Certificate // of the client, if a CA of the settings has signed it
	// Replaces is the hash of a session that the browser has when it signs in again.
	Replaces string
}

// ofOrganisation is the path parameter that names an organisation. The middleware reads it, not the handlers.
const ofOrganisation = "organisation"

// unattended is the header of requests that a page makes without its person, as those of routes that are Unattended.
const unattended = "Bailey-Unattended"

type callerKey struct{}

// addRoute registers a handler. Nothing else registers one.
func addRoute[I, O any](s *Server, method, path, id, summary string, a Access,
	f func(ctx context.Context, c *Caller, in *I) (*O, error)) {
	if (a.Role > 0) != strings.Contains(path, "{"+ofOrganisation+"}") {
		panic(path + ": a route needs a role exactly if it names an organisation")
	}
	o := huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary,
		Middlewares:  huma.Middlewares{s.admitRequest(id, a)},
		MaxBodyBytes: maxBody, Errors: []int{401, 403, 404, 409, 422, 429, 503}}
	if !a.Open {
		o.Security = []map[string][]string{{"session": {}}, {"token": {}}}
	}
	s.routes = append(s.routes, Route{Method: method, Path: path, Operation: id, Answer: reflect.TypeFor[O](), Access: a})
	huma.Register(s.api, o, func(ctx context.Context, in *I) (*O, error) {
		c, ok := ctx.Value(callerKey{}).(*Caller)
		if !ok {
			return nil, asProblem(bailey.Internal.New("no caller", "")) // the middleware did not run
		}
		var out *O
		var err error
		if method == http.MethodGet {
			out, err = f(ctx, c, in)
		} else {
			out, err = recordChange(ctx, s, id, c, in, f)
		}
		if err != nil {
			s.logFault(id, err)
			return nil, asProblem(err)
		}
		return out, nil
	})
}

// logFault writes the errors that are not the caller's to the log.
func (s *Server) logFault(id string, err error) {
	if errors.Is(err, context.Canceled) { // the client is gone
		return
	}
	if asProblem(err).Status >= http.StatusInternalServerError {
		s.Log.Error("request failed", "operation", id, "error", err)
	}
}

// admitRequest lets a request of the API through if it is admitted.
func (s *Server) admitRequest(id string, a Access) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		c, err := s.admitCaller(r, a)
		if err != nil {
			s.logFault(id, err)
			writeProblem(w, err)
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}
}

// admitCaller is the only place where a request is authenticated and authorised.
func (s *Server) admitCaller(r *http.Request, a Access) (*Caller, error) {
	c := &Caller{Address: s.Proxies.Client(r), Client: shortenClient(r.UserAgent())}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c.certificate = r.TLS.VerifiedChains[0][0]
	}
	err := s.checkRate(a.Rate, c.Address)
	if cookie, none := r.Cookie(s.cookieName()); a.Open && none == nil && auth.IsToken(cookie.Value, auth.SessionToken) {
		c.Replaces = store.Hash(cookie.Value)
	}
	if err == nil && !a.Open {
		err = s.findCaller(r, c, a)
	}
	if err == nil && a.Role > 0 {
		err = s.checkRole(r.Context(), r.PathValue(ofOrganisation), c, a)
	}
	return c, err
}

func (s *Server) checkRate(rate Rate, address netip.Addr) error {
	limiter := map[Rate]*auth.Limiter{Attempts: &s.attempts, Additions: &s.additions}[rate]
	if limiter == nil {
		return nil
	}
	if wait := limiter.Allow(address); wait > 0 {
		return tooMany(wait)
	}
	return nil
}

// findCaller finds the account of a request. If it has a token, its cookie does not count.
func (s *Server) findCaller(r *http.Request, c *Caller, a Access) error {
	header := r.Header.Get("Authorization")
	if header != "" {
		token := bearerToken(header)
		if !auth.IsToken(token, auth.APIToken) {
			return notSignedIn()
		}
		t, account, err := s.Store.TokenByHash(r.Context(), store.Hash(token))
		if errors.Is(err, bailey.NotFound) {
			return notSignedIn()
		}
		if err == nil && a.People {
			err = bailey.Denied.New("this is for people, and an API token is for programs", "sign in")
		}
		c.Account, c.Token, c.Of, c.Role = account, t.ID, t.Organisation, t.Role
		if err == nil && a.Role > 0 && t.Organisation != r.PathValue(ofOrganisation) {
			err = noOrganisation()
		}
		return err
	}
	cookie, err := r.Cookie(s.cookieName())
	if err != nil || !auth.IsToken(cookie.Value, auth.SessionToken) {
		return notSignedIn()
	}
	session, account, err := s.Store.SessionByHash(r.Context(), store.Hash(cookie.Value), !a.Unattended && r.Header.Get(unattended) == "")
	if errors.Is(err, bailey.NotFound) {
		return notSignedIn()
	}
	c.Account, c.Session, c.Since = account, session.ID, session.Created
	if err == nil && a.Fresh && s.Now().Sub(session.Created) > freshLife {
		err = notFresh()
	}
	return err
}

// noOrganisation is the same for an organisation that does not exist and for one of others.
func noOrganisation() error {
	return bailey.NotFound.New("there is no such organisation, or you are not a member",
		"list yours: GET /api/v1/organisations")
}

// checkRole compares the role of the caller, which for a token is at most the token's.
func (s *Server) checkRole(ctx context.Context, organisation string, c *Caller, a Access) error {
	role, err := s.Store.RoleOf(ctx, organisation, c.Account.ID)
	if err != nil {
		return err
	}
	if role == 0 {
		return noOrganisation()
	}
	if c.Token != "" {
		role = min(role, c.Role)
	}
	c.Role = role
	if role < a.Role {
		return bailey.Denied.Errorf("ask an "+a.Role.String()+" of the organisation",
			"a %v may not do this: it needs the role %v", role, a.Role)
	}
	return nil
}

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, err error) {
	p := asProblem(err)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

func shortenClient(client string) string {
	client = strings.ToValidUTF8(client, "?")
	if len(client) > 200 {
		client = strings.ToValidUTF8(client[:200], "")
	}
	return client
}
