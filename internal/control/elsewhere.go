package control

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// # Signing in at a provider
//
// An identity (a subject at a provider) signs in to the account to which it is linked, and to no other. It is linked in
// two ways only: by a person who is signed in and has just proved it, or by an invitation whose address the provider
// says is verified, which makes a new account. An address alone never gives access to an account that exists, so that
// control of an address, or of a provider that lies about one, takes over nothing.

// providerLogin is the kind of the ceremony.
const providerLogin = "provider-login"

// providerFlow is what the server keeps until the browser comes back.
type providerFlow struct {
	auth.Flow
	Provider   string `json:"provider"`
	Session    string `json:"session,omitempty"`    // that links
	Invitation string `json:"invitation,omitempty"` // SHA-256 of its token
}

const callbackPath = "/login/callback"

func (s *Server) providerRoutes() {
	fresh := Access{People: true, Fresh: true}
	addRoute(s, "GET", "/api/v1/providers", "list-providers", "Where people can sign in, apart from here",
		Access{Open: true}, s.listProviders)
	addRoute(s, "GET", "/api/v1/me/identities", "list-identities", "The identities at providers of the account",
		Access{People: true}, s.listIdentities)
	addRoute(s, "DELETE", "/api/v1/me/identities/{id}", "remove-identity", "Remove the link to an identity", fresh,
		s.removeIdentity)
	addPage(s, "GET", "/login/with/{provider}", "begin-provider-login", Access{Open: true, Rate: Attempts},
		func(w http.ResponseWriter, r *http.Request, _ *Caller) error {
			f := providerFlow{}
			if token := r.URL.Query().Get("invitation"); token != "" {
				f.Invitation = store.Hash(token)
			}
			return s.beginProviderLogin(w, r, "", f)
		})
	addPage(s, "GET", "/link/{provider}", "link-identity", fresh,
		func(w http.ResponseWriter, r *http.Request, c *Caller) error {
			return s.beginProviderLogin(w, r, c.Account.ID, providerFlow{Session: c.Session})
		})
	addPage(s, "GET", callbackPath, "provider-login", Access{Open: true, Rate: Attempts}, s.endProviderLogin)
}

func (s *Server) listProviders(ctx context.Context, _ *Caller, _ *nothing) (*output[list[store.Provider]], error) {
	all, err := s.Store.Providers(ctx)
	return answerWith(list[store.Provider]{Items: all}), err
}

func (s *Server) listIdentities(ctx context.Context, c *Caller, _ *nothing) (*output[list[store.Identity]], error) {
	all, err := s.Store.Identities(ctx, c.Account.ID)
	return answerWith(list[store.Identity]{Items: all}), err
}

func (s *Server) removeIdentity(ctx context.Context, c *Caller, in *byID) (*nothing, error) {
	return nil, s.Store.RemoveIdentity(ctx, c.Account.ID, in.ID)
}

// stateCookie holds the state until the browser comes back. It is Lax, since the request comes from another site.
func (s *Server) stateCookie(state string) *http.Cookie {
	c := s.sessionCookie(state, s.Now().Add(auth.FlowLife))
	c.Name += "-state"
	c.SameSite = http.SameSiteLaxMode
	if state != "" {
		c.MaxAge = int(auth.FlowLife / time.Second)
	}
	return &c
}

// providerNamed returns a provider with its secret.
func (s *Server) providerNamed(ctx context.Context, name string) (*auth.Provider, error) {
	p, err := s.Store.ProviderNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	secret, err := s.Keys.Open(p.SealedAs(), p.Secret)
	if err != nil {
		s.Log.Error("the secret of a provider cannot be opened", "provider", name, "error", err)
		return nil, bailey.Unavailable.New("this provider cannot be used at the moment", "sign in otherwise")
	}
	return &auth.Provider{GitHub: p.Kind == store.GitHub, Issuer: p.Issuer, Client: p.Client, Secret: secret,
		Redirect: s.Public.String() + callbackPath, Now: s.Now}, nil
}

func (s *Server) beginProviderLogin(w http.ResponseWriter, r *http.Request, account string, f providerFlow) error {
	ctx := r.Context()
	f.Provider = r.PathValue("provider")
	p, err := s.providerNamed(ctx, f.Provider)
	if err != nil {
		return err
	}
	state := auth.NewToken(auth.CeremonyToken)
	var address string
	if address, f.Flow, err = p.Begin(ctx, state); err != nil {
		return err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := s.Store.BeginCeremony(ctx, store.Ceremony{Kind: providerLogin, Account: account, Data: string(data),
		Expires: s.Now().Add(auth.FlowLife)}, store.Hash(state)); err != nil {
		return err
	}
	http.SetCookie(w, s.stateCookie(state))
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// providerAnswer is the request with which the browser comes back.
type providerAnswer struct{ state, cookie, code, issuer string }

// endProviderLogin answers with a page that goes on, since browsers do not send a strict cookie along redirects from
// another site.
func (s *Server) endProviderLogin(w http.ResponseWriter, r *http.Request, c *Caller) error {
	q := r.URL.Query()
	in := providerAnswer{state: q.Get("state"), code: q.Get("code"), issuer: q.Get("iss")}
	if cookie, err := r.Cookie(s.stateCookie("").Name); err == nil {
		in.cookie = cookie.Value
	}
	http.SetCookie(w, s.stateCookie(""))
	out, err := recordChange(r.Context(), s, "provider-login", c, &in, s.finishProviderLogin)
	if err != nil {
		return err
	}
	next := "/account"
	if out.Cookie.Value != "" {
		http.SetCookie(w, &out.Cookie)
		next = "/"
	}
	s.showPage(w, "continue", http.StatusOK, page{Next: next})
	return nil
}

func (s *Server) finishProviderLogin(ctx context.Context, c *Caller, in *providerAnswer) (*signedIn, error) {
	if in.cookie == "" || subtle.ConstantTimeCompare([]byte(in.state), []byte(in.cookie)) != 1 {
		return nil, bailey.Denied.New("this browser did not begin this sign-in", "begin again")
	}
	begun, err := s.Store.EndCeremony(ctx, providerLogin, store.Hash(in.state))
	if err != nil {
		return nil, noCeremony(err)
	}
	var f providerFlow
	if err := json.Unmarshal([]byte(begun.Data), &f); err != nil {
		return nil, err
	}
	if in.code == "" {
		return nil, bailey.Denied.New("the provider did not sign you in", "sign in again")
	}
	p, err := s.providerNamed(ctx, f.Provider)
	if err != nil {
		return nil, err
	}
	if in.issuer != "" && in.issuer != p.Issuer { // RFC 9207
		return nil, bailey.Denied.New("the answer comes from another provider", "begin again")
	}
	person, err := p.End(ctx, f.Flow, in.code)
	if err != nil {
		s.Log.Warn("a provider's answer was refused", "provider", f.Provider, "error", err)
		return nil, err
	}
	i := store.Identity{Account: begun.Account, Provider: f.Provider, Subject: person.Subject, Email: person.Email}
	if begun.Account != "" {
		return &signedIn{}, s.linkIdentity(ctx, c, f.Session, i)
	}
	return s.signInElsewhere(ctx, c, f, i, person.Name)
}

// linkIdentity links an identity to the account whose session began it, if that session still lasts.
func (s *Server) linkIdentity(ctx context.Context, c *Caller, session string, i store.Identity) error {
	all, err := s.Store.Sessions(ctx, i.Account)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.ID != session {
			continue
		}
		if c.Account, err = s.Store.AccountByID(ctx, i.Account); err != nil {
			return err
		}
		c.Session = session
		return s.Store.AddIdentity(ctx, i)
	}
	return bailey.Denied.New("the session that began this has ended", "sign in, and link it again")
}

// signInElsewhere signs in to the account of an identity, or to a new one if there is an invitation.
func (s *Server) signInElsewhere(ctx context.Context, c *Caller, f providerFlow, i store.Identity, name string) (*signedIn,
	error) {
	a, err := s.Store.AccountByIdentity(ctx, i.Provider, i.Subject)
	if bailey.KindOf(err) == bailey.NotFound && f.Invitation != "" && i.Email != "" {
		if checkName(name) != nil {
			name = i.Email
		}
		a, err = s.Store.AcceptWithIdentity(ctx, f.Invitation, name, i)
		err = noInvitation(err)
	}
	if bailey.KindOf(err) == bailey.NotFound {
		err = bailey.Denied.New("no account is linked to this identity",
			"sign in otherwise and link it under Your account, or open an invitation for your verified address")
	}
	if err != nil {
		return nil, err
	}
	return s.signIn(ctx, c, a)
}
