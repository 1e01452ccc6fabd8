package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
	"bailey/internal/workspace"
)

// innerVerbs are the verbs that an agent inside the jail may use: calls, queries that help to make a call, and the
// query of its own hook, which Inner answers itself: no user can be asked about actions inside the jail, and the
// gateway does not know paths inside it. None of them shows other sessions.
var innerVerbs = []string{"call", "mcp", "capabilities", "capability", "search", apitype.JudgeToolCall.Name}

// maxInner limits the open connections of an agent inside the jail.
const maxInner = 64

// Inner serves the calls socket of an agent jail. It reads one query per connection, checks its verb, adds the agent's
// session, and then copies in both directions. It holds the bearer, which must never enter the cage.
type Inner struct {
	Client *localapi.Client // with the agent's session
	Dir    string           // the project; replaces the directory of a call from outside it
	Judged any              // answer to the agent's own hook
	// Refused, if set, is called for each query that was denied.
	Refused func(reason string)
}

// Serve accepts connections until ctx ends and returns when the last one is closed.
func (n *Inner) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	defer ln.Close()
	var open sync.WaitGroup
	defer open.Wait()
	seats := make(chan struct{}, maxInner)
	for {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if c != nil {
				c.Close()
			}
			return nil
		case peer.Temporary(err):
			continue
		case err != nil:
			return err
		}
		conn, ok := c.(*net.UnixConn)
		if !ok {
			c.Close()
			continue
		}
		inner := &peer.Conn{UnixConn: conn}
		select {
		case seats <- struct{}{}:
		default:
			go func() { // a client that does not read must not block the loop
				writeError(inner, errCrowded)
				inner.Close()
			}()
			continue
		}
		open.Go(func() {
			defer func() { <-seats }()
			n.serveConn(ctx, inner)
		})
	}
}

func (n *Inner) serveConn(ctx context.Context, inner *peer.Conn) {
	defer inner.Close()
	defer context.AfterFunc(ctx, func() { inner.Close() })()
	q, err := readQuery(inner, queryPatience)
	if err == nil {
		q, err = n.admitQuery(q)
	}
	if err == nil && q.Verb == apitype.JudgeToolCall.Name {
		if err = writeAnswer(inner, n.Judged); err != nil {
			writeError(inner, err)
		}
		return
	}
	var outer *peer.Conn
	if err == nil {
		outer, err = n.Client.Dial(ctx)
	}
	if err != nil {
		if n.Refused != nil && errors.Is(err, bailey.Denied) {
			n.Refused(err.Error())
		}
		writeError(inner, err)
		return
	}
	defer outer.Close()
	defer context.AfterFunc(ctx, func() { outer.Close() })()
	if outer.WriteJSON(localapi.FrameQuery, q) != nil {
		return // the client sees that the connection ended and repeats its query
	}
	go func() {
		io.Copy(outer.UnixConn, inner.UnixConn)
		outer.CloseWrite()
	}()
	io.Copy(inner.UnixConn, outer.UnixConn)
}

// admitQuery returns the query to forward: with the agent's session and without operator rights.
func (n *Inner) admitQuery(q localapi.Query) (localapi.Query, error) {
	if !slices.Contains(innerVerbs, q.Verb) {
		return q, bailey.Denied.Errorf("inside the agent jail, use bailey run, bailey serve and bailey capabilities; other commands are for a person in a terminal outside",
			"%q is not for an agent: operator commands are refused inside the agent jail", q.Verb)
	}
	if q.Call != nil && len(q.Call.Argv) > 0 { // its standard input may be many times as long as a query
		return q, bailey.Denied.New("calls by a tool's own name are refused inside the agent jail",
			"find a capability with bailey capabilities search, and call it with bailey run")
	}
	out := localapi.Query{Protocol: q.Protocol, Verb: q.Verb, Dir: filepath.Clean(q.Dir), Request: q.Request}
	if !workspace.Within(n.Dir, out.Dir) {
		out.Dir = n.Dir
	}
	switch q.Verb {
	case "call":
		out.Call, out.Request, out.Session = q.Call, nil, n.Client.Session
	case "mcp":
		out.Request, out.Session = nil, n.Client.Session
	}
	return out, nil
}
