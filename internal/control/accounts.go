package control

import (
	"context"
	"errors"
	"net/http"
	"net/mail"
	"strings"
	"time"
	"unicode"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// sessionLife is how long a session lasts.
const sessionLife = 14 * 24 * time.Hour

// cookieName is the name of the session cookie. Browsers accept the prefix __Host- only from https, and never from
// another host of the same domain.
func (s *Server) cookieName() string {
	if s.Public.Scheme == "https" {
		return "__Host-bailey"
	}
	return "bailey"
}

func (s *Server) sessionCookie(value string, expires time.Time) http.Cookie {
	c := http.Cookie{Name: s.cookieName(), Value: value, Path: "/", HttpOnly: true, Secure: s.Public.Scheme == "https",
		SameSite: http.SameSiteStrictMode, Expires: expires}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// NewAccount are the fields of a person who signs up.
type NewAccount struct {
	Token    string `json:"token" doc:"the token of the link" maxLength:"100"`
	Name     string `json:"name" minLength:"1" maxLength:"100"`
	Password string `json:"password" doc:"8 characters or more" maxLength:"100"`
}

// signedIn is the answer with a session.
type signedIn struct {
	Cookie http.Cookie `header:"Set-Cookie"`
	Body   struct {
		Account store.Account `json:"account"`
		Expires time.Time     `json:"expires"`
	}
}

type (
	nothing   struct{}
	setupBody struct {
		NewAccount
		Email        string `json:"email" maxLength:"254"`
		Organisation string `json:"organisation" minLength:"1" maxLength:"100"`
	}
	loginBody struct {
		Email    string `json:"email" maxLength:"254"`
		Password string `json:"password" maxLength:"100"`
	}
)

// body is an input that has only a body.
type body[T any] struct{ Body T }

// output is an answer that has only a body.
type output[T any] struct{ Body T }

func answerWith[T any](v T) *output[T] { return &output[T]{Body: v} }

// list is an answer with several items.
type list[T any] struct {
	Items []T `json:"items" nullable:"false"`
}

func (s *Server) accountRoutes() {
	open := Access{Open: true, Rate: Attempts}
	addRoute(s, "GET", "/api/v1/health", "health", "Whether the server and its database work",
		Access{Open: true}, s.checkHealth)
	addRoute(s, "POST", "/api/v1/setup", "setup", "Create the first account with the one-time link",
		Access{Open: true, Rate: Additions}, s.handleSetup)
	addRoute(s, "POST", "/api/v1/login", "login", "Sign in with a password", open, s.handleLogin)
	addRoute(s, "POST", "/api/v1/signup", "signup", "Accept an invitation with a new account",
		Access{Open: true, Rate: Additions}, s.handleSignup)
	people := Access{People: true}
	addRoute(s, "POST", "/api/v1/logout", "logout", "End this session", people, s.handleLogout)
	addRoute(s, "GET", "/api/v1/me", "me", "The account of the caller", Access{}, s.showAccount)
	addRoute(s, "PUT", "/api/v1/me/password", "set-password", "Change the password, and end all other sessions",
		Access{People: true, Rate: Attempts}, s.setPassword)
	addRoute(s, "GET", "/api/v1/me/sessions", "list-sessions", "The sessions of the account", people, s.listSessions)
	addRoute(s, "DELETE", "/api/v1/me/sessions/{id}", "end-session", "End a session of the account", people,
		s.endSession)
	addRoute(s, "DELETE", "/api/v1/me/sessions", "end-other-sessions", "End all sessions of the account but this one",
		people, s.endOtherSessions)
	addRoute(s, "POST", "/api/v1/invitations/accept", "accept-invitation",
		"Accept an invitation with this account", people, s.acceptInvitation)
}

type healthy struct {
	Version string `json:"version"`
}

func (s *Server) checkHealth(ctx context.Context, _ *Caller, _ *nothing) (*output[healthy], error) {
	return answerWith(healthy{s.Version}), s.Store.Ping(ctx)
}

// checkPerson validates a name, and an address unless it is "".
func checkPerson(name, email string) error {
	if err := checkName(name); err != nil { // also for forms, whose inputs no schema checks
		return err
	}
	if email == "" {
		return nil
	}
	return checkEmail(email)
}

// checkEmail accepts an address without a name, such as ann@example.com.
func checkEmail(email string) error {
	a, err := mail.ParseAddress(email)
	if err != nil || len(email) > 254 || a.Address != email || a.Name != "" || strings.ContainsFunc(email,
		func(c rune) bool { return c > unicode.MaxASCII }) {
		return bailey.Invalid.Errorf("write it like ann@example.com", "%q is not an e-mail address", email)
	}
	return nil
}

func (s *Server) handleSetup(ctx context.Context, c *Caller, in *body[setupBody]) (*signedIn, error) {
	b := in.Body
	if err := errors.Join(checkPerson(b.Name, ""), checkEmail(b.Email), checkName(b.Organisation)); err != nil {
		return nil, firstFault(err)
	}
	hash, err := s.Passwords.Hash(ctx, b.Password, b.Name, b.Email, b.Organisation)
	if err != nil {
		return nil, err
	}
	a, _, err := s.Store.Setup(ctx, store.Hash(b.Token), store.Account{Email: b.Email, Name: b.Name,
		Password: hash}, b.Organisation)
	if errors.Is(err, bailey.NotFound) {
		return nil, bailey.Denied.New("the link is not valid, or was used",
			"the server prints a new one when it starts, until there is an account")
	}
	if err != nil {
		return nil, err
	}
	return s.signIn(ctx, c, a)
}

// firstFault returns the first of several errors, so that a person corrects one thing at a time.
func firstFault(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		if _, is := err.(*bailey.Error); !is {
			return several.Unwrap()[0]
		}
	}
	return err
}

// signIn begins a session.
func (s *Server) signIn(ctx context.Context, c *Caller, a store.Account) (*signedIn, error) {
	if c.Replaces != "" { // the browser has one session, and a token that was fixed before is of no use
		if err := s.Store.EndSessionByHash(ctx, c.Replaces); err != nil {
			return nil, err
		}
	}
	token := auth.NewToken(auth.SessionToken)
	address := ""
	if c.Address.IsValid() {
		address = c.Address.String()
	}
	n, err := s.Store.AddSession(ctx, store.Session{Account: a.ID, Expires: s.Now().Add(sessionLife),
		Address: address, Client: c.Client},
		store.Hash(token))
	if err != nil {
		return nil, err
	}
	c.Account, c.Session = a, n.ID
	out := &signedIn{Cookie: s.sessionCookie(token, n.Expires)}
	out.Body.Account, out.Body.Expires = a, n.Expires
	return out, nil
}

// handleLogin answers every failure in the same way and in the same time.
func (s *Server) handleLogin(ctx context.Context, c *Caller, in *body[loginBody]) (*signedIn, error) {
	if s.NoPasswords {
		return nil, bailey.Denied.New("this server does not accept a password alone", "sign in with a passkey or a provider")
	}
	if wait := s.guesses.AllowKey(store.Hash(strings.ToLower(in.Body.Email))); wait > 0 {
		return nil, tooMany(wait)
	}
	a, err := s.Store.AccountByEmail(ctx, in.Body.Email)
	if err != nil && !errors.Is(err, bailey.NotFound) {
		return nil, err
	}
	ok, err := s.Passwords.Check(ctx, a.Password, in.Body.Password)
	if err != nil {
		return nil, err
	}
	if !ok {
		p := notSignedIn()
		p.Detail, p.Hint = "the address or the password is wrong", "try again, or ask an admin for an invitation"
		return nil, p
	}
	return s.signIn(ctx, c, a)
}

func (s *Server) handleSignup(ctx context.Context, c *Caller, in *body[NewAccount]) (*signedIn, error) {
	b := in.Body
	if err := checkPerson(b.Name, ""); err != nil {
		return nil, err
	}
	i, err := s.Store.InvitationByHash(ctx, store.Hash(b.Token))
	if err != nil {
		return nil, noInvitation(err)
	}
	hash, err := s.Passwords.Hash(ctx, b.Password, b.Name, i.Email)
	if err != nil {
		return nil, err
	}
	a, _, err := s.Store.AcceptAsNew(ctx, store.Hash(b.Token), store.Account{Name: b.Name, Password: hash})
	if err != nil {
		return nil, noInvitation(err)
	}
	return s.signIn(ctx, c, a)
}

func noInvitation(err error) error {
	if errors.Is(err, bailey.NotFound) {
		return bailey.Denied.New("the invitation is not valid, was used, or is for another address",
			"ask for a new one")
	}
	return err
}

// AcceptedInvitation is the token of an invitation.
type AcceptedInvitation struct {
	Token string `json:"token" maxLength:"100"`
}

func (s *Server) acceptInvitation(ctx context.Context, c *Caller, in *body[AcceptedInvitation]) (*nothing, error) {
	_, err := s.Store.Accept(ctx, store.Hash(in.Body.Token), c.Account)
	return nil, noInvitation(err)
}

type endedSession struct {
	Cookie http.Cookie `header:"Set-Cookie"`
}

func (s *Server) handleLogout(ctx context.Context, c *Caller, _ *nothing) (*endedSession, error) {
	return &endedSession{Cookie: s.sessionCookie("", time.Time{})}, s.Store.EndSession(ctx, c.Account.ID, c.Session)
}

func (s *Server) showAccount(_ context.Context, c *Caller, _ *nothing) (*output[store.Account], error) {
	return answerWith(c.Account), nil
}

// ChangedPassword is a new password.
type ChangedPassword struct {
	Old string `json:"old" maxLength:"100"`
	New string `json:"new" maxLength:"100" doc:"8 characters or more"`
}

func (s *Server) setPassword(ctx context.Context, c *Caller, in *body[ChangedPassword]) (*nothing, error) {
	if c.Account.Password == "" {
		return nil, s.setFirstPassword(ctx, c, in.Body.New)
	}
	ok, err := s.Passwords.Check(ctx, c.Account.Password, in.Body.Old)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, bailey.Denied.New("the old password is wrong", "")
	}
	hash, err := s.Passwords.Hash(ctx, in.Body.New, c.Account.Name, c.Account.Email)
	if err != nil {
		return nil, err
	}
	return nil, s.Store.SetPassword(ctx, c.Account.ID, hash, c.Session)
}

// setFirstPassword sets the password of an account that has none, for which the session must be fresh.
func (s *Server) setFirstPassword(ctx context.Context, c *Caller, password string) error {
	if s.Now().Sub(c.Since) > freshLife {
		return notFresh()
	}
	hash, err := s.Passwords.Hash(ctx, password, c.Account.Name, c.Account.Email)
	if err != nil {
		return err
	}
	return s.Store.SetPassword(ctx, c.Account.ID, hash, c.Session)
}

// sessionItem is a session in a list.
type sessionItem struct {
	store.Session
	Current bool `json:"current" doc:"whether this request came with it"`
}

func (s *Server) listSessions(ctx context.Context, c *Caller, _ *nothing) (*output[list[sessionItem]], error) {
	all, err := s.Store.Sessions(ctx, c.Account.ID)
	out := answerWith(list[sessionItem]{Items: []sessionItem{}})
	for _, n := range all {
		out.Body.Items = append(out.Body.Items, sessionItem{n, n.ID == c.Session})
	}
	return out, err
}

// byID is an input that names one thing of the account. The id of a passkey can be long.
type byID struct {
	ID string `path:"id" maxLength:"1400"`
}

func (i *byID) subject() (organisation, subject string) { return "", i.ID }

func (s *Server) endSession(ctx context.Context, c *Caller, in *byID) (*nothing, error) {
	return nil, s.Store.EndSession(ctx, c.Account.ID, in.ID)
}

type endedSessions struct {
	Ended int `json:"ended" doc:"how many sessions"`
}

func (s *Server) endOtherSessions(ctx context.Context, c *Caller, _ *nothing) (*output[endedSessions], error) {
	n, err := s.Store.EndOtherSessions(ctx, c.Account.ID, c.Session)
	return answerWith(endedSessions{n}), err
}
