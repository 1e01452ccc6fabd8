package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"bailey"
	"bailey/internal/peer"
	"bailey/internal/wire"
)

// innerVerbs are what an agent inside the wall may say: calls, how to word one, and what its own hook asks. Nothing that shows other sessions.
var innerVerbs = []string{"call", "mcp", "capabilities", "capability", "search", judgeVerb}

// judgeVerb is what a hook asks. It is answered here: nobody can be asked about what the agent does to itself, and the gateway
// knows nothing of paths inside.
const judgeVerb = "judge"

// maxInner bounds what an agent inside the wall has open at once.
const maxInner = 64

// Inner is the far end of the calls socket: it reads one query of each connection, lets through what an agent may say,
// puts the agent's own session in it, and copies from then on. It holds the bearer, which never enters the cage.
type Inner struct {
	Client *wire.Client // with the agent's session
	Dir    string       // the project: where a call starts that says it comes from elsewhere
	Judged any          // the answer to the agent's own hook
	// Refused is told of each query that was not let through. Nil: nobody is.
	Refused func(reason string)
}

// Serve takes connections until ctx ends, and returns when none is open.
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
		case passing(err):
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
			go func() { // whoever does not read waits by itself
				inner.WriteJSON(wire.FrameError, wire.NewFailure(errCrowded))
				inner.Close()
			}()
			continue
		}
		open.Go(func() {
			defer func() { <-seats }()
			n.serve(ctx, inner)
		})
	}
}

// serve carries one connection.
func (n *Inner) serve(ctx context.Context, inner *peer.Conn) {
	defer inner.Close()
	defer context.AfterFunc(ctx, func() { inner.Close() })()
	q, err := readQuery(inner, queryPatience)
	if err == nil {
		q, err = n.admit(q)
	}
	if err == nil && q.Verb == judgeVerb {
		respond(inner, n.Judged)
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
		inner.WriteJSON(wire.FrameError, wire.NewFailure(err))
		return
	}
	defer outer.Close()
	defer context.AfterFunc(ctx, func() { outer.Close() })()
	if outer.WriteJSON(wire.FrameQuery, q) != nil {
		return // the client learns that the connection ended, and says its query again
	}
	go func() {
		io.Copy(outer.UnixConn, inner.UnixConn)
		outer.CloseWrite()
	}()
	io.Copy(inner.UnixConn, outer.UnixConn)
}

// admit is a query as it goes on: with the agent's session, without any operator's right.
func (n *Inner) admit(q wire.Query) (wire.Query, error) {
	if !slices.Contains(innerVerbs, q.Verb) {
		return q, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%q is not for an agent: operator verbs stay outside of the wall", q.Verb),
			Hint: "inside there are calls: bailey run, bailey serve, bailey capabilities; a person does the rest in a terminal of theirs"}
	}
	if q.Call != nil && len(q.Call.Argv) > 0 { // whose stdin may be many times a query
		return q, &bailey.Error{Kind: bailey.Denied, Message: "a tool's own name is no call inside of the wall", Hint: "bailey capabilities search finds what does it, and bailey run calls that"}
	}
	out := wire.Query{Protocol: q.Protocol, Verb: q.Verb, Dir: filepath.Clean(q.Dir), Args: q.Args}
	if !within(n.Dir, out.Dir) {
		out.Dir = n.Dir
	}
	switch q.Verb {
	case "call":
		out.Call, out.Args, out.Session = q.Call, nil, n.Client.Session
	case "mcp":
		out.Args, out.Session = nil, n.Client.Session
	}
	return out, nil
}
