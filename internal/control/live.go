package control

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// Topics of the events for open pages. An event says only that something of its topic has changed, and the page loads
// itself again: what a person may see is decided in one place.
const (
	topicApprovals  = "approvals"
	topicReceipts   = "receipts"
	topicHosts      = "hosts"
	topicSandboxes  = "sandboxes"
	topicOperations = "operations"
)

// liveEvents tells open pages what has changed.
type liveEvents struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	ended     bool
}

// listener is one open page.
type listener struct {
	organisation, account string
	changed               map[string]bool // topics that it was not told yet
	wake                  chan struct{}   // holds one value if there are any, or it must end
	end                   bool
}

// maxListeners is how many pages of an account can be open at the same time.
const maxListeners = 20

// announceTopics tells the open pages of an organisation that something of these topics has changed. It does not wait.
func (l *liveEvents) announceTopics(organisation string, topics ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.listeners {
		if one.organisation != organisation {
			continue
		}
		for _, t := range topics {
			one.changed[t] = true
		}
		one.notifyPage()
	}
}

func (l *listener) notifyPage() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// endAll ends the events of all pages: the server stops.
func (l *liveEvents) endAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for one := range l.listeners {
		one.end = true
		one.notifyPage()
	}
}

// addListener adds an open page. The caller must call removeListener.
func (l *liveEvents) addListener(organisation, account string) (*listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, bailey.Unavailable.New("the server stops", "open the page again")
	}
	open := 0
	for one := range l.listeners {
		if one.account == account {
			open++
		}
	}
	if open >= maxListeners {
		return nil, bailey.Conflict.Errorf("close some of them", "you have %d pages open", open)
	}
	if l.listeners == nil {
		l.listeners = map[*listener]struct{}{}
	}
	one := &listener{organisation: organisation, account: account, changed: map[string]bool{}, wake: make(chan struct{}, 1)}
	l.listeners[one] = struct{}{}
	return one, nil
}

func (l *liveEvents) removeListener(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners, one)
}

// takeChanges returns the topics that a page was not told yet, and whether its events end.
func (l *liveEvents) takeChanges(one *listener) (topics []string, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	topics = slices.Sorted(maps.Keys(one.changed))
	clear(one.changed)
	return topics, one.end
}

// Limits of a stream of events.
const (
	liveHeartbeat = 15 * time.Second // a proxy must not take it for dead
	liveWrite     = 10 * time.Second // a browser that does not read for so long is disconnected
)

func (s *Server) liveRoutes() {
	s.broken.limit = auth.Limiter{PerSecond: 0.2, Burst: 20, Now: s.Now}
	addPage(s, "POST", reportPath, "report-policy", Access{Open: true}, s.takeReport)
	a := Access{Role: store.Member, People: true, Unattended: true}
	addPage(s, "GET", consoleRoot+"/live", "live", a, func(w http.ResponseWriter, r *http.Request, c *Caller) error {
		return s.streamEvents(w, r, c, a)
	})
	s.routes[len(s.routes)-1].Stream = true
}

// streamEvents sends events (WHATWG HTML, server-sent events) until the browser leaves, or the session or the role ends:
// both are checked before each event and each heartbeat. Events that a browser has missed are not sent again. It loads
// the page anew when it connects again, so the header Last-Event-ID is not read.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request, c *Caller, a Access) error {
	one, err := s.live.addListener(r.PathValue(ofOrganisation), c.Account.ID)
	if err != nil {
		return err
	}
	defer s.live.removeListener(one)
	control := http.NewResponseController(w)
	write := func(text string) error {
		if err := control.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil {
			return err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return control.Flush()
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return bailey.Unavailable.Wrap(err, "this connection cannot carry events", "")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if write("retry: 2000\n\n") != nil {
		return nil
	}
	heartbeat := time.NewTicker(liveHeartbeat)
	defer heartbeat.Stop()
	for {
		var topics []string
		var end bool
		select {
		case <-r.Context().Done():
			return nil
		case <-heartbeat.C:
		case <-one.wake:
			topics, end = s.live.takeChanges(one)
		}
		if _, err := s.admitCaller(r, a); err != nil || end {
			return nil
		}
		text := ": heartbeat\n\n"
		if len(topics) > 0 {
			text = ""
		}
		for _, t := range topics {
			text += fmt.Sprintf("event: %s\ndata: {}\n\n", t)
		}
		if write(text) != nil {
			return nil
		}
	}
}
