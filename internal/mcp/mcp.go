// Package mcp is the door through which agents speak the Model Context Protocol: JSON-RPC on one
// connection becomes [bailey.Call], and a [bailey.Result] becomes an answer that an agent can act on.
//
// # What passes
//
// A message is one line of JSON, at most 1 MiB, nested at most 64 deep, valid UTF-8, and no object in it
// names a key twice. Anything else is answered with a JSON-RPC error and goes no further; the connection
// stays. At most 256 calls, and 8 MiB of their messages, are open at once.
//
// Offered are initialize, server/discover, ping, tools/list, tools/call, resources/list and resources/read (the receipts of the own
// session) and subscriptions/listen (which has nothing to subscribe to), in the revisions 2024-11-05 to 2026-07-28, and from the last one on the methods of [TasksExtension].
// Every well-formed tools/call goes to the gate, whatever tool it names, so that it leaves a receipt; but a search for tools that are
// not listed (Config.Listed) is a look, as a list is. By HTTP the same passes, a message in each request ([HTTP]).
//
// From the client come also the answers to requests of ours (elicitation/create), by their ids; any other is dropped.
//
// # Waiting
//
// A call that a person has to approve stays for [DefaultPatience], with a word of progress every ten seconds to a client
// that gave a token. Then it is pending, and the same call in the same session takes it up again. A client that cancels
// withdraws its waiting, and not the question.
//
// A client that names the tasks extension has a task instead, at once where the call waits and after five seconds where it takes long:
// see [TasksExtension]. At most 64 of a session, which are ended with it.
//
// # Names
//
// Agents' tool names allow [A-Za-z0-9_-] only, so "git.status" is listed as "git_status": every other
// character becomes "_". Where two capabilities would share a name, or one is over 48 bytes, the name is
// cut and ends in "-" and ten hex digits of the capability's SHA-256; no two tools share a name.
//
// # Answers
//
//	ok          content: stdout, then "stderr:" and stderr
//	ran, failed isError; one text with exit code, stdout and stderr
//	not run     isError; one text with what happened, why, what to do and the receipt's id;
//	            structuredContent says the same. So of one that is pending: until when, who answers, and
//	            that the same call takes it up
//
// Agents show their model either structuredContent or content, and of an error often the first text
// alone. So structuredContent stands only where it says everything, and an error is one text. What a
// program wants to know of any answer stands in _meta under [ResultKey].
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

// Tool is a capability as an agent may see it.
type Tool struct {
	ID          bailey.CapabilityID
	Description string
	InputSchema json.RawMessage // a JSON Schema of type object; empty accepts any object
	// OutputSchema is of what the tool writes, also where something in it is redacted; empty promises nothing. One that is not
	// of type object is not shown: the protocol has none.
	OutputSchema json.RawMessage

	ReadOnly, Destructive, Idempotent, OpenWorld bool
}

// Gate is the one way from this door to a capability.
type Gate interface {
	// Do decides and runs one call. It returns when nothing of the call is left, soon after ctx ends.
	Do(ctx context.Context, call bailey.Call) bailey.Result
	// Tools lists what p may see, in a stable order.
	Tools(ctx context.Context, p bailey.Principal) []Tool
	// Search finds capabilities by words, the best first.
	Search(ctx context.Context, words string) []bailey.CapabilityID
	// Receipts are the newest of a session's, the newest first, and Receipt is one of them, as JSON; of another it is NotFound.
	Receipts(ctx context.Context, of bailey.SessionID, most int) ([]Receipt, error)
	Receipt(ctx context.Context, of bailey.SessionID, id bailey.ReceiptID) (json.RawMessage, error)
	// Question returns an open question about a call of from's session and principal, and no other.
	Question(ctx context.Context, from bailey.Call, id bailey.ApprovalID) (Question, error)
	// Answer answers one, without a signature: the digest is that of the text that was shown.
	Answer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string, grant bool, reason string) error
}

// Config says who is at the other end of a connection and where its calls go.
type Config struct {
	Gate      Gate
	Principal bailey.Principal // from the door's credential, never from the client
	Session   bailey.Session
	Dir       string // the client's working directory, absolute
	Version   string // Bailey's own
	Log       *slog.Logger
	// Patience is how long a call stays for a person's answer before it is parked. Zero is [DefaultPatience].
	Patience time.Duration
	// Grace is how long open requests may take after the peer has sent its last byte. Zero is [DefaultGrace].
	Grace time.Duration
	// Listed is how many tools tools/list has at most; the rest is found and called by two more. Zero: all.
	Listed int
	// Hide redacts the text of protocol errors, which quote what was sent.
	Hide func(string) string
}

// instructions reach every model that is connected, so they are short.
const instructions = `Bailey is the gate between you and the tools of this machine. Each call is decided by policy, ` +
	`runs in a cage and leaves a receipt. A refusal is final; it says why and what to do instead. ` +
	`Do not repeat it unchanged and do not look for a way around it: tell the person you work for what you need. ` +
	`A call that needs a person's approval waits for it, or returns as pending: call again with the same arguments to go on waiting, and once granted it runs, once. You cannot answer it yourself. ` +
	`[REDACTED_IPV4_1] and the like stand for what is hidden from you, the same thing each time in this session: pass such a token on as it is. ` +
	`As a path, a host or a URL's host the gate puts an address back; other secrets stay tokens unless the tool's schema says acceptsSecret. ` +
	`[REDACTED__ with two underscores is how data that itself reads [REDACTED_ is shown.`

// Serve speaks MCP on rw until the peer ends the connection or ctx does, and returns when every call it
// carried has ended. It closes rw, whose Close has to end a blocked Read and Write, as a socket's does.
//
// When the peer has sent its last byte, open calls get [DefaultGrace] to be answered, so that a
// conversation can be piped in whole; then they are cancelled.
func Serve(ctx context.Context, cfg Config, rw io.ReadWriteCloser) error {
	if cfg.Gate == nil || cfg.Hide == nil {
		rw.Close()
		return &bailey.Error{Kind: bailey.Internal, Message: "an MCP connection has no gate, or no redaction"}
	}
	c := newConn(rw, cfg.Hide, cmp.Or(cfg.Grace, DefaultGrace))
	s := newSession(cfg)
	s.conn = c
	server, err := s.server()
	if err != nil {
		c.Close()
		return err
	}
	defer s.tasks.close()
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

// session is what is known above the wire.
type session struct {
	Config
	conn *conn  // nil where it is not of one connection
	name string // of a session of HTTP, by which its client names it; "" elsewhere
	// carry ties a call to more than its connection, and counts it until done. Nil: to nothing more.
	carry func(ctx context.Context, req sdk.Request) (out context.Context, done func(), err error)
	// hid is told of each request whose error is hidden, so that it is not hidden twice. Nil: nobody is.
	hid  func(req sdk.Request)
	page int           // tools in one answer to tools/list
	beat time.Duration // between two words to a client whose call waits

	tasks tasks

	mu    sync.Mutex
	names map[string]bailey.CapabilityID // as last listed; guarded by mu
}

func newSession(cfg Config) *session {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &session{Config: cfg, page: 1000, beat: beat}
}

// server answers for the session.
func (s *session) server() (*sdk.Server, error) {
	server := sdk.NewServer(&sdk.Implementation{Name: "bailey", Version: s.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       s.Log,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}, Extensions: map[string]any{TasksExtension: map[string]any{}}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
		GetSessionID: func() string { return s.name },
	})
	server.AddReceivingMiddleware(s.receive)
	return server, s.offerTasks(server)
}

// receive lets through what this door offers and answers the tool methods itself.
func (s *session) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, s.caught(method, p)
			}
			if err != nil && s.conn == nil { // a connection of its own hides what leaves by it
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
			return s.call(ctx, req)
		case *sdk.ListToolsRequest:
			return s.list(ctx, req)
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
		case method == "ping", method == "server/discover", method == "resources/templates/list", method == "subscriptions/listen",
			method == "tasks/get", method == "tasks/update", method == "tasks/cancel",
			strings.HasPrefix(method, "notifications/"):
			return next(ctx, method, req)
		}
		return nil, notOffered(method)
	}
}
