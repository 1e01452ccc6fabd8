package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// This file routes decisions between people and gateways: questions and answers, what is stopped, and signed policies. A
// gateway verifies whatever permits a call itself, so nothing here needs to be believed: the server cannot answer a
// question, and cannot change a policy.

func (s *Server) decisionRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin := Access{Role: store.Member}, Access{Role: store.Admin}
	addRoute(s, "GET", one+"/approvals", "list-approvals", "The questions of the gateways", member, s.listApprovals)
	addRoute(s, "GET", one+"/approvals/{id}", "show-approval", "A question, with the text that an answer binds",
		member, s.showApproval)
	addRoute(s, "POST", one+"/approvals/{id}/answer", "answer-approval",
		"Answer a question: its gateway verifies the signature of a grant", member, s.answerApproval)
	addRoute(s, "GET", one+"/stops", "list-stops", "The agents and hosts that are stopped, or were", member, s.listStops)
	addRoute(s, "POST", one+"/stops", "add-stop", "Stop an agent, a host, or all gateways", admin, s.addStop)
	addRoute(s, "DELETE", one+"/stops/{id}", "end-stop", "Resume what is stopped", admin, s.endStop)
	addRoute(s, "GET", one+"/bundles", "list-bundles", "The signed policies, and their state on each gateway",
		member, s.listBundles)
	addRoute(s, "POST", one+"/bundles", "add-bundle", "Offer a signed policy to gateways", admin, s.addBundle)
	s.Hosts.OnEvent(fleet.ApprovalAsked, s.storeQuestion)
	s.Hosts.OnEvent(fleet.ApprovalDecided, s.storeDecision)
	s.Hosts.OnEvent(fleet.BundleState, s.storeBundleState)
	s.Hosts.OnEvent(fleet.PolicyState, s.storePolicyState)
	for _, kind := range []string{fleet.ApprovalAsked, fleet.ApprovalDecided} {
		s.Hosts.AfterEvent(kind, func(ctx context.Context, h store.Host, e fleet.Event) {
			s.news.announceChange(h.Organisation)
			s.live.announceTopics(h.Organisation, topicApprovals)
			if e.Kind == fleet.ApprovalAsked {
				go s.tellMembers(context.WithoutCancel(ctx), h, e)
			}
		})
	}
	s.Hosts.OnConnect(func(ctx context.Context, h store.Host) {
		if h.Kind == store.Gateway {
			s.sendOrders(ctx, h)
			s.offerBundle(ctx, h)
		}
	})
}

// announcer tells waiting requests that the questions of an organisation have changed.
type announcer struct {
	mu      sync.Mutex
	changed map[string]chan struct{}
	version map[string]int64
}

func (a *announcer) announceChange(organisation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.changed[organisation]; c != nil {
		close(c)
		delete(a.changed, organisation)
	}
	if a.version == nil {
		a.version = map[string]int64{}
	}
	a.version[organisation] = max(a.version[organisation]+1, time.Now().UnixMicro())
}

// watchChanges returns the version of the questions, and a channel that is closed when it changes.
func (a *announcer) watchChanges(organisation string) (int64, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = map[string]chan struct{}{}
	}
	if a.changed[organisation] == nil {
		a.changed[organisation] = make(chan struct{})
	}
	return a.version[organisation], a.changed[organisation]
}

// maxDrift is how far the times of a question may be from the server's clock.
const maxDrift = 365 * 24 * time.Hour

// checkAsked refuses a question whose list entry could deceive: the text must be that of the digest. Its times must be
// near the present.
func checkAsked(body []byte, now time.Time) (a fleet.Asked, err error) {
	if len(body) > maxBody {
		return a, bailey.Invalid.New("the question is too large", "")
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, bailey.Invalid.Wrap(err, "the question cannot be read", "")
	}
	if a.ID == "" || len(a.ID) > 40 || a.Digest != store.Hash(a.Text) || a.Expires.IsZero() || a.At.IsZero() {
		return a, bailey.Invalid.New("the question is malformed: its digest is not that of its text, or a part is missing",
			"use versions that understand each other")
	}
	for _, t := range []time.Time{a.At, a.Expires} {
		if t.Before(now.Add(-maxDrift)) || t.After(now.Add(maxDrift)) {
			return a, bailey.Invalid.New("the times of the question are more than a year from now",
				"set the clock of the gateway")
		}
	}
	return a, nil
}

func (s *Server) storeQuestion(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	a, err := checkAsked(e.Body, s.Now())
	if err != nil {
		return err
	}
	return s.Store.AskQuestion(ctx, tx, h, store.Question{ID: string(a.ID), Asked: a.At, Expires: a.Expires, Body: e.Body,
		Agent: indexText(a.Agent), Capability: indexText(a.Capability)})
}

func (s *Server) storeDecision(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	var d fleet.Decided
	if err := json.Unmarshal(e.Body, &d); err != nil || len(d.Reason) > maxBody {
		return bailey.Invalid.Wrap(err, "the decision cannot be read", "")
	}
	state := store.QuestionDenied
	if d.Granted {
		state = store.QuestionGranted
	}
	return s.Store.DecideQuestion(ctx, tx, h.ID, string(d.ID), state, d.Reason)
}

// approvalItem is a question in a list. The text is only in the answer to show-approval.
type approvalItem struct {
	store.Question
	HostName   string            `json:"hostName"`
	Agent      string            `json:"agent"`
	For        string            `json:"for,omitempty" doc:"the person for whom the agent works"`
	Capability string            `json:"capability"`
	Impact     string            `json:"impact"`
	Rules      []fleet.AskedRule `json:"rules" nullable:"false"`
	Roles      []string          `json:"roles,omitempty" doc:"each approver needs all of them"`
	Count      int               `json:"count" doc:"how many approvers are needed"`
	Level      string            `json:"level,omitempty"`
	Digest     string            `json:"digest" doc:"SHA-256 of the text: the challenge for a passkey"`
	Text       string            `json:"text,omitempty" doc:"what an answer binds"`
	Preview    string            `json:"preview,omitempty"`
	Pages      bool              `json:"pages" doc:"whether the gateway accepts passkeys on pages of this server"`
}

func newApprovalItem(q store.Question, names map[string]string, whole bool) approvalItem {
	var a fleet.Asked
	json.Unmarshal(q.Body, &a) // checkAsked has read it
	i := approvalItem{Question: q, HostName: names[q.Host], Agent: a.Agent, For: a.Person, Capability: string(a.Capability),
		Impact: a.Impact, Rules: a.Rules, Roles: a.Roles, Count: a.Count, Level: string(a.Level), Digest: a.Digest,
		Pages: a.Pages}
	if i.Rules == nil {
		i.Rules = []fleet.AskedRule{}
	}
	if whole {
		i.Text, i.Preview = a.Text, a.Preview
	}
	return i
}

func (s *Server) hostNames(ctx context.Context, organisation string) (map[string]string, error) {
	all, err := s.Store.Hosts(ctx, organisation)
	names := map[string]string{}
	for _, h := range all {
		names[h.ID] = h.Name
	}
	return names, err
}

// waitForNews is how long a list waits for a change at most.
const waitForNews = 25 * time.Second

type approvalList struct {
	Version int64          `json:"version" doc:"pass it as since to wait for a change"`
	Items   []approvalItem `json:"items" nullable:"false"`
}

func (s *Server) listApprovals(ctx context.Context, _ *Caller, in *struct {
	InOrganisation
	State string `query:"state" enum:"open,granted,denied,expired" doc:"only those; default: all"`
	Since int64  `query:"since" doc:"wait up to 25 s until there is another version"`
}) (*output[approvalList], error) {
	version, changed := s.news.watchChanges(in.Organisation)
	if in.Since != 0 && in.Since == version {
		select {
		case <-changed:
		case <-time.After(waitForNews):
		case <-ctx.Done():
		}
		version, _ = s.news.watchChanges(in.Organisation)
	}
	all, err := s.Store.Questions(ctx, in.Organisation, store.QuestionFilter{State: in.State})
	if err != nil {
		return nil, err
	}
	names, err := s.hostNames(ctx, in.Organisation)
	out := answerWith(approvalList{Version: version, Items: []approvalItem{}})
	for _, q := range all {
		out.Body.Items = append(out.Body.Items, newApprovalItem(q, names, false))
	}
	return out, err
}

func (s *Server) showApproval(ctx context.Context, _ *Caller, in *InOrganisationByID) (*output[approvalItem], error) {
	q, err := s.Store.QuestionByID(ctx, in.Organisation, in.ID)
	if err != nil {
		return nil, err
	}
	names, err := s.hostNames(ctx, in.Organisation)
	return answerWith(newApprovalItem(q, names, true)), err
}

// answered is what the gateway says about an answer.
type answered struct {
	Settled bool     `json:"settled"`
	Granted bool     `json:"granted"`
	Names   []string `json:"names,omitempty" doc:"whose grants count"`
	Count   int      `json:"count" doc:"how many are needed"`
}

// answerInput is an answer to a question.
type answerInput struct {
	InOrganisationByID
	Body AnswerBody
}

// AnswerBody is the body of an answer.
type AnswerBody struct {
	Grant     bool   `json:"grant"`
	Digest    string `json:"digest,omitempty" maxLength:"64" doc:"of the text that was answered"`
	Signature string `json:"signature,omitempty" maxLength:"10000" doc:"of a grant: SSHSIG, or the answer of a passkey"`
	Reason    string `json:"reason,omitempty" maxLength:"500" doc:"of a denial"`
}

// answerApproval relays an answer. A grant counts by its signature, whose key the gateway knows with its roles, so every
// member may send one. A denial needs no signature, so it needs an admin.
func (s *Server) answerApproval(ctx context.Context, c *Caller, in *answerInput) (*output[answered], error) {
	q, err := s.Store.QuestionByID(ctx, in.Organisation, in.ID)
	switch {
	case err != nil:
		return nil, err
	case !in.Body.Grant && c.Role < store.Admin:
		return nil, bailey.Denied.New("only an admin may deny a question here", "answer it on the gateway's machine")
	case in.Body.Grant && (in.Body.Signature == "" || in.Body.Digest == ""):
		return nil, bailey.Invalid.New("a grant must be signed, and name the digest of the text", "")
	case q.State != store.QuestionOpen && in.Body.Grant:
		return nil, bailey.Conflict.Errorf("list the open questions", "the question is %s", q.State)
	case !s.Hosts.Connected(q.Host):
		return nil, bailey.Unavailable.New("the gateway that asks is not connected, so it cannot take the answer now",
			"answer again when it is connected, or on its machine: bailey approve "+q.ID)
	}
	body, err := json.Marshal(fleet.Answer{Question: bailey.ApprovalID(q.ID), Digest: in.Body.Digest, Grant: in.Body.Grant,
		Signature: in.Body.Signature, Reason: in.Body.Reason, Person: cmp.Or(c.Account.Name, c.Account.Email)})
	if err != nil {
		return nil, err
	}
	result, err := s.Hosts.Send(ctx, in.Organisation, q.Host, fleet.ApprovalAnswer, body)
	if err != nil {
		return nil, err
	}
	out := answerWith(answered{})
	return out, json.Unmarshal(result, &out.Body)
}

func (s *Server) listStops(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[store.Stop]], error) {
	all, err := s.Store.Stops(ctx, in.Organisation)
	return answerWith(list[store.Stop]{Items: all}), err
}

func (s *Server) addStop(ctx context.Context, c *Caller, in *inOrganisationWith[struct {
	Host   string `json:"host,omitempty" maxLength:"40" doc:"the id of a gateway; without it all of them"`
	Agent  string `json:"agent,omitempty" maxLength:"100" doc:"an agent; without it every call"`
	Reason string `json:"reason" minLength:"1" maxLength:"200"`
}]) (*output[store.Stop], error) {
	p, err := s.Store.AddStop(ctx, in.Organisation, store.Stop{Host: in.Body.Host, Agent: in.Body.Agent,
		Reason: in.Body.Reason, Person: c.Account.Email})
	if err == nil {
		err = s.orderAll(ctx, in.Organisation)
	}
	return answerWith(p), err
}

func (s *Server) endStop(ctx context.Context, c *Caller, in *InOrganisationByID) (*nothing, error) {
	err := s.Store.EndStop(ctx, in.Organisation, in.ID, c.Account.Email)
	if err == nil {
		err = s.orderAll(ctx, in.Organisation)
	}
	return nil, err
}

// toAll does something for each gateway that is connected, without waiting for it. Others get it when they connect.
func (s *Server) toAll(ctx context.Context, organisation string, f func(context.Context, store.Host)) error {
	all, err := s.Store.Hosts(ctx, organisation)
	for _, h := range all {
		if h.Kind == store.Gateway && s.Hosts.Connected(h.ID) {
			go f(context.WithoutCancel(ctx), h)
		}
	}
	return err
}

func (s *Server) orderAll(ctx context.Context, organisation string) error {
	return s.toAll(ctx, organisation, s.sendOrders)
}

// sendOrders tells a gateway all that is stopped on it. If that fails, it is told when it connects again.
func (s *Server) sendOrders(ctx context.Context, h store.Host) {
	revision, stops, err := s.Store.StopsOf(ctx, h)
	if err == nil && revision == 0 {
		return // nothing was ever stopped
	}
	kind, o := fleet.Unkill, fleet.Orders{Revision: revision, Kills: []fleet.Order{}}
	for _, p := range stops {
		kind = fleet.Kill
		o.Kills = append(o.Kills, fleet.Order{ID: p.ID, Agent: p.Agent, Reason: p.Reason, Person: p.Person, At: p.Created})
	}
	if err == nil {
		err = s.sendJSON(ctx, h, kind, o)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Error("a gateway was not told what is stopped; it is told when it connects again", "host", h.ID, "error", err)
	}
}

func (s *Server) sendJSON(ctx context.Context, h store.Host, kind string, v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		_, err = s.Hosts.Send(ctx, h.Organisation, h.ID, kind, body)
	}
	return err
}

type bundleItem struct {
	store.Bundle
	States []bundleState `json:"states" nullable:"false" doc:"of the gateways whose last offered bundle it is"`
}

type bundleState struct {
	Host    string    `json:"host"`
	Name    string    `json:"name"`
	Changed time.Time `json:"changed"`
	fleet.BundleResult
}

func (s *Server) listBundles(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[bundleItem]], error) {
	all, err := s.Store.Bundles(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	states, err := s.Store.BundleStates(ctx, in.Organisation)
	if err != nil {
		return nil, err
	}
	names, err := s.hostNames(ctx, in.Organisation)
	out := answerWith(list[bundleItem]{Items: []bundleItem{}})
	for _, b := range all {
		i := bundleItem{b, []bundleState{}}
		for _, st := range states {
			one := bundleState{Host: st.Host, Name: names[st.Host], Changed: st.Changed}
			if err := json.Unmarshal(st.Body, &one.BundleResult); err == nil && one.Serial == b.Serial {
				i.States = append(i.States, one)
			}
		}
		out.Body.Items = append(out.Body.Items, i)
	}
	return out, err
}

func (s *Server) addBundle(ctx context.Context, c *Caller, in *inOrganisationWith[struct {
	Serial    int64              `json:"serial" minimum:"1" doc:"higher than all before it; it is signed"`
	Files     []fleet.BundleFile `json:"files" minItems:"1" maxItems:"200"`
	Signature string             `json:"signature" minLength:"1" maxLength:"10000" doc:"SSHSIG in the namespace bundle@bailey"`
	Hosts     []string           `json:"hosts,omitempty" maxItems:"1000" doc:"ids of gateways; without it all of them"`
}]) (*output[bundleItem], error) {
	b := fleet.Bundle{Serial: uint64(in.Body.Serial), Files: in.Body.Files, Signature: in.Body.Signature}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	added, err := s.Store.AddBundle(ctx, in.Organisation, store.Bundle{Serial: b.Serial, Hosts: in.Body.Hosts,
		Person: c.Account.Email, Body: text})
	if err == nil {
		err = s.toAll(ctx, in.Organisation, s.offerBundle)
	}
	return answerWith(bundleItem{added, []bundleState{}}), err
}

// offerBundle offers a gateway the newest bundle that is for it. A gateway that has it already changes nothing.
func (s *Server) offerBundle(ctx context.Context, h store.Host) {
	b, err := s.Store.BundleFor(ctx, h)
	if errors.Is(err, bailey.NotFound) {
		return
	}
	if err == nil {
		_, err = s.Hosts.Send(ctx, h.Organisation, h.ID, fleet.BundleOffer, b.Body)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Error("a gateway was not offered its policy; it is offered when it connects again", "host", h.ID, "error", err)
	}
}

func (s *Server) storeBundleState(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	var r fleet.BundleResult
	if err := json.Unmarshal(e.Body, &r); err != nil || len(e.Body) > maxBody {
		return bailey.Invalid.Wrap(err, "the state of a bundle cannot be read", "")
	}
	return s.Store.SetBundleState(ctx, tx, h.ID, e.Body)
}
