package control

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/store"
)

// invitationLife is how long an invitation is valid.
const invitationLife = 7 * 24 * time.Hour

// InOrganisation is the input of a request about an organisation.
type InOrganisation struct {
	Organisation string `path:"organisation" maxLength:"40"`
}

func (i *InOrganisation) subject() (organisation, subject string) { return i.Organisation, "" }

// InOrganisationByID names one thing of an organisation.
type InOrganisationByID struct {
	Organisation string `path:"organisation" maxLength:"40"`
	ID           string `path:"id" maxLength:"40"`
}

func (i *InOrganisationByID) subject() (organisation, subject string) { return i.Organisation, i.ID }

// inOrganisationWith has a body.
type inOrganisationWith[T any] struct {
	InOrganisation
	Body T
}

func (s *Server) organisationRoutes() {
	const one = "/api/v1/organisations/{organisation}"
	member, admin, owner := Access{Role: store.Member}, Access{Role: store.Admin}, Access{Role: store.Owner,
		People: true}
	addRoute(s, "GET", "/api/v1/organisations", "list-organisations", "The organisations of the caller",
		Access{}, s.listOrganisations)
	addRoute(s, "POST", "/api/v1/organisations", "add-organisation", "Create an organisation",
		Access{People: true, Rate: Additions}, s.addOrganisation)
	addRoute(s, "PATCH", one, "rename-organisation", "Rename the organisation", admin, s.renameOrganisation)
	addRoute(s, "DELETE", one, "delete-organisation",
		"Remove the organisation and everything that belongs to it", owner, s.deleteOrganisation)
	addRoute(s, "GET", one+"/members", "list-members", "The members", member, s.listMembers)
	addRoute(s, "PUT", one+"/members/{id}", "set-role", "Change the role of a member", admin, s.setRole)
	addRoute(s, "DELETE", one+"/members/{id}", "remove-member", "Remove a member", member, s.removeMember)
	addRoute(s, "DELETE", one+"/members/{id}/sessions", "end-member-sessions", "Sign a member out everywhere", admin,
		s.endMemberSessions)
	addRoute(s, "GET", one+"/invitations", "list-invitations", "The open invitations", admin, s.listInvitations)
	addRoute(s, "POST", one+"/invitations", "invite", "Invite an address", Access{Role: store.Admin,
		People: true, Rate: Additions}, s.inviteAddress)
	addRoute(s, "DELETE", one+"/invitations/{id}", "uninvite", "Withdraw an invitation", admin, s.withdrawInvitation)
}

// organisationItem is an organisation in a list.
type organisationItem struct {
	store.Organisation
	Role string `json:"role" enum:"member,admin,owner"`
}

func (s *Server) listOrganisations(ctx context.Context, c *Caller, _ *nothing) (*output[list[organisationItem]],
	error) {
	all, err := s.Store.Organisations(ctx, c.Account.ID)
	out := answerWith(list[organisationItem]{Items: []organisationItem{}})
	for _, o := range all {
		if c.Token != "" && o.ID != c.Of {
			continue
		}
		role := o.Role
		if c.Token != "" {
			role = min(role, c.Role)
		}
		out.Body.Items = append(out.Body.Items, organisationItem{o, role.String()})
	}
	return out, err
}

// checkName validates the name of a person, an organisation, a token or a host.
func checkName(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > 100 || strings.ContainsFunc(name, unicode.IsControl) {
		return bailey.Invalid.New("the name is empty, too long or has control characters", "use at most 100 characters")
	}
	return nil
}

type Named struct {
	Name string `json:"name" minLength:"1" maxLength:"100"`
}

func (s *Server) addOrganisation(ctx context.Context, c *Caller, in *body[Named]) (*output[organisationItem], error) {
	if err := checkName(in.Body.Name); err != nil {
		return nil, err
	}
	o, err := s.Store.AddOrganisation(ctx, in.Body.Name, c.Account.ID)
	return answerWith(organisationItem{o, store.Owner.String()}), err
}

func (s *Server) renameOrganisation(ctx context.Context, _ *Caller, in *inOrganisationWith[Named]) (*nothing, error) {
	if err := checkName(in.Body.Name); err != nil {
		return nil, err
	}
	return nil, s.Store.RenameOrganisation(ctx, in.Organisation, in.Body.Name)
}

func (s *Server) deleteOrganisation(ctx context.Context, _ *Caller, in *InOrganisation) (*nothing, error) {
	return nil, s.Store.DeleteOrganisation(ctx, in.Organisation)
}

type memberItem struct {
	store.Membership
	Role string `json:"role" enum:"member,admin,owner"`
}

func (s *Server) listMembers(ctx context.Context, _ *Caller, in *InOrganisation) (*output[list[memberItem]], error) {
	all, err := s.Store.Members(ctx, in.Organisation)
	out := answerWith(list[memberItem]{Items: []memberItem{}})
	for _, m := range all {
		out.Body.Items = append(out.Body.Items, memberItem{m, m.Role.String()})
	}
	return out, err
}

type WithRole struct {
	Role string `json:"role" enum:"member,admin,owner"`
}

// memberRole is the new role of a member.
type memberRole struct {
	InOrganisationByID
	Body WithRole
}

// setRole refuses to change an owner, or to make one, unless the caller is an owner.
func (s *Server) setRole(ctx context.Context, c *Caller, in *memberRole) (*nothing, error) {
	role, err := store.ParseRole(in.Body.Role)
	if err != nil {
		return nil, err
	}
	if err := s.mayChange(ctx, c, in.Organisation, in.ID, role); err != nil {
		return nil, err
	}
	return nil, s.Store.SetRole(ctx, in.Organisation, in.ID, role)
}

// mayChange: a caller gives and takes only roles up to its own.
func (s *Server) mayChange(ctx context.Context, c *Caller, organisation, account string, role store.Role) error {
	has, err := s.Store.RoleOf(ctx, organisation, account)
	if err != nil {
		return err
	}
	if has == 0 {
		return bailey.NotFound.New("there is no such member", "")
	}
	if max(has, role) > c.Role {
		return bailey.Denied.Errorf("ask an owner of the organisation", "an %v cannot make or change an owner", c.Role)
	}
	return nil
}

// removeMember also lets members leave.
func (s *Server) removeMember(ctx context.Context, c *Caller, in *InOrganisationByID) (*nothing, error) {
	if in.ID != c.Account.ID || c.Token != "" {
		if c.Role < store.Admin {
			return nil, bailey.Denied.New("a member may only leave, and not remove others",
				"ask an admin of the organisation")
		}
		if err := s.mayChange(ctx, c, in.Organisation, in.ID, 0); err != nil {
			return nil, err
		}
	}
	return nil, s.Store.SetRole(ctx, in.Organisation, in.ID, 0)
}

// endMemberSessions is for a member whose device was lost. An admin cannot do it to an owner.
func (s *Server) endMemberSessions(ctx context.Context, c *Caller, in *InOrganisationByID) (*output[endedSessions],
	error) {
	if err := s.mayChange(ctx, c, in.Organisation, in.ID, 0); err != nil {
		return nil, err
	}
	n, err := s.Store.EndOtherSessions(ctx, in.ID, "")
	return answerWith(endedSessions{n}), err
}

type invitationItem struct {
	store.Invitation
	Role string `json:"role" enum:"member,admin,owner"`
	Link string `json:"link,omitempty" doc:"only in the answer to the invitation: it is not stored"`
}

func (s *Server) listInvitations(ctx context.Context, _ *Caller,
	in *InOrganisation) (*output[list[invitationItem]], error) {
	all, err := s.Store.Invitations(ctx, in.Organisation)
	out := answerWith(list[invitationItem]{Items: []invitationItem{}})
	for _, i := range all {
		out.Body.Items = append(out.Body.Items, invitationItem{Invitation: i, Role: i.Role.String()})
	}
	return out, err
}

// NewInvitation invites an address.
type NewInvitation struct {
	WithRole
	Email string `json:"email" maxLength:"254"`
}

func (s *Server) inviteAddress(ctx context.Context, c *Caller,
	in *inOrganisationWith[NewInvitation]) (*output[invitationItem], error) {
	role, err := store.ParseRole(in.Body.Role)
	if err := errors.Join(err, checkEmail(in.Body.Email)); err != nil {
		return nil, firstFault(err)
	}
	if role > c.Role {
		return nil, bailey.Denied.Errorf("ask an owner of the organisation", "an %v cannot make an owner", c.Role)
	}
	token := auth.NewToken(auth.InvitationToken)
	i, err := s.Store.Invite(ctx, store.Invitation{Organisation: in.Organisation, By: c.Account.ID, Email: in.Body.Email, Role: role,
		Expires: s.Now().Add(invitationLife)}, store.Hash(token))
	return answerWith(invitationItem{i, role.String(), s.Public.String() + "/join?token=" + token}), err
}

func (s *Server) withdrawInvitation(ctx context.Context, _ *Caller, in *InOrganisationByID) (*nothing, error) {
	return nil, s.Store.Uninvite(ctx, in.Organisation, in.ID)
}
