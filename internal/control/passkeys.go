package control

import (
	"context"
	"encoding/json"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// Kinds of ceremonies.
const (
	passkeyAdd   = "passkey-add"
	passkeyLogin = "passkey-login"
)

func (s *Server) passkeyRoutes() {
	open, fresh := Access{Open: true, Rate: Attempts}, Access{People: true, Fresh: true}
	addRoute(s, "POST", "/api/v1/login/passkey/options", "begin-passkey-login", "Begin to sign in with a passkey",
		open, s.beginPasskeyLogin)
	addRoute(s, "POST", "/api/v1/login/passkey", "passkey-login", "Sign in with a passkey", open, s.endPasskeyLogin)
	addRoute(s, "GET", "/api/v1/me/passkeys", "list-passkeys", "The passkeys of the account", Access{People: true},
		s.listPasskeys)
	addRoute(s, "POST", "/api/v1/me/passkeys/options", "begin-passkey", "Begin to add a passkey", fresh, s.beginPasskey)
	addRoute(s, "POST", "/api/v1/me/passkeys", "add-passkey", "Add a passkey", fresh, s.endPasskey)
	addRoute(s, "DELETE", "/api/v1/me/passkeys/{id}", "remove-passkey", "Remove a passkey", fresh, s.removePasskey)
}

// passkeyOptions is what a page passes to the browser.
type passkeyOptions struct {
	Ceremony string          `json:"ceremony" doc:"to be sent back with the answer of the browser, within 5 minutes"`
	Options  json.RawMessage `json:"options" doc:"for navigator.credentials"`
}

// PasskeyAnswer is what the browser answers.
type PasskeyAnswer struct {
	Ceremony   string          `json:"ceremony" maxLength:"100"`
	Credential json.RawMessage `json:"credential" doc:"the answer of navigator.credentials"`
}

// beginCeremony keeps the state of options until the answer comes.
func (s *Server) beginCeremony(ctx context.Context, kind, account string, o auth.Options) (*output[passkeyOptions],
	error) {
	token := auth.NewToken(auth.CeremonyToken)
	err := s.Store.BeginCeremony(ctx, store.Ceremony{Kind: kind, Account: account, Data: o.State,
		Expires: s.Now().Add(auth.CeremonyLife)}, store.Hash(token))
	return answerWith(passkeyOptions{token, o.Browser}), err
}

func (s *Server) beginPasskeyLogin(ctx context.Context, _ *Caller, _ *nothing) (*output[passkeyOptions], error) {
	o, err := s.passkeys.BeginLogin()
	if err != nil {
		return nil, err
	}
	return s.beginCeremony(ctx, passkeyLogin, "", o)
}

// NewPasskey is the answer of the browser, and a name.
type NewPasskey struct {
	Named
	PasskeyAnswer
}

func (s *Server) endPasskeyLogin(ctx context.Context, c *Caller, in *body[PasskeyAnswer]) (*signedIn, error) {
	begun, err := s.Store.EndCeremony(ctx, passkeyLogin, store.Hash(in.Body.Ceremony))
	if err != nil {
		return nil, noCeremony(err)
	}
	account, key, err := s.passkeys.EndLogin(begun.Data, in.Body.Credential,
		func(id string) (auth.PasskeyOwner, error) {
			a, err := s.Store.AccountByID(ctx, id)
			if err != nil {
				return auth.PasskeyOwner{}, err
			}
			return s.ownerOf(ctx, a)
		})
	if err != nil {
		return nil, err
	}
	if err := s.Store.UsePasskey(ctx, store.Passkey{ID: key.ID, Account: account, Record: key.Record,
		Count: key.Count}); err != nil {
		return nil, err
	}
	a, err := s.Store.AccountByID(ctx, account)
	if err != nil {
		return nil, err
	}
	return s.signIn(ctx, c, a)
}

// noCeremony is the answer to a token that is unknown, was used, or has expired.
func noCeremony(err error) error {
	if bailey.KindOf(err) == bailey.NotFound {
		return bailey.Denied.New("this sign-in is not valid any more", "begin again")
	}
	return err
}

// ownerOf returns an account with its passkeys.
func (s *Server) ownerOf(ctx context.Context, a store.Account) (auth.PasskeyOwner, error) {
	keys, err := s.Store.Passkeys(ctx, a.ID)
	o := auth.PasskeyOwner{ID: a.ID, Email: a.Email, Name: a.Name}
	for _, k := range keys {
		o.Records = append(o.Records, k.Record)
	}
	return o, err
}

// maxPasskeys is how many passkeys an account may have.
const maxPasskeys = 20

func (s *Server) beginPasskey(ctx context.Context, c *Caller, _ *nothing) (*output[passkeyOptions], error) {
	of, err := s.ownerOf(ctx, c.Account)
	if err != nil {
		return nil, err
	}
	if len(of.Records) >= maxPasskeys {
		return nil, bailey.Conflict.Errorf("remove one first", "an account has at most %d passkeys", maxPasskeys)
	}
	o, err := s.passkeys.BeginRegistration(of)
	if err != nil {
		return nil, err
	}
	return s.beginCeremony(ctx, passkeyAdd, c.Account.ID, o)
}

func (s *Server) endPasskey(ctx context.Context, c *Caller, in *body[NewPasskey]) (*output[store.Passkey], error) {
	if err := checkName(in.Body.Name); err != nil {
		return nil, err
	}
	begun, err := s.Store.EndCeremony(ctx, passkeyAdd, store.Hash(in.Body.Ceremony))
	if err == nil && begun.Account != c.Account.ID {
		err = bailey.NotFound.New("the ceremony is of another account", "")
	}
	if err != nil {
		return nil, noCeremony(err)
	}
	of, err := s.ownerOf(ctx, c.Account)
	if err != nil {
		return nil, err
	}
	key, err := s.passkeys.EndRegistration(of, begun.Data, in.Body.Credential)
	if err != nil {
		return nil, err
	}
	k, err := s.Store.AddPasskey(ctx, store.Passkey{ID: key.ID, Account: c.Account.ID, Name: in.Body.Name,
		Record: key.Record, Count: key.Count})
	return answerWith(k), err
}

func (s *Server) listPasskeys(ctx context.Context, c *Caller, _ *nothing) (*output[list[store.Passkey]], error) {
	all, err := s.Store.Passkeys(ctx, c.Account.ID)
	return answerWith(list[store.Passkey]{Items: all}), err
}

func (s *Server) removePasskey(ctx context.Context, c *Caller, in *byID) (*nothing, error) {
	return nil, s.Store.RemovePasskey(ctx, c.Account.ID, in.ID)
}

// freshLife is how long after signing in a person may change how it signs in, without signing in again.
const freshLife = 15 * time.Minute

// notFresh is the answer to a session that is too old for a change of how to sign in.
func notFresh() error {
	return bailey.Denied.Errorf("sign in again, and repeat it",
		"you signed in more than %v ago, and this changes how you sign in", freshLife)
}
