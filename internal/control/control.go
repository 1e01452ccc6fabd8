// Package control is the control plane: people, organisations, and the gateways and hosts that belong to them. It
// serves a REST API, whose OpenAPI document it generates, and the pages for the first steps.
//
// # Authorisation
//
// There is one place where a request is authenticated and authorised, Server.admitCaller. A route is registered with
// what it needs, and cannot be registered without. A handler gets a [Caller] that has passed.
//
// # Record
//
// Each request that changes something is an event in a ledger of the server's own (package ledger), written before the
// change, and a second one with how it ended. If the ledger cannot be written, nothing is changed.
package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/auth"
	"bailey/internal/fleet"
	"bailey/internal/fleet/link"
	"bailey/internal/ledger"
	"bailey/internal/store"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/mod/sumdb/note"
)

// Config configures a Server. Store, Ledger, Keys and Public must be set.
type Config struct {
	Store  *store.Store
	Ledger *ledger.Log
	Keys   *auth.Keyring // opens the secrets of the store
	// Public is the URL under which browsers reach the server, without a path. Cookies are for https only, unless it is
	// http, which only an address of this machine may be.
	Public  *url.URL
	Proxies auth.Proxies
	// Console is the origin of pages elsewhere that may use the API with the person's session, or "". Their site must be
	// that of Public, since cookies are strict.
	Console string
	// NoPasswords refuses to sign in with a password alone: people need a passkey, or a provider.
	NoPasswords bool
	Version     string
	Log         *slog.Logger     // slog.Default if it is nil
	Now         func() time.Time // time.Now if it is nil
	// Passwords is how passwords are checked; the default allows as many checks at once as there are processors.
	Passwords *auth.Passwords
	// Cosigner signs the checkpoints of hosts as their witness, and Witness is its key. Without it they are kept as they
	// are.
	Cosigner note.Signer
	Witness  audit.Key
	// Heartbeat is how often a host hears of the server, and its token is checked again; the default is 15 s.
	Heartbeat time.Duration
	// PushClient sends notices, for tests: with it, they can go to addresses that are not public. It must not follow
	// redirects.
	PushClient *http.Client
}

// Server answers requests. It starts nothing by itself.
type Server struct {
	Config
	mux       *http.ServeMux
	api       huma.API
	routes    []Route
	attempts  auth.Limiter // signing in, for each address
	guesses   auth.Limiter // signing in, for each account: a client can have many addresses
	additions auth.Limiter // new accounts

	// Hosts are the hosts that are connected.
	Hosts    *Hosts
	news     announcer     // of questions
	works    announcer     // of operations
	spent    changedSet    // organisations whose gateways must learn what others have spent
	revision atomic.Uint64 // of the budgets that were sent last
	passkeys *auth.Passkeys
	pages    map[string]bool // paths of pages, without the names of their parameters
	live     liveEvents      // for open pages
	broken   policyReports
	notices  notices
	// noticeRate limits the notices of each browser.
	noticeRate auth.Limiter
	// replaying is held while a policy is replayed, which takes a processor.
	replaying sync.Mutex
}

// New returns a server.
func New(c Config) (*Server, error) {
	if c.Public == nil || c.Public.Host == "" || c.Public.Path != "" || c.Public.Scheme != "https" &&
		!isLocal(c.Public) {
		return nil, bailey.Invalid.Errorf("set it to https://NAME, or to http://localhost:PORT for a trial on this machine",
			"the public URL %v is not that of a server for people", c.Public)
	}
	if u, err := url.Parse(c.Console); c.Console != "" && (err != nil || u.Scheme+"://"+u.Host != c.Console ||
		u.Scheme != "https" && !isLocal(u)) {
		return nil, bailey.Invalid.Errorf("set it to https://NAME", "console_origin %q is not a safe origin", c.Console)
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Passwords == nil {
		c.Passwords = auth.NewPasswords(runtime.GOMAXPROCS(0))
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = fleet.HeartbeatEvery
	}
	s := &Server{Config: c, mux: http.NewServeMux(), pages: map[string]bool{},
		attempts:   auth.Limiter{PerSecond: 0.2, Burst: 10, Now: c.Now},
		guesses:    auth.Limiter{PerSecond: 0.2, Burst: 20, Now: c.Now},
		additions:  auth.Limiter{PerSecond: 0.1, Burst: 5, Now: c.Now},
		noticeRate: auth.Limiter{PerSecond: 0.05, Burst: 10, Now: c.Now},
		notices:    notices{make(chan struct{}, noticesAtOnce)}}
	s.Hosts = &Hosts{s: s, live: map[string]*liveHost{}, waiting: map[string]chan<- fleet.Result{},
		events: map[string]EventHandler{}, after: map[string]func(context.Context, store.Host, fleet.Event){}}
	var err error
	if s.passkeys, err = auth.NewPasskeys(c.Public); err != nil {
		return nil, err
	}
	useProblems()
	config := huma.DefaultConfig("Bailey", c.Version)
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"session": {Type: "apiKey", In: "cookie", Name: s.cookieName()},
		"token":   {Type: "http", Scheme: "bearer"},
	}
	s.api = humago.New(s.mux, config)
	s.accountRoutes()
	s.organisationRoutes()
	s.tokenRoutes()
	s.recordRoutes()
	s.decisionRoutes()
	s.operationRoutes()
	s.sandboxRoutes()
	s.spendRoutes()
	s.passkeyRoutes()
	s.providerRoutes()
	s.pushRoutes()
	s.servePages()
	s.consolePages()
	return s, nil
}

// isLocal reports whether a URL is plain HTTP on this machine.
func isLocal(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && a.IsLoopback())
}

// maxBody is how many bytes a request may have.
const maxBody = 64 << 10

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	origins := http.NewCrossOriginProtection()
	if err := origins.AddTrustedOrigin(s.Public.Scheme + "://" + s.Public.Host); err != nil {
		panic(err) // New has checked the URL
	}
	if s.Console != "" {
		if err := origins.AddTrustedOrigin(s.Console); err != nil {
			panic(err) // New has checked it
		}
	}
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, bailey.Denied.New("the request comes from another site", "open "+s.Public.String()))
	}))
	inner := origins.Handler(s.mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; "+
				"manifest-src 'self'; worker-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "+
				"report-uri "+reportPath)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if s.Public.Scheme == "https" {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if r.Host != s.Public.Host { // DNS rebinding: another name for this address
			writeProblem(w, bailey.NotFound.New("this server has another name", "open "+s.Public.String()))
			return
		}
		if s.answerPreflight(w, r) {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		inner.ServeHTTP(w, r)
	})
}

// answerPreflight permits the API to pages of exactly the configured origin, with the session. It reports whether the
// request only asked for that.
func (s *Server) answerPreflight(w http.ResponseWriter, r *http.Request) bool {
	if s.Console == "" || !strings.HasPrefix(r.URL.Path, "/api/") {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if r.Header.Get("Origin") != s.Console {
		return false
	}
	h.Set("Access-Control-Allow-Origin", s.Console)
	h.Set("Access-Control-Allow-Credentials", "true")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Content-Type, Authorization")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// OfferSetup returns the one-time link with which the first owner signs up, or "" if there is an account.
func (s *Server) OfferSetup(ctx context.Context) (string, error) {
	token := auth.NewToken(auth.SetupToken)
	offered, err := s.Store.OfferSetup(ctx, store.Hash(token))
	if err != nil || !offered {
		return "", err
	}
	return s.Public.String() + "/setup?token=" + token, nil
}

// Run serves connections until ctx ends, and then waits for requests that are running.
func (s *Server) Run(ctx context.Context, l net.Listener, t *tls.Config) error {
	streams, endStreams := link.NewHandler(ctx, s.AdmitStream, s.Handler())
	defer endStreams()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // for the streams of hosts on this machine, or behind a proxy
	go s.forgetOld(ctx)
	go s.settleOld(ctx)
	go s.readOldReceipts(ctx)
	h := &http.Server{Handler: streams, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 60 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)}
	h.RegisterOnShutdown(s.live.endAll)
	if t != nil {
		l = tls.NewListener(l, t)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	endStreams()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err := h.Shutdown(last)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// forgetOld removes commands whose deadline has passed, when the server starts and each hour.
func (s *Server) forgetOld(ctx context.Context) {
	for {
		if err := s.Store.ForgetCommands(ctx, s.Now().Add(-time.Hour)); err != nil && ctx.Err() == nil {
			s.Log.Error("old commands were not removed; that is tried again in an hour", "error", err)
		}
		if err := s.Store.ForgetOperations(ctx, s.Now().Add(-keepOperations)); err != nil && ctx.Err() == nil {
			s.Log.Error("old operations were not removed; that is tried again in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Hour):
		}
	}
}

// problem is an error of the API (RFC 9457), with the kind and the hint that errors of bailey have everywhere.
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title" doc:"the kind of the error, such as: denied, invalid, not found, conflict, unavailable"`
	Detail string `json:"detail" doc:"the cause"`
	Hint   string `json:"hint,omitempty" doc:"how to proceed"`
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// statuses are the HTTP statuses of kinds of errors.
var statuses = map[bailey.Kind]int{bailey.Denied: http.StatusForbidden, bailey.Invalid: http.StatusUnprocessableEntity,
	bailey.NotFound: http.StatusNotFound, bailey.Conflict: http.StatusConflict, bailey.Unavailable: http.StatusServiceUnavailable}

// useProblems makes huma answer with a problem if it refuses an input. Its own errors repeat the value, which can be a
// password.
var useProblems = sync.OnceFunc(func() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := &problem{Status: status, Title: string(bailey.Invalid), Detail: message}
		for _, err := range errs {
			if d, ok := err.(huma.ErrorDetailer); ok {
				p.Detail += "; " + d.ErrorDetail().Location + ": " + d.ErrorDetail().Message
			}
		}
		return p
	}
})

// asProblem returns what a client learns about an error. The cause stays here.
func asProblem(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	e, ok := errors.AsType[*bailey.Error](err)
	if !ok || statuses[e.Kind] == 0 {
		return &problem{Status: http.StatusInternalServerError, Title: string(bailey.Internal),
			Detail: "the server has a fault",
			Hint:   "see the log of bailey-server"}
	}
	return &problem{Status: statuses[e.Kind], Title: string(e.Kind), Detail: e.Message, Hint: e.Hint}
}

// notSignedIn is the answer to a request that needs a session or a token and has none that is valid.
func notSignedIn() *problem {
	return &problem{Status: http.StatusUnauthorized, Title: string(bailey.Denied), Detail: "you are not signed in",
		Hint: "sign in, or send an API token in the header Authorization: Bearer"}
}

// tooMany is the answer to a client that tries too often.
func tooMany(wait time.Duration) *problem {
	return &problem{Status: http.StatusTooManyRequests, Title: string(bailey.Denied),
		Detail: "too many attempts",
		Hint:   fmt.Sprintf("try again in %v", wait.Round(time.Second))}
}

// bearerToken returns the token of a header, or "".
func bearerToken(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
