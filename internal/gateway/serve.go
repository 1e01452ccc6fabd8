package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// queryPatience bounds how long a connection may stay without its query.
const queryPatience = 10 * time.Second

// serve answers one connection: one query, one answer, or MCP until it ends.
func (g *Gateway) serve(ctx context.Context, conn *peer.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	q, err := readQuery(conn)
	if err != nil {
		conn.WriteJSON(frameError, newFailure(err))
		return
	}
	from := bailey.Call{
		Principal: bailey.Principal{Agent: "local", Person: g.person},
		Session:   bailey.Session{ID: bailey.NewSessionID()},
		Door:      "cli", Dir: q.Dir,
	}
	defer g.endSession(from.Session.ID)
	switch look := g.Looks[q.Verb]; {
	case q.Verb == "call":
		g.call(ctx, cancel, conn, q, from)
	case q.Verb == "mcp":
		g.mcp(ctx, conn, from)
	case look != nil:
		answer, err := look(ctx, q, from)
		if err != nil {
			conn.WriteJSON(frameError, newFailure(err))
			return
		}
		conn.WriteJSON(frameResult, answer)
	default:
		conn.WriteJSON(frameError, newFailure(&bailey.Error{Kind: bailey.Invalid,
			Message: fmt.Sprintf("the gateway knows no verb %q", q.Verb), Hint: "client and gateway may be of two versions; end the gateway"}))
	}
}

func readQuery(conn *peer.Conn) (q Query, err error) {
	conn.SetReadDeadline(time.Now().Add(queryPatience))
	kind, b, err := conn.ReadFrame()
	if err != nil {
		return q, err
	}
	conn.SetReadDeadline(time.Time{})
	if kind != frameQuery {
		return q, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a frame of kind %q is no query", kind)}
	}
	return parseQuery(b)
}

func parseQuery(b []byte) (q Query, err error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&q); err != nil {
		return q, &bailey.Error{Kind: bailey.Invalid, Message: "the query is not one", Err: err}
	}
	switch {
	case q.Protocol != Protocol:
		return q, &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("the client speaks protocol %d, the gateway %d", q.Protocol, Protocol),
			Hint: "two versions of bailey are installed; end the running gateway, the next call starts the new one"}
	case !filepath.IsAbs(q.Dir):
		return q, &bailey.Error{Kind: bailey.Invalid, Message: "the client's directory is not absolute"}
	case q.Verb == "call" && q.Call == nil:
		return q, &bailey.Error{Kind: bailey.Invalid, Message: "a call query without a call"}
	}
	return q, nil
}

func (g *Gateway) call(ctx context.Context, cancel context.CancelFunc, conn *peer.Conn, q Query, call bailey.Call) {
	call.Capability, call.Input, call.Text = q.Call.Capability, q.Call.Input, q.Call.Text
	call.DryRun, call.Wait = q.Call.DryRun, q.Call.Wait
	if q.Call.Stream {
		call.Stdout, call.Stderr = frames{conn, frameStdout}, frames{conn, frameStderr}
	}
	go func() { // a client says nothing more: whatever comes is its end, and ends the call
		conn.ReadFrame()
		cancel()
	}()
	conn.WriteJSON(frameResult, NewReply(g.Gate.Do(ctx, call)))
}

// mcp serves one MCP connection, which is one session.
func (g *Gateway) mcp(ctx context.Context, conn *peer.Conn, from bailey.Call) {
	from.Door = "mcp"
	id := from.Session.ID
	event := map[string]any{"session": id, "door": "mcp", "agent": from.Principal.Agent, "dir": from.Dir}
	if err := g.Note(ctx, "session.start", event); err != nil {
		conn.WriteJSON(frameError, newFailure(err))
		return
	}
	if err := conn.WriteFrame(frameResult, nil); err != nil {
		return
	}
	if err := g.MCP(ctx, from, conn.UnixConn); err != nil {
		g.Log.Info("an MCP connection ended", "session", id, "err", err)
	}
	if err := g.Note(context.WithoutCancel(ctx), "session.end", map[string]any{"session": id}); err != nil {
		g.Log.Error("a session's end is not recorded", "session", id, "err", err)
	}
}

func (g *Gateway) endSession(id bailey.SessionID) {
	g.Workspaces.End(id)
	if err := g.Gate.EndSession(context.Background(), id); err != nil {
		g.Log.Error("ending a session", "session", id, "err", err)
	}
}

// frames writes output as frames of one kind.
type frames struct {
	conn *peer.Conn
	kind byte
}

func (f frames) Write(b []byte) (int, error) { return len(b), f.conn.WriteFrame(f.kind, b) }
