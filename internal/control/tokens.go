package control

import (
	"context"
	"errors"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// maxDays is the longest life of a token.
const maxDays = 366

func (s *Server) tokenRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin := Access{Role: store.Member, People: true}, Access{Role: store.Admin, People: true}
	addRoute(s, "GET", one+"/tokens", "list-tokens", "The API tokens: an admin sees all, a member its own",
		member, s.listTokens)
	addRoute(s, "POST", one+"/tokens", "add-token", "Make an API token of the caller", member, s.addToken)
	addRoute(s, "DELETE", one+"/tokens/{id}", "remove-token", "End an API token", member, s.removeToken)
	addRoute(s, "GET", one+"/hosts", "list-hosts", "The gateways and hosts", Access{Role: store.Member}, s.listHosts)
	addRoute(s, "POST", one+"/hosts", "add-host", "Make a token with which a gateway or a host enrols", admin,
		s.addHost)
	addRoute(s, "GET", "/api/v1/host", "this-host", "The host that the token in the header Authorization belongs to",
		Access{Open: true, Rate: Attempts}, s.showThisHost)
	addRoute(s, "DELETE", one+"/hosts/{id}", "remove-host", "End the token of a gateway or a host", admin, s.removeHost)
}

type tokenItem struct {
	store.Token
	Role   string `json:"role" enum:"member,admin,owner"`
	Secret string `json:"secret,omitempty" doc:"only in the answer that made it: it is not stored"`
}

// visibleTokens are those that the caller may see and end.
func (s *Server) visibleTokens(ctx context.Context, c *Caller, organisation string) ([]store.Token, error) {
	all, err := s.Store.Tokens(ctx, organisation)
	visible := []store.Token{}
	for _, t := range all {
		if c.Role >= store.Admin || t.Account == c.Account.ID {
			visible = append(visible, t)
		}
	}
	return visible, err
}

func (s *Server) listTokens(ctx context.Context, c *Caller, in *InOrganisation) (*output[list[tokenItem]], error) {
	all, err := s.visibleTokens(ctx, c, in.Organisation)
	out := answerWith(list[tokenItem]{Items: []tokenItem{}})
	for _, t := range all {
		out.Body.Items = append(out.Body.Items, tokenItem{Token: t, Role: t.Role.String()})
	}
	return out, err
}

// NewToken is a token to be made.
type NewToken struct {
	Named
	WithRole
	Days int `json:"days" minimum:"1" maximum:"366" doc:"how long it is valid"`
}

func (s *Server) addToken(ctx context.Context, c *Caller,
	in *inOrganisationWith[NewToken]) (*output[tokenItem], error) {
	role, err := store.ParseRole(in.Body.Role)
	if err := errors.Join(err, checkName(in.Body.Name)); err != nil {
		return nil, firstFault(err)
	}
	if role > c.Role {
		return nil, bailey.Denied.Errorf("ask for a lower role",
			"a token of yours has at most your role, which is %v", c.Role)
	}
	secret := auth.NewToken(auth.APIToken)
	t, err := s.Store.AddToken(ctx, store.Token{Organisation: in.Organisation, Account: c.Account.ID,
		Name: in.Body.Name, Role: role,
		Expires: s.expiryAfter(in.Body.Days)}, store.Hash(secret))
	return answerWith(tokenItem{t, role.String(), secret}), err
}

func (s *Server) expiryAfter(days int) time.Time {
	return s.Now().Add(time.Duration(min(days, maxDays)) * 24 * time.Hour)
}

func (s *Server) removeToken(ctx context.Context, c *Caller, in *InOrganisationByID) (*nothing, error) {
	visible, err := s.visibleTokens(ctx, c, in.Organisation)
	if err != nil {
		return nil, err
	}
	for _, t := range visible {
		if t.ID == in.ID {
			return nil, s.Store.RemoveToken(ctx, in.Organisation, in.ID)
		}
	}
	return nil, bailey.NotFound.New("there is no such token", "")
}

// thisHost is what a host learns when it enrols.
type thisHost struct {
	store.Host
	Organisation string `json:"organisation"`
}

// showThisHost lets a host test its token before it keeps it. Its caller is a host, which the middleware does not know.
func (s *Server) showThisHost(ctx context.Context, c *Caller, in *struct {
	Authorization string `header:"Authorization" maxLength:"200"`
}) (*output[thisHost], error) {
	h, err := s.AdmitHost(ctx, bearerToken(in.Authorization), c.certificate)
	return answerWith(thisHost{h, h.Organisation}), err
}

type hostItem struct {
	store.Host
	Connected bool   `json:"connected"`
	Secret    string `json:"secret,omitempty" doc:"only in the answer that made it: it is not stored"`
}

func (s *Server) listHosts(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[hostItem]], error) {
	all, err := s.Store.Hosts(ctx, in.Organisation)
	out := answerWith(list[hostItem]{Items: []hostItem{}})
	for _, h := range all {
		out.Body.Items = append(out.Body.Items, hostItem{Host: h, Connected: s.Hosts.Connected(h.ID)})
	}
	return out, err
}

// NewHost is a host to be added.
type NewHost struct {
	Named
	Kind string `json:"kind" enum:"gateway,host"`
	Days int    `json:"days" minimum:"1" maximum:"366" doc:"how long it is valid"`
}

func (s *Server) addHost(ctx context.Context, _ *Caller, in *inOrganisationWith[NewHost]) (*output[hostItem], error) {
	if err := checkName(in.Body.Name); err != nil {
		return nil, err
	}
	secret := auth.NewToken(auth.HostToken)
	h, err := s.Store.AddHost(ctx, store.Host{Organisation: in.Organisation, Name: in.Body.Name, Kind: in.Body.Kind,
		Expires: s.expiryAfter(in.Body.Days)}, store.Hash(secret))
	return answerWith(hostItem{Host: h, Secret: secret}), err
}

func (s *Server) removeHost(ctx context.Context, _ *Caller, in *InOrganisationByID) (*nothing, error) {
	return nil, s.Store.RemoveHost(ctx, in.Organisation, in.ID)
}
