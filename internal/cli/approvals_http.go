package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/strangers"
	"bailey/internal/strictjson"
	"bailey/internal/terminal"
)

// Resource limits per request and in total.
const (
	httpPatience   = 20 * time.Second
	maxAnswer      = 64 << 10 // a signature takes a few kilobytes
	maxHTTPHeaders = 16 << 10
	maxHTTPOpen    = 64
)

// answersHTTP serves the approvals API over HTTP. It decides nothing: it is a client of the gateway's socket that
// rejects unsigned grants.
type answersHTTP struct {
	client   *localapi.Client
	operator localapi.Operator
	token    string
	hosts    []string // accepted Host headers, with ports
	origins  []string
	room     chan struct{} // semaphore of open requests
}

// serveRequests serves until ctx ends.
func (h *answersHTTP) serveRequests(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: h.newHandler(), ReadHeaderTimeout: httpPatience, ReadTimeout: httpPatience,
		WriteTimeout: 2 * httpPatience, IdleTimeout: httpPatience,
		MaxHeaderBytes: maxHTTPHeaders, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, strangerKey{}, strangers.Of(c))
		}}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return context.Cause(ctx)
}

// httpStatus is the only mapping from error kinds to HTTP status codes.
var httpStatus = map[bailey.Kind]int{
	bailey.Denied: http.StatusForbidden, bailey.Blocked: http.StatusForbidden, bailey.Invalid: http.StatusBadRequest,
	bailey.NotFound: http.StatusNotFound, bailey.Conflict: http.StatusConflict,
	bailey.Unavailable: http.StatusServiceUnavailable, bailey.ToolFailed: http.StatusBadGateway,
	bailey.Internal: http.StatusInternalServerError,
}

// httpRefusal is an error with its own HTTP status, for cases in which the kind is too coarse.
type httpRefusal struct {
	error
	status int
}

func (r httpRefusal) Unwrap() error { return r.error }

func turnedAway(status int, kind bailey.Kind, message, hint string) error {
	return httpRefusal{kind.New(message, hint), status}
}

// strangerKey is the context key of the request's connection, a [strangers.Conn].
type strangerKey struct{}

// newHandler returns the handler of all requests. It rejects every other path, and every request without the token.
func (h *answersHTTP) newHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /v1/approvals": h.listQuestions, "GET /v1/approvals/{id}": h.showQuestion,
		"POST /v1/approvals/{id}/answer": h.answerQuestion, "GET /v1/grants": h.listGrants,
	} {
		mux.HandleFunc(pattern, func(out http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			h.writeResponse(out, r, v, err)
		})
	}
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(out, r.Body, maxAnswer)
		select {
		case h.room <- struct{}{}:
			defer func() { <-h.room }()
		default:
			h.writeResponse(out, r, nil, bailey.Unavailable.New("too many requests are open", "try again in a moment"))
			return
		}
		if err := h.checkRequest(r); err != nil {
			h.writeResponse(out, r, nil, err)
			return
		}
		if s, _ := r.Context().Value(strangerKey{}).(*strangers.Conn); s != nil {
			s.Known()
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			h.writeResponse(out, r, nil, bailey.NotFound.New("no such page",
				"see docs/approvals.md for the requests"))
			return
		}
		mux.ServeHTTP(out, r)
	})
}

// checkRequest rejects a request with an unknown Host or Origin header, or without the token.
func (h *answersHTTP) checkRequest(r *http.Request) error {
	if !slices.ContainsFunc(h.hosts, func(host string) bool { return strings.EqualFold(host, r.Host) }) {
		return turnedAway(http.StatusMisdirectedRequest, bailey.Denied, "this server does not answer to that host name",
			"use its own address, or start it with --host")
	}
	if origins, ok := r.Header["Origin"]; ok && (len(origins) != 1 || !slices.Contains(h.origins, origins[0])) {
		return turnedAway(http.StatusForbidden, bailey.Denied, "pages of that origin are not allowed",
			"start the server with --origin")
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, got := sha256.Sum256([]byte(h.token)), sha256.Sum256([]byte(given))
	if !ok || len(r.Header["Authorization"]) != 1 || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return turnedAway(http.StatusUnauthorized, bailey.Denied, "the token is missing or wrong",
			"send Authorization: Bearer TOKEN with the token of --token-file")
	}
	return nil
}

// writeResponse writes the response v, or the error.
func (h *answersHTTP) writeResponse(out http.ResponseWriter, r *http.Request, v any, err error) {
	head := out.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	status := http.StatusOK
	if err != nil {
		var own httpRefusal
		if status = httpStatus[bailey.KindOf(err)]; errors.As(err, &own) {
			status = own.status
		}
		if status == http.StatusUnauthorized {
			head.Set("WWW-Authenticate", `Bearer realm="bailey"`)
		}
		v = map[string]any{"ok": false, "error": bailey.KindOf(err), "reason": err.Error(), "hint": bailey.HintOf(err)}
	}
	if r.ProtoMajor == 1 && status >= 400 { // the body may be only partly read
		head.Set("Connection", "close")
	}
	out.WriteHeader(status)
	json.NewEncoder(out).Encode(v)
}

func (h *answersHTTP) listQuestions(r *http.Request) (any, error) {
	return apitype.ListQuestions.Ask(r.Context(), h.client, apitype.QuestionRequest{})
}

func (h *answersHTTP) showQuestion(r *http.Request) (any, error) {
	return questionOf(r.Context(), h.client, r.PathValue("id"))
}

func (h *answersHTTP) listGrants(r *http.Request) (any, error) {
	return apitype.ListGrants.Ask(r.Context(), h.client, localapi.None{})
}

// httpAnswer is the body of an answer request.
type httpAnswer struct {
	Digest    string `json:"digest"`
	Grant     bool   `json:"grant"`
	Signature string `json:"signature"`
	Reason    string `json:"reason"`
}

func (h *answersHTTP) answerQuestion(r *http.Request) (any, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, turnedAway(http.StatusUnsupportedMediaType, bailey.Invalid, "the answer must be application/json",
			"set Content-Type")
	}
	body, err := io.ReadAll(r.Body)
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return nil, turnedAway(http.StatusRequestEntityTooLarge, bailey.Invalid,
			fmt.Sprintf("an answer must be at most %d bytes", maxAnswer), "send only the signature")
	}
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "the answer is incomplete", "")
	}
	a, err := parseHTTPAnswer(body)
	if err != nil {
		return nil, err
	}
	out := answerResult{OK: true, ID: bailey.ApprovalID(r.PathValue("id"))}
	if a.Grant {
		out.Tally, err = apitype.ApproveQuestion.Do(r.Context(), h.client, h.operator,
			apitype.QuestionApproval{ID: out.ID, Digest: a.Digest, Signature: a.Signature})
	} else {
		out.Tally, err = apitype.DenyQuestion.Ask(r.Context(), h.client,
			apitype.QuestionDenial{ID: out.ID, Reason: a.Reason})
	}
	return out, err
}

// parseHTTPAnswer parses an answer. A grant must be signed, even if the rules do not require it, because an HTTP client
// never counts as an operator.
func parseHTTPAnswer(body []byte) (a httpAnswer, err error) {
	if err := checkJSONKeys(body, "digest", "grant", "signature", "reason"); err != nil {
		return a, bailey.Invalid.New("the answer is malformed: "+err.Error(),
			`send {"digest": "…", "grant": true, "signature": "-----BEGIN SSH SIGNATURE-----…"}, or {"grant": false, "reason": "…"}`)
	}
	if err := strictjson.Decode(body, &a); err != nil {
		return a, bailey.Invalid.Wrap(err, "the answer is malformed", "see docs/approvals.md for the requests")
	}
	switch {
	case a.Grant && a.Signature == "":
		return a, bailey.Denied.New("an approval over HTTP must be signed, but this one is not",
			"sign the question's text with ssh-keygen -Y sign -n approval@bailey")
	case a.Grant && a.Reason != "":
		return a, bailey.Invalid.New("an approval must not have a reason", "leave it out")
	case !a.Grant && (a.Signature != "" || a.Digest != ""):
		return a, bailey.Invalid.New("a denial must not have a digest or a signature", "leave them out, or set grant")
	case len(a.Reason) > apitype.MaxDenial:
		return a, bailey.Invalid.Errorf("shorten or omit it", "a reason must be at most %d bytes", apitype.MaxDenial)
	}
	return a, nil
}

// checkJSONKeys checks that body is one JSON object with only these keys, in exact spelling and without duplicates. The key
// grant is required. encoding/json would also accept other spellings, such as GRANT.
func checkJSONKeys(body []byte, keys ...string) error {
	if err := strictjson.Check(body, 2); err != nil {
		return err
	}
	members, ok := strictjson.Members(body)
	if !ok {
		return errors.New("it is not an object")
	}
	granted := false
	for _, m := range members {
		switch {
		case !slices.Contains(keys, m.Name):
			return fmt.Errorf("it has an unknown key %.40q", m.Name)
		case string(m.Value) == "null":
			return fmt.Errorf("its %s is empty", m.Name)
		}
		granted = granted || m.Name == "grant"
	}
	if !granted {
		return errors.New("it has no key grant")
	}
	return nil
}

// answersConfig is the configuration of that interface.
type answersConfig struct {
	httpFlags
	at, token string
}

func (a *App) approvalsServe() *cobra.Command {
	var d answersConfig
	cmd := &cobra.Command{
		Use: "serve", Short: "Accept signed answers over HTTP",
		Long: `Show open questions and accept answers over HTTP, for programs that people answer with. An
approver of settings.yaml must sign each approval: an unsigned one is refused, regardless of the rules.
docs/approvals.md describes the requests.

Clients send the token of --token-file, which is created if it does not exist. Without a certificate the
server listens only on this machine; with one, --host sets the names by which it is reached. Pages of other
origins are refused unless --origin names them.`,
		Example: "  bailey approvals serve --listen 127.0.0.1:7443 --token-file ~/.bailey-token",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveAnswers(cmd.Context(), d) },
	}
	f := cmd.Flags()
	f.StringVar(&d.at, "listen", "127.0.0.1:0", "listen on this `address` and port")
	f.StringVar(&d.token, "token-file", "", "a `file` with the token, mode 0600")
	d.addFlags(cmd)
	return a.OperatorVerb(cmd)
}

func (a *App) serveAnswers(ctx context.Context, d answersConfig) error {
	op, err := a.Operator("approvals serve")
	if err != nil {
		return err
	}
	if d.token == "" {
		return bailey.Invalid.New("--token-file is missing", "name a file; it is created if it does not exist")
	}
	if err := d.checkAddress(d.at); err != nil {
		return err
	}
	token, err := httpToken(d.token)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	if err := a.Confirm(ctx, fmt.Sprintf("Accept signed answers at %s?", terminal.Shown(d.at))); err != nil {
		return err
	}
	l, err := d.openListener(d.at)
	if err != nil {
		return err
	}
	defer l.Close()
	at := apitype.AnswerListener{Listen: l.Addr().String(), TLS: d.cert != ""}
	if _, err := apitype.RecordAnswerListener.Do(ctx, c, op, at); err != nil {
		return err
	}
	h := &answersHTTP{client: c, operator: op, token: token, room: make(chan struct{}, maxHTTPOpen)}
	h.hosts, h.origins = d.allowedHosts(l.Addr())
	fmt.Fprintf(a.Stderr, "bailey: accepting answers at %s://%s\n", d.urlScheme(), l.Addr())
	if l, err = d.wrapTLS(l); err != nil {
		return err
	}
	return h.serveRequests(ctx, l)
}

// Limits in bytes. The minimum makes a token impossible to guess. The maximum keeps a file of one to a line.
const minToken, maxToken = 32, 512

// httpToken reads the token from the file, or creates the file. A client with the token can read every question.
func httpToken(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|safefile.NoWait|safefile.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(name)
	}
	bad := func(why, cure string, err error) error {
		return bailey.Denied.Wrap(err, "the token file "+terminal.Shown(name)+" "+why, cure)
	}
	if err != nil {
		return "", bad("cannot be read", "name a regular file that you own, or one that does not exist", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", bad("is not a regular file", "name a regular file that you own, or one that does not exist", nil)
	case safefile.Wide(info):
		return "", bad("can be read by others", "chmod 600 it and replace the token in it", nil)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(token) < minToken || len(b) > maxToken ||
		strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", bad(fmt.Sprintf("contains no token: it must be one line of %d to %d printable characters", minToken,
			maxToken), "remove the file; the next start creates a new one", nil)
	}
	return token, nil
}

func makeToken(name string) (string, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	token := hex.EncodeToString(b[:])
	if err := safefile.Create(name, []byte(token+"\n"), 0o600); err != nil {
		return "", bailey.Unavailable.Wrap(err, "the token file "+terminal.Shown(name)+" cannot be created",
			"name a file in a directory that you can write")
	}
	return token, nil
}

// httpFlags holds the flags of an HTTP interface. Without a certificate it is reachable from this machine only.
type httpFlags struct {
	cert, key      string
	hosts, origins []string
}

func (l *httpFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.cert, "cert", "", "a certificate, a PEM `file`")
	f.StringVar(&l.key, "key", "", "its key, a PEM `file`")
	f.StringArrayVar(&l.hosts, "host", nil, "a `name`, with its port, by which the server is reached")
	f.StringArrayVar(&l.origins, "origin", nil, "an `origin` whose pages may send requests, for example https://console.example")
}

// checkAddress returns an error if other machines could reach the address without TLS.
func (l *httpFlags) checkAddress(address string) error {
	if (l.cert == "") != (l.key == "") {
		return bailey.Invalid.New("--cert and --key must be used together", "give both, or neither")
	}
	if err := CheckLoopback(address); err != nil && l.cert == "" {
		return bailey.Invalid.New(terminal.Shown(address)+
			" is not a loopback address and port, and there is no certificate",
			"listen on 127.0.0.1:PORT, or give --cert and --key")
	}
	return nil
}

// openListener listens on a TCP address. Accepted connections count as unauthenticated until the interface has identified
// them.
func (l *httpFlags) openListener(address string) (net.Listener, error) {
	at, err := net.Listen("tcp", address)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot listen on "+terminal.Shown(address),
			"use another address")
	}
	return strangers.New(strangers.Usual).Listener(at, nil), nil
}

// wrapTLS wraps the listener with TLS, if there is a certificate.
func (l *httpFlags) wrapTLS(at net.Listener) (net.Listener, error) {
	if l.cert == "" {
		return at, nil
	}
	pair, err := tls.LoadX509KeyPair(l.cert, l.key)
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "cannot use the certificate",
			"give matching PEM files with --cert and --key")
	}
	return tls.NewListener(at,
		&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}}), nil
}

func (l *httpFlags) urlScheme() string {
	if l.cert != "" {
		return "https"
	}
	return "http"
}

// allowedHosts returns the accepted host names, with ports, and the origins whose pages may send requests: those of the flags,
// the address itself and, on a loopback address, localhost. Any other name is rejected, for example one that an
// attacker points at this machine (DNS rebinding).
func (l *httpFlags) allowedHosts(addr net.Addr) (hosts, origins []string) {
	hosts = append(slices.Clone(l.hosts), addr.String())
	if host, port, err := net.SplitHostPort(addr.String()); err == nil && net.ParseIP(host).IsLoopback() {
		hosts = append(hosts, net.JoinHostPort("localhost", port))
	}
	origins = slices.Clone(l.origins)
	for _, host := range hosts {
		origins = append(origins, l.urlScheme()+"://"+host)
	}
	return hosts, origins
}

// CheckLoopback returns an error if other machines can reach the address, which then needs a certificate.
func CheckLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsLoopback() {
		return nil
	}
	return bailey.Invalid.Wrap(err,
		terminal.Shown(addr)+" is not a loopback address and port, and there is no certificate",
		"listen on 127.0.0.1:PORT, or give --tls-cert and --tls-key")
}
