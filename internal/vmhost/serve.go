//go:build linux

package vmhost

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/strictjson"
)

const (
	queryTime  = 10 * time.Second // a client may need to send its query
	maxConns   = 256
	queryDepth = 16
)

// A handler performs an operation and returns its answer.
type handler func(ctx context.Context, c caller, request []byte) (any, error)

// handlerOf returns the handler of an endpoint.
func handlerOf[Request, Answer any](f func(context.Context, caller, Request) (Answer, error)) handler {
	return func(ctx context.Context, c caller, body []byte) (any, error) {
		var r Request
		if err := decodeRequest(body, &r); err != nil {
			return nil, err
		}
		return f(ctx, c, r)
	}
}

func decodeRequest(body []byte, into any) error {
	if err := strictjson.Check(body, queryDepth); err != nil {
		return bailey.Invalid.Wrap(err, "the request is malformed", "")
	}
	if err := strictjson.Decode(body, into); err != nil {
		return bailey.Invalid.Wrap(err, "the request is malformed", "use the client of the same version as bailey-host")
	}
	return nil
}

// allHandlers returns the operations with one answer.
func (h *Host) allHandlers() map[string]handler {
	return map[string]handler{
		hostapi.Create.Verb:         handlerOf(h.createBox),
		hostapi.List.Verb:           handlerOf(h.listBoxes),
		hostapi.Show.Verb:           handlerOf(h.showBox),
		hostapi.Destroy.Verb:        handlerOf(h.destroyNamed),
		hostapi.Start.Verb:          handlerOf(h.startBox),
		hostapi.Stop.Verb:           handlerOf(h.stopBox),
		hostapi.Pause.Verb:          handlerOf(h.pauseBox),
		hostapi.Resume.Verb:         handlerOf(h.resumeBox),
		hostapi.TakeSnapshot.Verb:   handlerOf(h.takeSnapshot),
		hostapi.Snapshots.Verb:      handlerOf(h.listSnapshots),
		hostapi.RemoveSnapshot.Verb: handlerOf(h.removeSnapshot),
		hostapi.Restore.Verb:        handlerOf(h.restoreBox),
		hostapi.Branch.Verb:         handlerOf(h.branchBox),
		hostapi.Extend.Verb:         handlerOf(h.extendBox),
		hostapi.StartJob.Verb:       handlerOf(h.startJob),
		hostapi.Jobs.Verb:           handlerOf(h.listJobs),
		hostapi.ReadOutput.Verb:     handlerOf(h.readOutput),
		hostapi.KillJob.Verb:        handlerOf(h.killJob),
		hostapi.ReadFile.Verb:       handlerOf(h.readFile),
		hostapi.WriteFile.Verb:      handlerOf(h.writeFile),
		hostapi.EditFile.Verb:       handlerOf(h.editFile),
		hostapi.ListFiles.Verb:      handlerOf(h.listFiles),
		hostapi.TakeEgress.Verb:     handlerOf(h.takeEgress),
		hostapi.HostStatus.Verb:     handlerOf(h.hostStatus),
		hostapi.ShowImage.Verb:      handlerOf(h.showImage),
	}
}

// acceptClients serves clients until the listener is closed.
func (h *Host) acceptClients(ctx context.Context, l *peer.Listener, open *sync.WaitGroup) error {
	handlers := h.allHandlers()
	for {
		conn, err := l.Accept()
		if peer.Temporary(err) {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return err
		}
		done, err := h.conns.admitConn(conn.UID)
		if err != nil {
			sendAnswer(conn, nil, err)
			conn.Close()
			continue
		}
		open.Go(func() {
			defer done()
			defer conn.Close()
			h.serveConn(ctx, conn, handlers)
		})
	}
}

// userConns counts the connections of each user.
type userConns struct {
	mu   sync.Mutex
	all  int
	open map[int]int // by uid
}

// admitConn counts a connection until done is called. A user who cannot stop the host has at most a quarter of them.
func (u *userConns) admitConn(uid int) (done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all >= maxConns || !isHostUser(uid) && u.open[uid] >= maxConns/4 {
		return nil, bailey.Unavailable.Errorf("try again later",
			"the host serves %d connections already, of which %d are of this user", u.all, u.open[uid])
	}
	if u.open == nil {
		u.open = map[int]int{}
	}
	u.all++
	u.open[uid]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.all--
		if u.open[uid]--; u.open[uid] == 0 {
			delete(u.open, uid)
		}
	}, nil
}

func (u *userConns) countAll() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all
}

// sendAnswer sends the last frame of a connection.
func sendAnswer(conn *peer.Conn, result any, err error) {
	if err == nil {
		err = conn.WriteJSON(localapi.FrameResult, result)
		if bailey.KindOf(err) != bailey.Invalid {
			return // the client is gone
		}
	}
	conn.WriteJSON(localapi.FrameError, localapi.NewFailure(err))
}

// serveConn serves the one operation of a connection. The operation is cancelled if the client closes the connection.
func (h *Host) serveConn(ctx context.Context, conn *peer.Conn, handlers map[string]handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn.SetReadDeadline(time.Now().Add(queryTime))
	q, err := readQuery(conn)
	if err != nil {
		sendAnswer(conn, nil, err)
		return
	}
	conn.SetReadDeadline(time.Time{})
	if q.Verb == hostapi.StopVerb {
		if !isHostUser(conn.UID) {
			sendAnswer(conn, nil, bailey.Denied.New("only root and the user of the host may stop it",
				"ask the administrator of this machine"))
			return
		}
		sendAnswer(conn, hostapi.None{}, nil)
		h.end(errStopped)
		return
	}
	c := caller{q.Owner, conn.UID}
	if err := c.checkNames(); err != nil {
		sendAnswer(conn, nil, err)
		return
	}
	if q.Verb == hostapi.ExecVerb {
		exit, err := h.serveExec(ctx, conn, c, q.Request)
		sendAnswer(conn, exit, err)
		return
	}
	do, ok := handlers[q.Verb]
	if !ok {
		sendAnswer(conn, nil, bailey.Invalid.Errorf("update bailey-host",
			"this host does not know the operation %.40q", q.Verb))
		return
	}
	go func() { // a client sends nothing more, so this returns when it closes the connection
		conn.ReadFrame()
		cancel()
	}()
	result, err := do(ctx, c, q.Request)
	sendAnswer(conn, result, err)
	if made, ok := result.(hostapi.Sandbox); ok && err == nil && q.Verb == hostapi.Create.Verb {
		h.attendBox(ctx, made.ID)
	}
}

// attendBox waits until the client of an attended sandbox closes the connection, and destroys the sandbox.
func (h *Host) attendBox(ctx context.Context, id string) {
	h.mu.Lock()
	b := h.boxes[id]
	h.mu.Unlock()
	if b == nil || !b.recordNow().Attended {
		return
	}
	<-ctx.Done()
	err := h.destroyBox(context.WithoutCancel(ctx), b)
	if err != nil && bailey.KindOf(err) != bailey.NotFound {
		h.Log.Error("an attended sandbox cannot be destroyed", "sandbox", id, "error", err)
	}
}

// isHostUser reports whether a client is root or runs as the user of the host, which can end the host anyway.
func isHostUser(uid int) bool { return uid == 0 || uid == os.Geteuid() }

func readQuery(conn *peer.Conn) (q hostapi.Query, err error) {
	kind, b, err := conn.ReadFrame()
	switch {
	case err != nil:
		return q, bailey.Invalid.Wrap(err, "the connection has no query", "")
	case kind != localapi.FrameQuery:
		return q, bailey.Invalid.Errorf("", "the first frame has the kind %q", kind)
	}
	var version struct{ Protocol int }
	if json.Unmarshal(b, &version) == nil && version.Protocol != hostapi.Protocol {
		return q, bailey.Unavailable.Errorf("stop the old bailey-host; the next operation starts the new one",
			"the host speaks version %d of the protocol, the client version %d", hostapi.Protocol, version.Protocol)
	}
	return q, decodeRequest(b, &q)
}
