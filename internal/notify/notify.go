// Package notify tells people that a question is open, so that they need not watch a terminal. It accepts no answers: a
// person answers the text that bailey approvals show prints.
//
// There are two ways, which settings turn on: the desktop of the user who runs the gateway, and a webhook. Neither
// delays a call. Each way has a queue of at most [MaxWaiting] messages and sends them one after the other. If the queue
// is full, the oldest message about a settled question is dropped and counted, or else the oldest message. A message
// that cannot be sent is logged and counted.
//
// # The webhook
//
// A message is a POST of JSON. Fields without a value are omitted; clients must ignore fields that they do not know.
//
//	{"type": "question.open",           or question.settled, or test
//	 "timestamp": "2026-11-22T12:00:00Z",
//	 "text": "…",                       one line for a person, in a form for chats, without text from an agent
//	 "id": "a-…", "capability": "git.push", "agent": "local",
//	 "inputs": "ref=\"main\" …",        redacted, shortened if long
//	 "reasons": ["…"], "impact": "mutating, externallyReversible",
//	 "wants": {"count": 1, "roles": ["sre"], "level": "signed-touch"},
//	 "expires": "…", "digest": "…",     digest of the text to answer
//	 "howTo": "bailey approvals show a-…; bailey approve a-…",
//	 "reason": "granted by ada"}        if settled
//
// It is signed according to Standard Webhooks 1.0 (https://www.standardwebhooks.com), with a symmetric key:
//
//	webhook-id: ID                      the same if a message is sent again
//	webhook-timestamp: SECONDS          since 1970, of this attempt
//	webhook-signature: v1,BASE64        HMAC-SHA-256 with the key over ID "." SECONDS "." the body as sent
//
// A receiver should verify the signature before it reads the body, refuse a timestamp that is minutes away, and accept
// an id once. A key is whsec_ followed by base64 of 24 to 64 bytes.
//
// The target must be https, or http on this machine. The address is checked when the connection is made: link-local
// addresses, cloud metadata services and multicast are refused, and with http all except loopback. Redirects and
// proxies are not used. An attempt may take five seconds. If the status is 5xx or 429, or no answer arrives, two more
// attempts follow. Of a response only the status code is read. Errors contain only scheme and host of the target,
// because the rest may be a secret.
package notify

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync"
	"time"

	"bailey"
)

// MaxWaiting limits the queued messages of each way.
const MaxWaiting = 64

// Tries is the number of attempts to post a message, including the first.
const Tries = 3

// Config says how people are notified. Without Settings no message is sent; without Key no webhook is called.
type Config struct {
	Settings func() Settings     // current settings; called for every message
	Key      func() (Key, error) // key that the webhook's receiver knows
	Log      *slog.Logger        // nil discards
	Now      func() time.Time    // nil is time.Now
	Path     string              // search path for notify-send; "" means the usual one
	Bus      string              // address of the session bus; "" means from the environment or the usual socket
	Roots    *x509.CertPool      // to verify a webhook; nil means the system's
	Pauses   []time.Duration     // between attempts; nil is 1 s and 5 s
	Patience time.Duration       // for one attempt, from name resolution to the status code; zero is 5 s
}

// Settings says which ways are on. The zero value turns all off.
type Settings struct {
	Desktop bool
	Webhook bailey.Secret // a URL; "" turns it off
}

// Sender has a queue of messages for each way. It is safe for concurrent use.
type Sender struct {
	c    Config
	ways []*deliveryQueue
}

// deliveryQueue is one queue. Whether and how to send is decided for each message.
type deliveryQueue struct {
	name  string
	on    func(Settings) bool
	where func(Settings) string
	send  func(ctx context.Context, s Settings, m Message, tries int) (string, error)
	takes func(Message) bool

	wake chan struct{} // one slot
	mu   sync.Mutex    // guards the following
	list []Message
	told State
}

// State is the state of a way.
type State struct {
	Way     string    `json:"way"`
	Where   string    `json:"where,omitempty"`
	Absent  string    `json:"absent,omitempty"` // why it cannot reach a person here
	Waiting int       `json:"waiting"`
	Sent    uint64    `json:"sent"`
	Failed  uint64    `json:"failed"`
	Dropped uint64    `json:"dropped"`
	Last    string    `json:"last,omitempty"` // why the newest message failed, if it did
	At      time.Time `json:"at,omitzero"`    // when
}

// New returns a Sender. It starts nothing: [Sender.Run] sends.
func New(c Config) *Sender {
	if c.Settings == nil {
		c.Settings = func() Settings { return Settings{} }
	}
	if c.Key == nil {
		c.Key = func() (Key, error) {
			return Key{}, bailey.Unavailable.New("there is no key to sign with", "")
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Pauses == nil {
		c.Pauses = []time.Duration{time.Second, 5 * time.Second}
	}
	if c.Patience <= 0 {
		c.Patience = 5 * time.Second
	}
	post, show := newWebhook(c), newDesktop(c)
	return &Sender{c: c, ways: []*deliveryQueue{
		{
			name: "desktop", wake: make(chan struct{}, 1), on: func(s Settings) bool { return s.Desktop },
			where: func(Settings) string { return "" },
			takes: func(m Message) bool { return m.Type != Settled }, // a settled question needs no attention
			send: func(ctx context.Context, _ Settings, m Message, _ int) (string, error) {
				return show.sendMessage(ctx, m)
			},
		},
		{
			name: "webhook", wake: make(chan struct{}, 1),
			on:    func(s Settings) bool { return s.Webhook.Reveal() != "" },
			where: func(s Settings) string { return Where(s.Webhook.Reveal()) },
			takes: func(Message) bool { return true },
			send: func(ctx context.Context, s Settings, m Message, tries int) (string, error) {
				return post.sendMessage(ctx, s.Webhook.Reveal(), m, tries)
			},
		},
	}}
}

// Tell queues the message that a question is [Open], or [Settled] and why. It does not block.
func (s *Sender) Tell(kind string, q bailey.Question, reason string) {
	now := s.c.Settings()
	m := newMessage(kind, q, reason, s.c.Now())
	for _, w := range s.ways {
		if w.on(now) && w.takes(m) {
			w.pushMessage(m)
		}
	}
}

// pushMessage adds a message. If the queue is full, it drops the oldest message about a settled question, or else the
// oldest message.
func (w *deliveryQueue) pushMessage(m Message) {
	w.mu.Lock()
	if len(w.list) == MaxWaiting {
		n := max(0, slices.IndexFunc(w.list, func(o Message) bool { return o.Type == Settled }))
		w.list = slices.Delete(w.list, n, n+1)
		w.told.Dropped++
	}
	w.list = append(w.list, m)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *deliveryQueue) popMessage() (m Message, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 {
		return m, false
	}
	m = w.list[0]
	w.list = append(w.list[:0], w.list[1:]...)
	return m, true
}

// Run sends until ctx ends. Messages that are still queued then are logged and not sent.
func (s *Sender) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, w := range s.ways {
		all.Go(func() { s.deliverQueue(ctx, w) })
	}
	all.Wait()
	return nil
}

func (s *Sender) deliverQueue(ctx context.Context, w *deliveryQueue) {
	for {
		select {
		case <-ctx.Done():
			if n := w.currentState().Waiting; n > 0 {
				s.c.Log.Warn("messages about questions were not sent: the gateway stops", "way", w.name, "messages", n)
			}
			return
		case <-w.wake:
		}
		for m, ok := w.popMessage(); ok && ctx.Err() == nil; m, ok = w.popMessage() {
			s.sendOne(ctx, w, m)
		}
	}
}

// sendOne sends a message, unless the way was turned off meanwhile.
func (s *Sender) sendOne(ctx context.Context, w *deliveryQueue, m Message) {
	now := s.c.Settings()
	if !w.on(now) {
		return
	}
	_, err := w.send(ctx, now, m, Tries)
	if w.recordResult(err, s.c.Now()); err != nil {
		s.c.Log.Error("no person was notified", "way", w.name, "message", m.Type, "question", m.ID, "err", err)
	}
}

func (w *deliveryQueue) recordResult(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.told.Sent++
		w.told.Last, w.told.At = "", time.Time{} // it works again; the number of failures is kept
		return
	}
	w.told.Failed++
	w.told.Last, w.told.At = err.Error(), now.UTC()
}

func (w *deliveryQueue) currentState() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.told
	st.Way, st.Waiting = w.name, len(w.list)
	return st
}

// States returns the states of the ways that are on.
func (s *Sender) States() []State {
	now, list := s.c.Settings(), []State{}
	for _, w := range s.ways {
		if !w.on(now) {
			continue
		}
		st := w.currentState()
		st.Where = w.where(now)
		if w.name == "desktop" {
			st.Absent = newDesktop(s.c).missingReason()
		}
		list = append(list, st)
	}
	return list
}

// Result is the result of testing one way.
type Result struct {
	Way  string `json:"way"`
	OK   bool   `json:"ok"`
	Said string `json:"said"` // the answer, or the reason for the failure
	Hint string `json:"hint,omitempty"`
}

// Try sends one test message by each way that is on and returns the results.
func (s *Sender) Try(ctx context.Context) []Result {
	now, list := s.c.Settings(), []Result{}
	for _, w := range s.ways {
		if !w.on(now) {
			continue
		}
		said, err := w.send(ctx, now, testMessage(s.c.Now()), 1)
		r := Result{Way: w.name, OK: err == nil, Said: said}
		if err != nil {
			r.Said, r.Hint = plainLine(err.Error(), maxReason), bailey.HintOf(err)
		}
		w.recordResult(err, s.c.Now())
		list = append(list, r)
	}
	return list
}
