// Package mcp is the front end for the Model Context Protocol. It converts JSON-RPC requests on one connection to
// [bailey.Call], and each [bailey.Result] to an answer that an agent can act on.
//
// # Accepted messages
//
// A message is one line of JSON. It must be valid UTF-8 of at most 1 MiB, nested at most 64 deep, without duplicate
// keys in an object. Any other message is answered with a JSON-RPC error and not processed; the connection stays open.
// At most 256 calls, with 8 MiB of messages, are open at once.
//
// The server offers initialize, server/discover, ping, tools/list, tools/call, resources/list and resources/read (the
// receipts of the session) and subscriptions/listen (without any subscriptions), in the revisions 2024-11-05 to
// 2026-07-28, and in the last revision also the methods of [TasksExtension]. The gate gets every well-formed
// tools/call, whatever tool it names, so that it leaves a receipt. A search for tools that are not listed
// (Config.Listed) is an exception: it is a query, like tools/list. Over HTTP the same rules apply, with one message in
// each request ([HTTP]).
//
// The client may also send answers to the server's own requests (elicitation/create), which are matched by id. All
// other answers are dropped.
//
// # Waiting
//
// A call that needs an approval waits for [DefaultPatience]. If the client sent a progress token, it gets a progress
// message every ten seconds. After that the call is pending, and the same call in the same session resumes it. If a
// client cancels the call, it stops waiting, but the question stays open.
//
// A client that names the tasks extension gets a task instead: immediately if the call must wait, and after five
// seconds if it takes long, see [TasksExtension]. A session has at most 64 tasks, which end with the session.
//
// # Names
//
// The tool names of agents allow only [A-Za-z0-9_-], so "git.status" is listed as "git_status": every other character
// becomes "_". If two capabilities would have the same name, or if a name has more than 48 bytes, it is shortened and
// ends in "-" and ten hex digits of the SHA-256 of the capability. No two tools have the same name.
//
// # Answers
//
//	ok          content: stdout, then "stderr:" and stderr
//	ran, failed isError; one text with exit code, stdout and stderr
//	not run     isError; one text with what happened, why, what to do and the receipt's id;
//	            structuredContent has the same facts. For a pending call also: until when, who answers, and
//	            that the same call resumes it
//
// Agents show their model either structuredContent or content, and for an error often only the first text. Therefore
// structuredContent is used only if it is complete, and an error is one text. Facts for programs are in _meta under
// [ResultKey] of every answer.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// Tool is a capability in the form that agents see.
type Tool struct {
	ID          bailey.CapabilityID
	Description string
	InputSchema json.RawMessage // a JSON Schema of type object; empty accepts any object
	// OutputSchema describes the output of the tool, including redacted output. Empty means that nothing is promised. A
	// schema that is not of type object is not shown, because the protocol does not allow it.
	OutputSchema json.RawMessage

	ReadOnly, Destructive, Idempotent, OpenWorld bool

	Each *Each // lets an agent give several values for one input; nil: one call for each request
}

func (t Tool) inputSchema() json.RawMessage {
	if len(t.InputSchema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	if t.Each != nil {
		if schema, err := t.Each.addList(t.InputSchema); err == nil {
			return schema
		}
	}
	return t.InputSchema
}

// Gate is the interface from this front end to the capabilities.
type Gate interface {
	// Do decides and runs one call. It returns when the call has ended completely, which must be soon after ctx ends.
	Do(ctx context.Context, call bailey.Call) bailey.Result
	// Tools returns the tools that p may see, in a stable order.
	Tools(ctx context.Context, p bailey.Principal) []Tool
	// Search returns the capabilities that match words, best first.
	Search(ctx context.Context, words string) []bailey.CapabilityID
	// Receipts returns the newest receipts of a session, newest first. Receipt returns one of them as JSON, or NotFound
	// if it belongs to another session.
	Receipts(ctx context.Context, of bailey.SessionID, most int) ([]Receipt, error)
	Receipt(ctx context.Context, of bailey.SessionID, id bailey.ReceiptID) (json.RawMessage, error)
	// Question returns an open question about a call with from's session and principal. It returns no other question.
	Question(ctx context.Context, from bailey.Call, id bailey.ApprovalID) (Question, error)
	// Answer answers a question without a signature. digest must be that of the text that was shown.
	Answer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string, grant bool, reason string) error
	// AnswerSession grants the question, and other calls of the capability until the session ends.
	AnswerSession(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string) error
}

// Config describes the peer of a connection and the target of its calls.
type Config struct {
	Gate      Gate
	Principal bailey.Principal // from the credential of the front end, never from the client
	Session   bailey.Session
	Dir       string // working directory of the client, absolute
	Version   string // version of Bailey
	Log       *slog.Logger
	// Patience is the time that a call waits for an answer before it becomes pending. Zero means [DefaultPatience].
	Patience time.Duration
	// Grace is the time that open requests may take after the peer has closed its side. Zero means [DefaultGrace].
	Grace time.Duration
	// Listed is the maximum number of tools in tools/list. Two additional tools find and call the rest. Zero means no
	// limit.
	Listed int
	// Hide redacts the text of protocol errors, which may quote client data.
	Hide func(string) string
}

// instructions are sent to every connected model, so they must be short.
const instructions = `Bailey is the gate between you and the tools of this machine. Each call is decided by policy, ` +
	`runs in a jail and leaves a receipt. A refusal is final; it says why and what to do instead. ` +
	`Do not repeat it unchanged and do not look for a way around it: tell the person you work for what you need. ` +
	`Relative paths start in the directory of your session, which also counts if you name no repo or dir. ` +
	`A call that needs a person's approval waits for it, or returns as pending: call again with the same arguments to continue waiting; once approved, it runs once. You cannot approve it yourself. ` +
	`Tokens such as [REDACTED_IPV4_1] stand for hidden values, the same token for the same value in this session: pass a token on unchanged. ` +
	`In a path, a host or a URL's host the gate restores addresses; other secrets stay tokens unless the tool's schema says acceptsSecret. ` +
	`[REDACTED__ with two underscores represents data that itself contains [REDACTED_.`

// Serve handles MCP on rw until the peer closes the connection or ctx ends. It returns when every call of the
// connection has ended. It closes rw, whose Close must unblock Read and Write, as a socket does.
//
// After the peer has closed its side, open calls have [DefaultGrace] to finish, so that a whole conversation can be
// piped in. Then they are cancelled.
func Serve(ctx context.Context, cfg Config, rw io.ReadWriteCloser) error {
	if cfg.Gate == nil || cfg.Hide == nil {
		rw.Close()
		return bailey.Internal.New("an MCP connection has no gate or no redaction", "")
	}
	c := newConn(rw, cfg.Hide, cmp.Or(cfg.Grace, DefaultGrace))
	s := newSession(cfg)
	s.conn = c
	server, err := s.newServer()
	if err != nil {
		c.Close()
		return err
	}
	defer s.tasks.endAll()
	peer, err := server.Connect(ctx, c, nil)
	if err != nil {
		c.Close()
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := peer.Wait(); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// session is the state of a session above the wire protocol.
type session struct {
	Config
	conn *conn  // nil for an HTTP session
	name string // name of an HTTP session for its client; "" otherwise
	// carry binds a call to the lifetime of its request and session, and counts it until done. Nil means that only the
	// connection matters.
	carry func(ctx context.Context, req sdk.Request) (out context.Context, done func(), err error)
	// hid is called for each request with a redacted error, so that the error is not redacted twice. It may be nil.
	hid  func(req sdk.Request)
	page int           // maximum number of tools in one answer to tools/list
	beat time.Duration // interval between progress messages of a waiting call

	tasks tasks

	mu    sync.Mutex
	names map[string]bailey.CapabilityID // as last listed; guarded by mu
	each  map[bailey.CapabilityID]*Each  // of the tools that the principal saw last; guarded by mu
}

func newSession(cfg Config) *session {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &session{Config: cfg, page: 1000, beat: beat}
}

// newServer returns the SDK server of the session.
func (s *session) newServer() (*sdk.Server, error) {
	server := sdk.NewServer(&sdk.Implementation{Name: "bailey", Version: s.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       s.Log,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{},
			Extensions: map[string]any{TasksExtension: map[string]any{}}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
		GetSessionID: func() string { return s.name },
	})
	server.AddReceivingMiddleware(s.dispatchMiddleware)
	return server, s.offerTasks(server)
}

// dispatchMiddleware allows only the methods that this front end offers, and answers the tool methods itself.
func (s *session) dispatchMiddleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, s.panicError(method, p)
			}
			if err != nil && s.conn == nil { // conn redacts the errors of its own connection
				err = hiddenError(err, s.Hide)
				if s.hid != nil {
					s.hid(req)
				}
			}
		}()
		switch req := req.(type) {
		case *sdk.CallToolRequest:
			if s.carry != nil {
				tied, done, err := s.carry(ctx, req)
				if err != nil {
					return nil, err
				}
				defer done()
				ctx = tied
			}
			return s.handleToolCall(ctx, req)
		case *sdk.ListToolsRequest:
			return s.listTools(ctx, req)
		case *sdk.ListResourcesRequest:
			return s.listReceipts(ctx)
		case *sdk.ReadResourceRequest:
			return s.readReceipt(ctx, req)
		}
		switch {
		case method == "initialize":
			res, err = next(ctx, method, req)
			if r, ok := res.(*sdk.InitializeResult); ok {
				if s.conn != nil {
					s.conn.setRevision(r.ProtocolVersion)
				}
				r.Capabilities = withoutExtensions(r.Capabilities)
			}
			return res, err
		case method == "ping", method == "server/discover", method == "resources/templates/list",
			method == "subscriptions/listen",
			method == "tasks/get", method == "tasks/update", method == "tasks/cancel",
			strings.HasPrefix(method, "notifications/"):
			return next(ctx, method, req)
		}
		return nil, notOffered(method)
	}
}
