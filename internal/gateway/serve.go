package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
	"bailey/internal/strictjson"
)

// queryPatience is how long a connection may take to send its query, if the Config does not set it.
const queryPatience = 10 * time.Second

// Decoded values need many times the memory of their JSON. Their number is therefore limited, as the MCP front end does
// for its lines.
const (
	maxDir    = 4096    // PATH_MAX
	maxValues = 1 << 16 // upper bound of the values: each follows a comma, bracket or brace
)

// serveConn handles one connection: one query and one answer, or a protocol such as MCP until the connection ends.
func (g *Gateway) serveConn(ctx context.Context, conn *peer.Conn) {
	defer conn.Close()
	defer func() {
		if p := recover(); p != nil { // the gate recovers from panics in calls; this one is from a query or command
			g.Log.Error("a query failed", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	q, err := readQuery(conn, g.QueryPatience)
	if err == nil && q.Verb == localapi.StopVerb {
		g.stopGateway(ctx, conn)
		return
	}
	from := bailey.Call{
		Principal: bailey.Principal{Agent: apitype.LocalAgent, Person: g.person},
		Door:      "cli", Dir: q.Dir,
	}
	leave := func() {}
	if err == nil {
		err = g.identifyAgent(q.Token, &from.Principal)
	}
	if err == nil {
		leave, err = g.openSession(ctx, q, &from)
	}
	if err == nil {
		defer leave()
		err = g.serveQuery(ctx, cancel, conn, q, from)
	}
	if err != nil {
		writeError(conn, err)
	}
}

// serveQuery serves a query of a session. If it returns an error, the client gets that error as the answer.
func (g *Gateway) serveQuery(ctx context.Context, cancel context.CancelCauseFunc, conn *peer.Conn, q localapi.Query,
	from bailey.Call) error {
	if (q.Verb == "call" || q.Verb == "mcp") && g.busy.Load()-int64(len(g.streams)+len(g.webs)) > maxConns {
		return errCrowded
	}
	switch q.Verb {
	case "call":
		return g.serveCall(ctx, cancel, conn, q, from)
	case "mcp":
		return g.serveMCP(ctx, conn, from, q.Session != "")
	case localapi.HTTPVerb, localapi.ModelVerb:
		return g.serveHTTP(ctx, conn, q)
	case localapi.RedactVerb:
		return g.redactStream(ctx, conn, q, from)
	}
	h, known := g.handlers[q.Verb]
	if !known {
		return bailey.Invalid.Errorf("run bailey gateway stop, and the next call starts the new version; client and gateway may have different versions",
			"unknown query %q", q.Verb)
	}
	if !h.Command { // a command must finish after it has begun
		go untilGone(conn, cancel)
	}
	answer, err := h.answer(ctx, q, from)
	switch {
	case err == nil:
		return writeAnswer(conn, answer)
	case h.Command: // an operator must see the real names to fix the problem
		return err
	}
	return redactError(err, g.Redaction, from.Session.ID)
}

// writeError answers a query with an error.
func writeError(conn *peer.Conn, err error) {
	conn.WriteJSON(localapi.FrameError, localapi.NewFailure(err))
}

// identifyAgent sets a principal's agent and token from a bearer, if there is one.
func (g *Gateway) identifyAgent(bearer string, p *bailey.Principal) error {
	if bearer == "" {
		return nil
	}
	t, err := g.Agents.Admit(bearer)
	p.Agent, p.Token = t.Agent, t.ID
	return err
}

var errNobody = &bailey.Error{Kind: bailey.Denied,
	Message: "calls need an agent's token here (settings.yaml, agents: required), and there is none",
	Hint:    "ask an operator: bailey agent add NAME; then set " + localapi.TokenVariable}

// openSession gives a query its session: that of its bearer, or a new one that ends with the query.
func (g *Gateway) openSession(ctx context.Context, q localapi.Query, from *bailey.Call) (leave func(), err error) {
	calls := q.Verb == "call" || q.Verb == "mcp" || q.Verb == apitype.JudgeToolCall.Name
	nobody := calls && from.Principal.Token == "" && g.TokenRequired()
	if q.Session == "" && nobody {
		return nil, errNobody
	}
	if q.Session == "" || !calls {
		from.Session = bailey.Session{ID: bailey.NewSessionID(), Single: q.Verb == "call"}
		return func() { g.endSession(from.Session.ID) }, nil
	}
	if from.Session.ID, err = g.Sessions.enterSession(ctx, q.Session, from.Principal); err != nil {
		return nil, err
	}
	if i, ok := g.Sessions.Wall(from.Session.ID); ok {
		from.Principal.Agent, from.Door = i.Agent, i.Door
		g.Workspaces.Fix(from.Session.ID, i.Dir)
		nobody = false // the bearer of an agent jail identifies its agent
	}
	leave = func() { g.Sessions.leaveSession(from.Session.ID, g.endSession) }
	if nobody {
		leave()
		return nil, errNobody
	}
	if q.Verb == "mcp" {
		unstay, rest := g.Sessions.addMCPConn(from.Session.ID), leave
		leave = func() { unstay(); rest() }
	}
	begun := false
	defer func() { // must also run if a hook's question panics
		if !begun {
			leave()
		}
	}()
	err = g.startSession(ctx, *from)
	begun = err == nil
	return leave, err
}

// writeAnswer writes an answer. It returns an error if the answer does not fit in a frame.
func writeAnswer(conn *peer.Conn, answer any) error {
	if err := conn.WriteJSON(localapi.FrameResult, answer); bailey.KindOf(err) == bailey.Invalid {
		return bailey.Invalid.New("the answer is too long: "+err.Error(),
			"request less; if the call was to change something, that is done")
	}
	return nil
}

func readQuery(conn *peer.Conn, patience time.Duration) (q localapi.Query, err error) {
	conn.SetReadDeadline(time.Now().Add(patience))
	kind, b, err := conn.ReadFrameWithin(localapi.MaxQuery)
	if err != nil {
		return q, err
	}
	conn.SetReadDeadline(time.Time{})
	if kind != localapi.FrameQuery {
		return q, bailey.Invalid.Errorf("", "a frame of kind %q is not a query", kind)
	}
	return parseQuery(b)
}

func parseQuery(b []byte) (q localapi.Query, err error) {
	if n := bytes.Count(b, []byte(",")) + bytes.Count(b, []byte("[")) + bytes.Count(b, []byte("{")); n > maxValues {
		return q, bailey.Invalid.Errorf("", "the query may have %d values, but at most %d are allowed", n, maxValues)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&q); err != nil {
		return q, bailey.Invalid.Wrap(err, "the query is malformed", "")
	}
	switch {
	case q.Verb == localapi.StopVerb:
	case q.Protocol != localapi.Protocol:
		return q, bailey.Conflict.Errorf("run bailey gateway stop, and the next call starts the new version; two versions of bailey are installed",
			"the client uses protocol %d, the gateway %d", q.Protocol, localapi.Protocol)
	case !filepath.IsAbs(q.Dir) || len(q.Dir) > maxDir:
		return q, bailey.Invalid.New("the client's directory is not an absolute path", "")
	case q.Verb == "call" && q.Call == nil:
		return q, bailey.Invalid.New("the query has no call", "")
	case q.Verb == localapi.RedactVerb && q.Redact == nil:
		return q, bailey.Invalid.New("the query has no redact mode", "")
	}
	return q, nil
}

func (g *Gateway) serveCall(ctx context.Context, cancel context.CancelCauseFunc, conn *peer.Conn, q localapi.Query,
	call bailey.Call) error {
	shim := len(q.Call.Argv) > 0
	if shim {
		if err := g.resolveArgv(conn, q.Call, q.Dir); err != nil {
			return redactError(err, g.Redaction, call.Session.ID)
		}
	}
	call.Capability, call.Input, call.Text = q.Call.Capability, q.Call.Input, q.Call.Text
	call.DryRun, call.Timeout = q.Call.DryRun, q.Call.Timeout
	if q.Call.Wait {
		call.Patience = math.MaxInt64 // until the approval request expires
		call.Asked = noticeSender(conn)
	}
	if q.Call.Stream {
		call.Stdout, call.Stderr = frameWriter{conn, localapi.FrameStdout, g.ReadPatience, cancel}, frameWriter{conn,
			localapi.FrameStderr, g.ReadPatience, cancel}
	}
	if call.Whole = shim; shim && call.Door == "cli" {
		call.Door = localapi.ShimDoor
	}
	go untilGone(conn, cancel)
	reply := localapi.NewReply(g.Gate.Do(ctx, call))
	if shim && (reply.Error == bailey.Invalid || reply.Error == bailey.NotFound) {
		reply.Hint = strings.TrimPrefix(reply.Hint+"; ", "; ") +
			fmt.Sprintf("run bailey capabilities show %s for its inputs, and bailey run to call it", call.Capability)
	}
	conn.WriteJSON(localapi.FrameResult, reply)
	return nil
}

// Meant is the call that the arguments of a tool map to.
type Meant struct {
	Capability bailey.CapabilityID
	Input      map[string]any
	Stdin      string // input that receives stdin; "" if the tool does not read it
	MostStdin  uint32 // bytes
}

// resolveArgv fills in a call from a tool's arguments and reads the tool's standard input, if any.
func (g *Gateway) resolveArgv(conn *peer.Conn, q *localapi.CallQuery, dir string) error {
	if q.Capability != "" || q.Input != nil {
		return bailey.Invalid.New("cannot translate this command line into a call", "")
	}
	m, err := g.Means(q.Argv, dir)
	if err != nil {
		return err
	}
	q.Capability = m.Capability
	b, err := json.Marshal(m.Input)
	if err != nil {
		return err
	}
	// An input must have the types that JSON gives, wherever it comes from.
	if err := strictjson.Decode(b, &q.Input); err != nil || m.Stdin == "" {
		return err
	}
	if err := conn.WriteJSON(localapi.FrameInput, localapi.InputBound{Most: int(m.MostStdin)}); err != nil {
		return err
	}
	kind, text, err := conn.ReadFrameWithin(m.MostStdin)
	switch {
	case err != nil:
		return err
	case kind != localapi.FrameInput:
		return bailey.Invalid.Errorf("", "a frame of kind %q is not an input", kind)
	case !utf8.Valid(text):
		return bailey.Invalid.New("stdin is not UTF-8", "inputs of capabilities must be text")
	}
	if q.Input == nil {
		q.Input = map[string]any{}
	}
	q.Input[m.Stdin] = string(text)
	return nil
}

// noticeSender tells a client once which approval its call waits for. It needs no time limit: a client that does not read the
// notice does not read the result either, which is limited.
func noticeSender(conn *peer.Conn) func(context.Context, bailey.Question) {
	var once sync.Once
	return func(ctx context.Context, q bailey.Question) {
		once.Do(func() {
			if ctx.Err() == nil {
				conn.WriteJSON(localapi.FrameNotice,
					localapi.Notice{Approval: q.ID, Digest: q.Digest, Expires: q.Expires})
			}
		})
	}
}

// untilGone cancels a query when its client disconnects. The client must send nothing more, so any frame cancels it
// too.
func untilGone(conn *peer.Conn, cancel context.CancelCauseFunc) {
	conn.ReadFrame()
	cancel(callerGone)
}

// stopGateway ends the gateway for a client of any version. The ledger records the client. If it cannot be written, the
// gateway still ends, because that is a reason to end.
func (g *Gateway) stopGateway(ctx context.Context, conn *peer.Conn) {
	g.Log.Info("the gateway was told to stop", "by", conn.PID)
	if err := g.Note(ctx, "gateway.stop", map[string]any{"pid": conn.PID, "person": g.person}); err != nil {
		g.Log.Error("cannot record the gateway's end", "err", err)
	}
	conn.WriteFrame(localapi.FrameResult, nil)
	if end := g.end.Load(); end != nil {
		(*end)(errStopped)
	}
}

// serveMCP serves one MCP connection. It is a session of its own or belongs to a session with a bearer.
func (g *Gateway) serveMCP(ctx context.Context, conn *peer.Conn, from bailey.Call, bearer bool) error {
	from.Door = "mcp"
	more := map[string]any{}
	if bearer {
		more["bearer"] = true // it may have been connected before, and may be again
	}
	leave, err := g.recordStart(ctx, from, more, !bearer)
	if err != nil {
		return err
	}
	defer leave()
	if err = conn.WriteFrame(localapi.FrameResult, nil); err == nil {
		err = g.MCP(ctx, from, conn.UnixConn)
	}
	if err != nil {
		g.Log.Info("an MCP connection ended", "session", from.Session.ID, "err", err)
	}
	return nil
}

// recordStart records that a session is connected and shows it in the status until leave is called. If the session begins
// with this connection, the home's hooks are asked. more has additional fields of the ledger entry.
func (g *Gateway) recordStart(ctx context.Context, from bailey.Call, more map[string]any,
	begins bool) (leave func(), err error) {
	id := from.Session.ID
	shown := from
	shown.Dir = g.Redaction.Text(id, from.Dir)
	event := map[string]any{"session": id, "door": from.Door, "agent": from.Principal.Agent, "dir": shown.Dir}
	if from.Principal.Token != "" {
		event["token"] = from.Principal.Token
	}
	maps.Copy(event, more)
	if err := g.Note(ctx, "session.start", event); err != nil {
		return nil, err
	}
	part, over := g.Live.addSession(shown), func() {}
	leave = func() {
		over()
		part()
		if err := g.Note(context.WithoutCancel(ctx), "session.end", map[string]any{"session": id}); err != nil {
			g.Log.Error("cannot record a session's end", "session", id, "err", err)
		}
	}
	if !begins {
		return leave, nil
	}
	begun := false
	defer func() { // must also run if a hook's question panics
		if !begun {
			leave()
		}
	}()
	if err := g.Begin(ctx, shown); err != nil {
		g.Log.Info("a session could not start", "session", id, "err", err)
		return nil, redactError(err, g.Redaction, id)
	}
	begun, over = true, func() { g.End(g.last, shown) }
	return leave, nil
}

func (g *Gateway) endSession(id bailey.SessionID) {
	g.Workspaces.End(id)
	if err := g.Gate.EndSession(context.Background(), id); err != nil {
		g.Log.Error("cannot end a session", "session", id, "err", err)
	}
}

const outputUnread = endReason("the caller did not read the output")

// frameWriter writes output as frames of one kind.
type frameWriter struct {
	conn     *peer.Conn
	kind     byte
	patience time.Duration // time that the client has to read a frame
	cancel   context.CancelCauseFunc
}

func (f frameWriter) Write(b []byte) (int, error) {
	f.conn.SetWriteDeadline(time.Now().Add(f.patience))
	if err := f.conn.WriteFrame(f.kind, b); err != nil {
		f.cancel(outputUnread)
		return 0, err
	}
	return len(b), nil
}

// redactError returns an error in the redacted form that the session may read.
func redactError(err error, r *Redaction, id bailey.SessionID) error {
	return bailey.KindOf(err).New(r.Text(id, err.Error()), r.Text(id, bailey.HintOf(err)))
}

// checkOperator returns an error if o is not a valid operator right.
func checkOperator(o localapi.Operator, verb string) error {
	if o != localapi.Terminal && o != localapi.Env {
		return bailey.Denied.Errorf("use it in a terminal, or set BAILEY_OPERATOR=1 and give --yes",
			"%s is an operator command", verb)
	}
	return nil
}

// Caller is the sender of a query or a command: its principal, its session and its directory.
type Caller struct {
	bailey.Call
	Operator localapi.Operator // "" for a query
}

// Handler answers one query or command.
type Handler struct {
	Name    string
	Command bool
	serve   func(ctx context.Context, request json.RawMessage, from Caller) (any, error)
}

// answer serves a query. For a command the query must state the right of an operator.
func (h Handler) answer(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	if h.Command {
		if err := checkOperator(q.Operator, h.Name); err != nil {
			return nil, err
		}
	}
	return h.serve(ctx, q.Request, Caller{from, q.Operator})
}

// Handle returns the handler of an endpoint. A request with an unknown field is refused: it may be of another version.
func Handle[Request, Answer any](e localapi.Endpoint[Request, Answer],
	serve func(ctx context.Context, r Request, from Caller) (Answer, error)) Handler {
	return Handler{e.Name, e.Command, func(ctx context.Context, request json.RawMessage, from Caller) (any, error) {
		var r Request
		if len(request) > 0 {
			if err := strictjson.Decode(request, &r); err != nil {
				return nil, bailey.Invalid.Wrap(err, "cannot read the request "+e.Name,
					"run bailey gateway stop; client and gateway may have different versions")
			}
		}
		return serve(ctx, r, from)
	}}
}
