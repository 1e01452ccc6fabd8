package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"

	"bailey/internal/auth"
	"bailey/internal/console"
	"bailey/internal/passkey"
	"bailey/internal/store"
)

// page is the content of a form, or of the page after it.
type page struct {
	console.Frame
	Token, Email, Name, Organisation string
	Fault, Hint                      string
	Account                          *store.Account
	Organisations                    []store.Organisation
	Passkeys                         []passkeyItem
	Identities                       []store.Identity
	Providers                        []store.Provider
	Sessions                         []sessionItem
	Next                             string // the page after signing in, or ""
}

// passkeyItem is a passkey with its line for the approvers of a gateway, or "" if a gateway accepts no key of this kind.
type passkeyItem struct {
	store.Passkey
	Line string
}

// approverLine returns the line with which a gateway accepts a passkey.
func (s *Server) approverLine(k store.Passkey) string {
	id, spki, err := auth.PasskeyPublic(k.Record)
	if err != nil {
		return ""
	}
	key, err := passkey.NewKey(k.Name, s.Public.Scheme+"://"+s.Public.Host, id, spki)
	if err != nil {
		return ""
	}
	return key.Line()
}

// titles are those of the pages outside of organisations.
var titles = map[string]string{"account": "Your account", "continue": "Signed in", "fault": "Not possible",
	"home": "Organisations", "join": "Join", "login": "Sign in", "setup": "Set up Bailey"}

// servePages serves the first steps: creating the first account, accepting an invitation, signing in. Their forms run
// the same handlers as the API.
func (s *Server) servePages() {
	s.mux.Handle("GET /static/", console.Static())
	addPage(s, "GET", "/account", "account", Access{People: true}, s.showAccountPage)
	addPage(s, "GET", "/{$}", "home", Access{People: true}, s.showHome)
	addPage(s, "POST", "/logout", "logout", Access{People: true}, func(w http.ResponseWriter, r *http.Request,
		c *Caller) error {
		out, err := recordChange(r.Context(), s, "logout", c, &nothing{}, s.handleLogout)
		if err == nil {
			http.SetCookie(w, &out.Cookie)
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		}
		return err
	})
	s.addForm("setup", Additions, func(ctx context.Context, c *Caller, p page, password string) (*signedIn, error) {
		in := body[setupBody]{setupBody{NewAccount{p.Token, p.Name, password}, p.Email, p.Organisation}}
		return recordChange(ctx, s, "setup", c, &in, s.handleSetup)
	})
	s.addForm("join", Additions, func(ctx context.Context, c *Caller, p page, password string) (*signedIn, error) {
		return recordChange(ctx, s, "signup", c, &body[NewAccount]{NewAccount{p.Token, p.Name, password}},
			s.handleSignup)
	})
	s.addForm("login", Attempts, func(ctx context.Context, c *Caller, p page, password string) (*signedIn, error) {
		return recordChange(ctx, s, "login", c, &body[loginBody]{loginBody{p.Email, password}}, s.handleLogin)
	})
}

// addPage registers a page, which is admitted like a route of the API. Without a session, the answer is the login.
func addPage(s *Server, method, path, id string, a Access, f func(http.ResponseWriter, *http.Request, *Caller) error) {
	s.routes = append(s.routes, Route{Method: method, Path: path, Operation: id, Page: true, Access: a})
	if method == http.MethodGet {
		s.pages[withoutNames(path)] = true
	}
	s.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admitCaller(r, a)
		if p, ok := errors.AsType[*problem](err); ok && p.Status == http.StatusUnauthorized {
			s.offerSignIn(w, r)
			return
		}
		if err == nil {
			err = f(w, r, c)
		}
		if err != nil {
			s.logFault(id, err)
			p := asProblem(err)
			v := page{Fault: p.Detail, Hint: p.Hint}
			v.Frame.Account = c.Account.Name
			s.showPage(w, "fault", p.Status, v)
		}
	})
}

// offerSignIn answers a request for a page without a session. A browser sends no strict cookie if a link of another site
// or program led here, so such a request is made once more, by a page of this server.
func (s *Server) offerSignIn(w http.ResponseWriter, r *http.Request) {
	next := nextPage(r.URL.RequestURI())
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" && next != "" {
		s.showPage(w, "continue", http.StatusOK, page{Next: next})
		return
	}
	address := "/login"
	if r.Method == http.MethodGet && next != "" {
		address += "?next=" + url.QueryEscape(next)
	}
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// nextPage returns the page that follows signing in, or "" if it is not one of an organisation here: a link to the
// sign-in must not lead to another site.
func nextPage(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > 1000 || u.Scheme != "" || u.Host != "" || u.User != nil || u.Fragment != "" ||
		!strings.HasPrefix(text, "/o/") || path.Clean(u.Path) != u.Path || strings.HasSuffix(u.Path, "/live") {
		return ""
	}
	return u.RequestURI()
}

// addForm registers a form that signs in. Its rate counts attempts, and not how often it is opened.
func (s *Server) addForm(name string, rate Rate, submit func(context.Context, *Caller, page, string) (*signedIn,
	error)) {
	addPage(s, "GET", "/"+name, name, Access{Open: true}, func(w http.ResponseWriter, r *http.Request,
		_ *Caller) error {
		providers, err := s.Store.Providers(r.Context())
		if err == nil {
			s.showPage(w, name, http.StatusOK, page{Token: r.URL.Query().Get("token"), Providers: providers,
				Next: nextPage(r.URL.Query().Get("next"))})
		}
		return err
	})
	addPage(s, "POST", "/"+name, name, Access{Open: true}, func(w http.ResponseWriter, r *http.Request,
		c *Caller) error {
		p := page{Token: r.PostFormValue("token"), Email: r.PostFormValue("email"), Name: r.PostFormValue("name"),
			Organisation: r.PostFormValue("organisation"), Next: nextPage(r.PostFormValue("next"))}
		err := s.checkRate(rate, c.Address)
		var in *signedIn
		if err == nil {
			in, err = submit(r.Context(), c, p, r.PostFormValue("password"))
		}
		if err != nil {
			s.logFault(name, err)
			problem := asProblem(err)
			p.Fault, p.Hint = problem.Detail, problem.Hint
			s.showPage(w, name, problem.Status, p)
			return nil
		}
		http.SetCookie(w, &in.Cookie)
		http.Redirect(w, r, cmp.Or(p.Next, "/"), http.StatusSeeOther)
		return nil
	})
}

func (s *Server) showHome(w http.ResponseWriter, r *http.Request, c *Caller) error {
	all, err := s.Store.Organisations(r.Context(), c.Account.ID)
	if err == nil {
		s.showPage(w, "home", http.StatusOK, page{Account: &c.Account, Organisations: all})
	}
	return err
}

// showAccountPage shows how the account signs in, and where it is signed in.
func (s *Server) showAccountPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	ctx := r.Context()
	p := page{Account: &c.Account}
	var errs [4]error
	var keys []store.Passkey
	keys, errs[0] = s.Store.Passkeys(ctx, c.Account.ID)
	for _, k := range keys {
		p.Passkeys = append(p.Passkeys, passkeyItem{k, s.approverLine(k)})
	}
	p.Identities, errs[1] = s.Store.Identities(ctx, c.Account.ID)
	p.Providers, errs[2] = s.Store.Providers(ctx)
	var sessions []store.Session
	sessions, errs[3] = s.Store.Sessions(ctx, c.Account.ID)
	for _, n := range sessions {
		p.Sessions = append(p.Sessions, sessionItem{n, n.ID == c.Session})
	}
	err := errors.Join(errs[:]...)
	if err == nil {
		s.showPage(w, "account", http.StatusOK, p)
	}
	return err
}

// showPage writes a page outside of organisations.
func (s *Server) showPage(w http.ResponseWriter, name string, status int, p page) {
	p.Frame.Title = titles[name]
	if p.Account != nil {
		p.Frame.Account = p.Account.Name
	}
	s.writePage(w, name, status, p)
}

// writePage writes a page. A fault of its template is one of the server.
func (s *Server) writePage(w http.ResponseWriter, name string, status int, v console.View) {
	if err := console.Write(w, name, status, v); err != nil {
		s.Log.Error("a page was not written", "page", name, "error", err)
	}
}
