package control

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"bailey"
	"bailey/internal/console"
	"bailey/internal/store"
)

// membersPage has the members and the open invitations.
type membersPage struct {
	console.Frame
	Members     []memberView
	Invitations []invitationItem // for admins
	Manage      bool
	Roles       []string // that the caller may give
	Link        string   // of a new invitation: it is shown once
	Invited     string   // its address
}

// memberView is a member, and what the caller may do to it.
type memberView struct {
	memberItem
	Self   bool
	Change bool // the caller may change the role, remove the member and end its sessions
}

func (s *Server) consolePeopleRoutes() {
	member, admin := Access{Role: store.Member, People: true}, Access{Role: store.Admin, People: true}
	addConsolePage(s, "GET", "/members", "members-page", member, s.showMembersPage)
	addConsolePage(s, "POST", "/members/{id}/role", "set-role-form", admin, s.submitRole)
	addConsolePage(s, "POST", "/members/{id}/remove", "remove-member-form", member, s.submitRemoveMember)
	addConsolePage(s, "POST", "/members/{id}/sessions", "end-member-sessions-form", admin, s.submitEndSessions)
	addConsolePage(s, "POST", "/members", "invite-form", Access{Role: store.Admin, People: true, Rate: Additions},
		s.submitInvitation)
	addConsolePage(s, "POST", "/invitations/{id}/remove", "uninvite-form", admin, s.submitUninvite)
	addConsolePage(s, "GET", "/tokens", "tokens-page", member, s.showTokensPage)
	addConsolePage(s, "POST", "/tokens", "add-token-form", member, s.submitToken)
	addConsolePage(s, "POST", "/tokens/{id}/remove", "remove-token-form", member, s.submitRemoveToken)
	addConsolePage(s, "POST", "/hosts", "add-host-form", admin, s.submitHost)
}

// rolesUpTo lists the names of the roles up to one.
func rolesUpTo(role store.Role) (names []string) {
	for r := store.Member; r <= role; r++ {
		names = append(names, r.String())
	}
	return names
}

func (s *Server) showMembersPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	return s.writeMembersPage(w, r, c, membersPage{})
}

func (s *Server) writeMembersPage(w http.ResponseWriter, r *http.Request, c *Caller, p membersPage) error {
	ctx, in := r.Context(), &InOrganisation{r.PathValue(ofOrganisation)}
	frame, err := s.frameFor(r, c, "/members", "Members")
	if err != nil {
		return err
	}
	p.Frame, p.Manage, p.Roles = frame, c.Role >= store.Admin, rolesUpTo(c.Role)
	members, err := s.listMembers(ctx, c, in)
	if err != nil {
		return err
	}
	for _, m := range members.Body.Items {
		p.Members = append(p.Members, memberView{m, m.ID == c.Account.ID, p.Manage && m.Membership.Role <= c.Role})
	}
	if p.Manage {
		open, err := s.listInvitations(ctx, c, in)
		if err != nil {
			return err
		}
		p.Invitations = open.Body.Items
	}
	s.writePage(w, "members", http.StatusOK, p)
	return nil
}

// memberForm reads the path of a form about a member.
func memberForm(r *http.Request) InOrganisationByID {
	return InOrganisationByID{Organisation: r.PathValue(ofOrganisation), ID: r.PathValue("id")}
}

func (s *Server) submitRole(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := memberRole{memberForm(r), WithRole{r.PostFormValue("role")}}
	_, err := recordChange(r.Context(), s, "set-role", c, &in, s.setRole)
	return redirectAfter(w, r, err, "/o/"+in.Organisation+"/members")
}

// submitRemoveMember also lets a member leave, who then sees the list of organisations.
func (s *Server) submitRemoveMember(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := memberForm(r)
	err := checkConfirmed(r)
	if err == nil {
		_, err = recordChange(r.Context(), s, "remove-member", c, &in, s.removeMember)
	}
	to := "/o/" + in.Organisation + "/members"
	if in.ID == c.Account.ID {
		to = "/"
	}
	return redirectAfter(w, r, err, to)
}

func (s *Server) submitEndSessions(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := memberForm(r)
	err := checkConfirmed(r)
	if err == nil {
		_, err = recordChange(r.Context(), s, "end-member-sessions", c, &in, s.endMemberSessions)
	}
	return redirectAfter(w, r, err, "/o/"+in.Organisation+"/members")
}

// submitInvitation answers with the page, because the link is not stored and so can be shown only now.
func (s *Server) submitInvitation(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := inOrganisationWith[NewInvitation]{InOrganisation{r.PathValue(ofOrganisation)},
		NewInvitation{WithRole{r.PostFormValue("role")}, r.PostFormValue("email")}}
	made, err := recordChange(r.Context(), s, "invite", c, &in, s.inviteAddress)
	if err != nil {
		return err
	}
	return s.writeMembersPage(w, r, c, membersPage{Link: made.Body.Link, Invited: made.Body.Email})
}

func (s *Server) submitUninvite(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := memberForm(r)
	_, err := recordChange(r.Context(), s, "uninvite", c, &in, s.withdrawInvitation)
	return redirectAfter(w, r, err, "/o/"+in.Organisation+"/members")
}

// redirectAfter ends a form: with its error, or on a page of this server.
func redirectAfter(w http.ResponseWriter, r *http.Request, err error, to string) error {
	if err == nil {
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
	return err
}

// tokensPage has the agents, the API tokens and the tokens of hosts.
type tokensPage struct {
	console.Frame
	Agents []agentView // for admins: receipts name them
	Tokens []tokenView
	Hosts  []hostView
	Manage bool
	Roles  []string
	// New is what was just made. Its secret is shown once.
	New    *newSecret
	Server string // the URL with which a host enrols
}

type newSecret struct{ Kind, Name, Secret string }

// tokenView is a token with the name of its person.
type tokenView struct {
	tokenItem
	Person  string
	Expired bool
}

// agentView is an agent that has made calls.
type agentView struct {
	store.Agent
	Stops []store.Stop // that concern this agent on every gateway
}

func (s *Server) showTokensPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	return s.writeTokensPage(w, r, c, tokensPage{})
}

// agentsSince is how far back the page looks for agents.
const agentsSince = 30 * 24 * time.Hour

func (s *Server) writeTokensPage(w http.ResponseWriter, r *http.Request, c *Caller, p tokensPage) error {
	ctx, in := r.Context(), &InOrganisation{r.PathValue(ofOrganisation)}
	frame, err := s.frameFor(r, c, "/tokens", "Agents and tokens")
	if err != nil {
		return err
	}
	p.Frame, p.Manage, p.Roles, p.Server = frame, c.Role >= store.Admin, rolesUpTo(c.Role), s.Public.String()
	tokens, err := s.listTokens(ctx, c, in)
	if err != nil {
		return err
	}
	members, err := s.Store.Members(ctx, in.Organisation)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, m := range members {
		names[m.ID] = m.Name
	}
	for _, t := range tokens.Body.Items {
		p.Tokens = append(p.Tokens, tokenView{t, cmp.Or(names[t.Account], t.Account), !t.Expires.After(s.Now())})
	}
	if p.Hosts, err = s.viewHosts(ctx, in.Organisation); err != nil {
		return err
	}
	if p.Manage {
		if p.Agents, err = s.viewAgents(ctx, in.Organisation); err != nil {
			return err
		}
	}
	s.writePage(w, "tokens", http.StatusOK, p)
	return nil
}

func (s *Server) viewAgents(ctx context.Context, organisation string) ([]agentView, error) {
	all, err := s.Store.Agents(ctx, organisation, s.Now().Add(-agentsSince))
	if err != nil {
		return nil, err
	}
	stops, err := s.Store.Stops(ctx, organisation)
	var views []agentView
	for _, a := range all {
		v := agentView{Agent: a}
		for _, p := range stops {
			if p.Ended.IsZero() && p.Host == "" && p.Agent == a.Name {
				v.Stops = append(v.Stops, p)
			}
		}
		views = append(views, v)
	}
	return views, err
}

// formDays reads the days of a form: what a schema checks in the API.
func formDays(r *http.Request) (int, error) {
	days, err := strconv.Atoi(r.PostFormValue("days"))
	if err != nil || days < 1 || days > maxDays {
		return 0, bailey.Invalid.Errorf("go back, and write a number", "a token is valid for 1 to %d days", maxDays)
	}
	return days, nil
}

// submitToken answers with the page, because the secret is not stored and so can be shown only now.
func (s *Server) submitToken(w http.ResponseWriter, r *http.Request, c *Caller) error {
	days, err := formDays(r)
	if err != nil {
		return err
	}
	in := inOrganisationWith[NewToken]{InOrganisation{r.PathValue(ofOrganisation)},
		NewToken{Named{r.PostFormValue("name")}, WithRole{r.PostFormValue("role")}, days}}
	made, err := recordChange(r.Context(), s, "add-token", c, &in, s.addToken)
	if err != nil {
		return err
	}
	return s.writeTokensPage(w, r, c, tokensPage{New: &newSecret{"token", made.Body.Name, made.Body.Secret}})
}

func (s *Server) submitRemoveToken(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := memberForm(r)
	_, err := recordChange(r.Context(), s, "remove-token", c, &in, s.removeToken)
	return redirectAfter(w, r, err, "/o/"+in.Organisation+"/tokens")
}

func (s *Server) submitHost(w http.ResponseWriter, r *http.Request, c *Caller) error {
	days, err := formDays(r)
	if err != nil {
		return err
	}
	kind := r.PostFormValue("kind")
	if kind != store.Gateway && kind != store.SandboxHost {
		return bailey.Invalid.New("the kind of the host is missing", "go back, and choose it")
	}
	in := inOrganisationWith[NewHost]{InOrganisation{r.PathValue(ofOrganisation)},
		NewHost{Named{r.PostFormValue("name")}, kind, days}}
	made, err := recordChange(r.Context(), s, "add-host", c, &in, s.addHost)
	if err != nil {
		return err
	}
	return s.writeTokensPage(w, r, c, tokensPage{New: &newSecret{kind, made.Body.Name, made.Body.Secret}})
}
