package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
	"bailey/internal/strangers"
)

// HTTPPath is the URL path of MCP.
const HTTPPath = "/mcp"

// SessionHeader names one of several sessions of a token, from the revision 2026-07-28 on, which has no sessions of its
// own. Without the header, all requests of a token belong to one session.
const SessionHeader = "Bailey-Session"

// Limits of a request, and of the time for its arrival and its answer.
const (
	maxSessionHeader = 64 // bytes
	maxBearer        = 256
	// slowPatience limits the time for a body of at most maxLine to arrive, and for each part of an answer to be sent.
	// If a client does not read, its call ends.
	slowPatience = 20 * time.Second
)

// Protocol headers.
const (
	headerRevision = "Mcp-Protocol-Version"
	headerSession  = "Mcp-Session-Id"
	headerName     = "Mcp-Name"
	// headerRequest links a request in the SDK to its HTTP request. A header of this name from a client is dropped.
	headerRequest = "Bailey-Request"
)

// codeServer is the first of the JSON-RPC error codes for servers.
const codeServer = -32000

// codeHeaderMismatch is the JSON-RPC error code HeaderMismatch (SEP-2243).
const codeHeaderMismatch = -32020

// A Caller is the owner of a token.
type Caller struct {
	Principal bailey.Principal // with the id of the token
	Dir       string           // default working directory of calls; set by HTTP
}

// Front describes a listener: the host names under which it is reached, and the web origins that may send requests. In
// a DNS rebinding attack the request has a different host name, so it is refused.
type Front struct {
	Hosts   []string `json:"hosts"`   // with ports
	Origins []string `json:"origins"` // scheme://host[:port], RFC 6454
	Source  string   `json:"source"`  // source of this connection
	Dir     string   `json:"-"`       // default working directory of calls
}

type (
	frontKey    struct{}
	strangerKey struct{}
)

// checkRequest returns an error if a request must not use this listener.
func (f Front) checkRequest(r *http.Request) error {
	has := func(all []string, one string) bool {
		return slices.ContainsFunc(all, func(s string) bool { return strings.EqualFold(s, one) })
	}
	if !has(f.Hosts, r.Host) {
		return refuseAs(http.StatusForbidden, bailey.Denied, "this server does not answer to that host name",
			"use its own address, or start it with --host")
	}
	if origins, from := r.Header["Origin"]; from && (len(origins) != 1 || !has(f.Origins, origins[0])) {
		return refuseAs(http.StatusForbidden, bailey.Denied, "pages of that origin are not allowed",
			"start the server with --origin")
	}
	return nil
}

// HTTPConfig configures access and sessions over HTTP.
type HTTPConfig struct {
	// Admit returns the owner of a bearer token.
	Admit func(bearer string) (Caller, error)
	// Enter begins a session. leave must be called when the session has ended completely.
	Enter func(ctx context.Context, c Caller) (cfg Config, leave func(), err error)
	Hide  func(string) string // redacts text for clients without a session
	Log   *slog.Logger
	Idle  time.Duration // lifetime of a session without requests. Zero means ten minutes
}

// HTTP is the front end for MCP over HTTP. A session of the revisions up to 2025-11-25 begins with initialize, is
// identified by Mcp-Session-Id, and ends with DELETE. A session of 2026-07-28 belongs to a token ([SessionHeader]). All
// sessions end after an idle period. If the client of a request disconnects, the request and its call end.
type HTTP struct {
	HTTPConfig
	httpSessions
	open   func(*httpSession) (*sdk.Server, error) // returns the server of a session
	old    *sdk.StreamableHTTPHandler              // revisions up to 2025-11-25
	newest *sdk.StreamableHTTPHandler              // revisions from 2026-07-28 on

	patience time.Duration // slowPatience, except in tests
	crowd    *strangers.Crowd

	closed context.Context // ends when HTTP is closed
	close  func()
}

// NewHTTP returns the front end.
func NewHTTP(c HTTPConfig) (*HTTP, error) {
	if c.Admit == nil || c.Enter == nil || c.Hide == nil {
		return nil, bailey.Internal.New("MCP over HTTP is configured without authentication or redaction", "")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	h := &HTTP{HTTPConfig: c, patience: slowPatience, crowd: strangers.New(strangers.Usual)}
	h.closed, h.close = context.WithCancel(context.Background())
	h.httpSessions = httpSessions{idle: cmp.Or(c.Idle, 10*time.Minute), all: map[string]*httpSession{},
		busy: map[string]int{}, arriving: map[string]int{}}
	h.open = func(t *httpSession) (*sdk.Server, error) {
		t.session.carry = func(ctx context.Context, req sdk.Request) (context.Context, func(), error) {
			return h.bindCall(t, ctx, req)
		}
		t.session.hid = func(req sdk.Request) {
			if a := t.findRequest(req); a != nil {
				a.hidden.Store(true)
			}
		}
		return t.session.newServer()
	}
	server := func(r *http.Request) *sdk.Server { return sessionOf(r).server }
	// ServeHTTP checks the Host header, because the SDK does not know the names of the listener.
	options := sdk.StreamableHTTPOptions{Logger: c.Log, MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true}
	h.old = sdk.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	h.newest = sdk.NewStreamableHTTPHandler(server, &options)
	return h, nil
}

// Time limits for the first and the next request of a connection.
const (
	headPatience = 10 * time.Second
	nextPatience = 2 * time.Minute
	maxHead      = 16 << 10 // bytes of the request line and headers
	// refusedPatience limits the time for the rest of a request that was refused before its body was read.
	refusedPatience = time.Second
)

// Serve serves HTTP/1.1 on a listener until it is closed or [HTTP.Close] is called. front returns the listener data of
// a connection. Connections that have not presented a valid token are limited, for each source and in total, see
// package strangers.
func (h *HTTP) Serve(l net.Listener, front func(net.Conn) Front) error {
	l = h.crowd.Listener(l, func(c net.Conn) string { return front(c).Source })
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headPatience, IdleTimeout: nextPatience, MaxHeaderBytes: maxHead,
		ErrorLog: log.New(io.Discard, "", 0), // it quotes client data
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			s := c.(*strangers.Conn)
			return context.WithValue(context.WithValue(ctx, frontKey{}, front(s.Conn)), strangerKey{}, s)
		},
	}
	defer context.AfterFunc(h.closed, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// httpError is the error answer to a refused request.
type httpError struct {
	status int
	id     json.RawMessage
	code   int64 // JSON-RPC error code
	err    error
}

func (r *httpError) Error() string { return r.err.Error() }

func refuseHTTP(status int, code int64, err error) error {
	return &httpError{status: status, code: code, err: err}
}

func refuseAs(status int, kind bailey.Kind, message, hint string) error {
	return refuseHTTP(status, jsonrpc.CodeInvalidRequest, kind.New(message, hint))
}

// ServeHTTP answers one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	p := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w), each: h.patience,
		gone: func() { end(disconnectedError{}) }, hide: h.Hide}
	defer func() {
		if p := recover(); p != nil {
			h.Log.Error("a request failed", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler) // a partial answer must not look complete
		}
	}()
	if err := h.serveRequest(p, r.WithContext(ctx)); err != nil {
		p.hidden.Store(true) // answer redacts each part itself
		h.writeRefusal(p, err)
	}
}

func (h *HTTP) serveRequest(w *deadlineWriter, r *http.Request) error {
	front, _ := r.Context().Value(frontKey{}).(Front)
	who, err := h.identifyCaller(front, r)
	if err != nil { // an unauthenticated connection ends with its first refusal, without waiting for the body
		w.refuseBody()
		return err
	}
	if s, ok := r.Context().Value(strangerKey{}).(*strangers.Conn); ok {
		s.Known()
	}
	who.Dir = front.Dir
	revision := r.Header.Get(headerRevision)
	var msgs []message
	if r.Method == http.MethodPost {
		arrived, err := h.reserveBody(who.Principal.Token)
		if err != nil {
			w.refuseBody()
			return err
		}
		msgs, err = h.readMessages(w, r, revision)
		arrived()
		if err != nil {
			return err
		}
	}
	t, leave, err := h.acquireSession(r, who, revision, msgs)
	if err != nil {
		return err
	}
	defer leave()
	r = t.registerRequest(r, w)
	defer t.removeRequest(r)
	if revision >= newRevision {
		h.newest.ServeHTTP(w, r)
		return nil
	}
	if r.Method == http.MethodDelete { // the SDK would wait for its calls, which would not end
		h.endSession(t, disconnectedError{})
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	h.old.ServeHTTP(w, r)
	if h.isUninitialized(t) {
		h.endSession(t, disconnectedError{})
	}
	return nil
}

// identifyCaller returns the caller of a request. It uses only the request line and the headers.
func (h *HTTP) identifyCaller(front Front, r *http.Request) (Caller, error) {
	if err := front.checkRequest(r); err != nil {
		return Caller{}, err
	}
	if r.URL.Path != HTTPPath {
		return Caller{}, refuseAs(http.StatusNotFound, bailey.NotFound, "there is nothing at this path",
			"use MCP at "+HTTPPath)
	}
	who, err := h.authenticateBearer(r)
	if err != nil {
		return Caller{}, refuseHTTP(http.StatusUnauthorized, jsonrpc.CodeInvalidRequest, err)
	}
	return who, nil
}

// authenticateBearer reads the bearer token (RFC 6750, section 2.1) and returns its owner.
func (h *HTTP) authenticateBearer(r *http.Request) (Caller, error) {
	const hint = "send the header Authorization: Bearer TOKEN; run bailey token add to create a token"
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return Caller{}, bailey.Denied.Errorf(hint,
			"the request has %d Authorization headers, and needs one", len(all))
	}
	scheme, bearer, _ := strings.Cut(all[0], " ")
	if !strings.EqualFold(scheme, "bearer") || bearer == "" || len(bearer) > maxBearer {
		return Caller{}, bailey.Denied.New("the Authorization header contains no bearer token", hint)
	}
	return h.Admit(bearer)
}

// readMessages reads and checks the body of a request in the same way as a line of a stream, and restores it for the SDK.
func (h *HTTP) readMessages(w http.ResponseWriter, r *http.Request, revision string) ([]message, error) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(h.patience)) // fails only with the writer of a test
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, refuseAs(http.StatusRequestEntityTooLarge, bailey.Invalid, "the body is over 1 MiB",
			"send less; use a file for a large input")
	}
	if err != nil {
		return nil, refuseAs(http.StatusRequestTimeout, bailey.Invalid, "the body is incomplete",
			fmt.Sprintf("send it within %v", h.patience))
	}
	control.SetReadDeadline(time.Time{})
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	body = bytes.TrimSpace(body)
	msgs, id, code, err := parseMessages(body, hasBatches(revision))
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, id, code, err}
	}
	if body[0] == '[' {
		return msgs, nil
	}
	m := msgs[0]
	if err := checkParams(m); err != nil {
		return nil, &httpError{http.StatusBadRequest, id, jsonrpc.CodeInvalidParams, err}
	}
	if err := namesTask(r.Header, m, revision); err != nil {
		return nil, &httpError{http.StatusBadRequest, id, codeHeaderMismatch, err}
	}
	return msgs, nil
}

// checkParams refuses params that the SDK would quote in its own error.
func checkParams(m message) error {
	if m.Request == nil || len(m.Params) == 0 {
		return nil
	}
	var params any
	switch m.Method {
	case "initialize":
		params = new(sdk.InitializeParams)
	case "tools/list":
		params = new(sdk.ListToolsParams)
	case "tools/call":
		params = new(sdk.CallToolParamsRaw)
	case "resources/list":
		params = new(sdk.ListResourcesParams)
	case "resources/read":
		params = new(sdk.ReadResourceParams)
	case "tasks/get", "tasks/update", "tasks/cancel":
		params = new(taskParams)
	default:
		return nil
	}
	if json.Unmarshal(m.Params, params) != nil {
		return errors.New("the params are not valid for " + m.Method)
	}
	return nil
}

// namesTask checks the header by which intermediaries route the task methods (SEP-2663). The SDK checks the header for
// other methods.
func namesTask(header http.Header, m message, revision string) error {
	if !m.needsResponse() || revision < newRevision ||
		!slices.Contains([]string{"tasks/get", "tasks/update", "tasks/cancel"}, m.Method) {
		return nil
	}
	var p struct {
		ID string `json:"taskId"`
	}
	json.Unmarshal(m.Params, &p) // if the id is missing, the method refuses the request itself
	switch name := header.Get(headerName); {
	case name == "":
		return errors.New("the header " + headerName + " is missing; it must contain the taskId")
	case name != p.ID:
		return errors.New("the header " + headerName + " does not match the taskId")
	}
	return nil
}

// writeRefusal writes the reason of a refusal, always as a JSON-RPC error.
func (h *HTTP) writeRefusal(w http.ResponseWriter, err error) {
	r, ok := errors.AsType[*httpError](err)
	if !ok {
		r = &httpError{status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, err: err}
	}
	out := jsonrpc.Error{Code: r.code, Message: h.Hide(r.err.Error())}
	if e, ok := errors.AsType[*bailey.Error](r.err); ok {
		out.Message = h.Hide(e.Message)
		out.Data, _ = json.Marshal(map[string]string{"kind": string(e.Kind), "hint": h.Hide(e.Hint)})
	}
	if r.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	if err := json.NewEncoder(w).Encode(errorMessage{"2.0", r.id, out}); err != nil {
		h.Log.Debug("a refusal was not read", "err", err)
	}
}

// deadlineWriter writes an answer with a time limit. If the client does not read in time, the request ends.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	each    time.Duration
	gone    func()
	hide    func(string) string
	refuses bool        // the answer is an error and may quote client data
	hidden  atomic.Bool // the error is already redacted; a second redaction would treat its tokens as client data
}

// refuseBody closes the connection after this answer and waits only briefly for the rest of the request.
func (p *deadlineWriter) refuseBody() {
	p.Header().Set("Connection", "close")
	p.control.SetReadDeadline(time.Now().Add(min(refusedPatience, p.each))) // fails only with the writer of a test
}

func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (p *deadlineWriter) WriteHeader(status int) {
	p.refuses = status >= 400
	p.ResponseWriter.WriteHeader(status)
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.control.SetWriteDeadline(time.Now().Add(p.each)) // fails only with the writer of a test
	out := b
	if p.refuses && !p.hidden.Load() {
		out = []byte(p.hide(string(b)))
	}
	if _, err := p.ResponseWriter.Write(out); err != nil {
		p.gone()
		return 0, err
	}
	return len(b), nil
}

// FlushError is called by http.ResponseController.
func (p *deadlineWriter) FlushError() error {
	p.control.SetWriteDeadline(time.Now().Add(p.each))
	err := p.control.Flush()
	if err != nil {
		p.gone()
	}
	return err
}

// Flush implements [http.Flusher].
func (p *deadlineWriter) Flush() { p.FlushError() }
