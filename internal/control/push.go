package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"bailey"
	"bailey/internal/console"
	"bailey/internal/fleet"
	"bailey/internal/store"
	"bailey/internal/webpush"
)

// This file tells members of questions by web push. A notice has the link to the question and nothing of its content: it
// passes a push service, and can be seen on a locked screen.

func (s *Server) pushRoutes() {
	people := Access{People: true}
	addRoute(s, "GET", "/api/v1/me/push", "list-push", "The devices of the account with notices, and the key for a new one",
		people, s.listPush)
	addRoute(s, "POST", "/api/v1/me/push", "add-push", "Have a browser told of questions", people, s.addPush)
	addRoute(s, "DELETE", "/api/v1/me/push/{id}", "remove-push", "End the notices of a browser", people, s.removePush)
	addPage(s, "GET", "/account/notices", "notices-page", people, s.showNotices)
	s.mux.HandleFunc("GET /service-worker.js", func(w http.ResponseWriter, r *http.Request) {
		data, kind := console.File("service-worker.js")
		w.Header().Set("Content-Type", kind)
		w.Write(data)
	})
	s.mux.HandleFunc("GET /manifest.webmanifest", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/manifest+json")
		w.Write(console.Manifest())
	})
}

// pushList is the answer to list-push.
type pushList struct {
	Key   string                   `json:"key" doc:"the applicationServerKey of subscriptions, in base64url"`
	Items []store.PushSubscription `json:"items" nullable:"false"`
}

// pushKey returns the key of web push, which is made when it is needed first.
func (s *Server) pushKey(ctx context.Context) (webpush.Key, error) {
	sealed, err := s.Store.PushKey(ctx)
	if err == nil && sealed == "" {
		sealed, err = s.addPushKey(ctx)
	}
	if err != nil {
		return webpush.Key{}, err
	}
	text, err := s.Keys.Open(store.PushKeySealedAs, sealed)
	if err != nil {
		s.Log.Error("the key of web push cannot be opened", "error", err)
		return webpush.Key{}, bailey.Unavailable.New("notices cannot be sent at the moment", "see bailey-server doctor")
	}
	return webpush.ParseKey(text)
}

func (s *Server) addPushKey(ctx context.Context) (sealed string, err error) {
	key, err := webpush.NewKey()
	if err != nil {
		return "", err
	}
	text, err := key.Text()
	if err == nil {
		sealed, err = s.Keys.Seal(store.PushKeySealedAs, text)
	}
	if err != nil {
		return "", err
	}
	return s.Store.AddPushKey(ctx, sealed)
}

func (s *Server) listPush(ctx context.Context, c *Caller, _ *nothing) (*output[pushList], error) {
	key, err := s.pushKey(ctx)
	if err != nil {
		return nil, err
	}
	public, err := key.Public()
	if err != nil {
		return nil, err
	}
	all, err := s.Store.PushSubscriptions(ctx, c.Account.ID)
	return answerWith(pushList{public, all}), err
}

// NewPush is a subscription as a browser returns it.
type NewPush struct {
	Endpoint string `json:"endpoint" maxLength:"1000"`
	Keys     struct {
		P256DH string `json:"p256dh" maxLength:"100"`
		Auth   string `json:"auth" maxLength:"100"`
	} `json:"keys"`
}

func (s *Server) addPush(ctx context.Context, c *Caller, in *body[NewPush]) (*output[store.PushSubscription], error) {
	b := in.Body
	if err := (webpush.Subscription{Endpoint: b.Endpoint, Keys: webpush.Keys(b.Keys)}).Check(s.PushClient != nil); err != nil {
		return nil, err
	}
	p, err := s.Store.AddPushSubscription(ctx, store.PushSubscription{Account: c.Account.ID, Endpoint: b.Endpoint,
		P256DH: b.Keys.P256DH, Auth: b.Keys.Auth, Client: c.Client})
	return answerWith(p), err
}

func (s *Server) removePush(ctx context.Context, c *Caller, in *byID) (*nothing, error) {
	return nil, s.Store.RemovePushSubscription(ctx, c.Account.ID, in.ID)
}

type noticesPage struct {
	console.Frame
	pushList
}

func (s *Server) showNotices(w http.ResponseWriter, r *http.Request, c *Caller) error {
	out, err := s.listPush(r.Context(), c, &nothing{})
	if err == nil {
		s.writePage(w, "notices", http.StatusOK, noticesPage{console.Frame{Title: "Notices", Account: c.Account.Name}, out.Body})
	}
	return err
}

// Limits of notices.
const (
	noticeLife    = 15 * time.Minute // a push service keeps it for so long
	noticeAge     = time.Minute      // a question that arrived before is not news, for example after a restart of its gateway
	noticeTimeout = 30 * time.Second
	noticesAtOnce = 8 // in all
)

// notices sends at most noticesAtOnce messages at the same time. What more questions ask waits, up to noticeTimeout.
type notices struct{ places chan struct{} }

// tellMembers tells the browsers of all members of a new question. How much a person is told is limited: a gateway can ask
// more than a person reads.
func (s *Server) tellMembers(ctx context.Context, h store.Host, e fleet.Event) {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	var a fleet.Asked
	if json.Unmarshal(e.Body, &a) != nil {
		return
	}
	q, err := s.Store.QuestionByID(ctx, h.Organisation, string(a.ID))
	if err != nil || q.State != store.QuestionOpen || s.Now().Sub(q.Arrived) > noticeAge {
		return
	}
	all, err := s.Store.PushSubscriptionsOf(ctx, h.Organisation)
	if err != nil || len(all) == 0 {
		return
	}
	if err := s.sendNotices(ctx, all, s.linkTo(h.Organisation, "/approvals/{id}", q.ID)); err != nil {
		s.Log.Warn("members are not told of a question", "question", q.ID, "error", err)
	}
}

// sendNotices sends a link to browsers, and removes those that have gone.
func (s *Server) sendNotices(ctx context.Context, all []store.PushSubscription, link string) error {
	key, err := s.pushKey(ctx)
	if err != nil {
		return err
	}
	message, err := json.Marshal(map[string]string{"url": link})
	if err != nil {
		return err
	}
	sender := &webpush.Sender{Key: key, Contact: s.Public.String(), HTTP: s.PushClient}
	var work sync.WaitGroup
	defer work.Wait()
	for _, p := range all {
		if s.noticeRate.AllowKey(p.ID) > 0 {
			continue
		}
		select {
		case s.notices.places <- struct{}{}:
		case <-ctx.Done():
			return bailey.Unavailable.New("too many notices wait", "")
		}
		work.Go(func() {
			defer func() { <-s.notices.places }()
			err := sender.Send(ctx, webpush.Subscription{Endpoint: p.Endpoint, Keys: webpush.Keys{P256DH: p.P256DH, Auth: p.Auth}},
				message, store.Hash(link)[:32], noticeLife)
			if errors.Is(err, webpush.ErrGone) {
				err = s.Store.RemovePushSubscription(ctx, p.Account, p.ID)
			}
			if err != nil && bailey.KindOf(err) != bailey.NotFound {
				s.Log.Warn("a notice was not sent", "account", p.Account, "error", err)
			}
		})
	}
	return nil
}
