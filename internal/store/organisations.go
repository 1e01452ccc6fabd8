package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"bailey"
)

// A Role is what a member may do in an organisation. A higher role may do everything that a lower one may.
type Role int

// Roles.
const (
	Member Role = 1
	Admin  Role = 2
	Owner  Role = 3
)

func (r Role) String() string {
	switch r {
	case Member:
		return "member"
	case Admin:
		return "admin"
	case Owner:
		return "owner"
	}
	return "stranger"
}

// ParseRole is the reverse of String.
func ParseRole(name string) (Role, error) {
	for r := Member; r <= Owner; r++ {
		if r.String() == name {
			return r, nil
		}
	}
	return 0, bailey.Invalid.Errorf("use member, admin or owner", "%q is not a role", name)
}

// An Organisation has members, and everything else belongs to one.
type Organisation struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Role    Role      `json:"-"` // of the account for which it was listed
}

// A Membership is an account in an organisation.
type Membership struct {
	Account
	Role  Role      `json:"-"`
	Since time.Time `json:"since"`
}

// An Invitation lets the holder of its token become a member.
type Invitation struct {
	ID           string    `json:"id"`
	Organisation string    `json:"-"`
	Email        string    `json:"email"`
	Role         Role      `json:"-"`
	By           string    `json:"by"` // the account that invites
	Created      time.Time `json:"created"`
	Expires      time.Time `json:"expires"`
}

func (s *Store) addOrganisation(ctx context.Context, r runner, name, owner string) (Organisation, error) {
	o := Organisation{ID: newID("o-"), Name: name, Created: s.now(), Role: Owner}
	_, err := s.execChange(ctx, r, "INSERT INTO organisations (id, name, created) VALUES (?, ?, ?)", o.ID,
		o.Name, toMicros(o.Created))
	if err == nil {
		err = s.addMember(ctx, r, o.ID, owner, Owner)
	}
	return o, err
}

func (s *Store) addMember(ctx context.Context, r runner, organisation, account string, role Role) error {
	_, err := s.execChange(ctx, r, "INSERT INTO members (organisation, account, role, created) VALUES (?, ?, ?, ?)",
		organisation, account, int(role), toMicros(s.now()))
	return err
}

// AddOrganisation creates an organisation with an owner.
func (s *Store) AddOrganisation(ctx context.Context, name, owner string) (o Organisation, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		o, err = s.addOrganisation(ctx, tx, name, owner)
		return err
	})
	return o, err
}

func scanOrganisation(scan func(...any) error) (o Organisation, err error) {
	var created int64
	err = scan(&o.ID, &o.Name, &created, &o.Role)
	o.Created = fromMicros(created)
	return o, err
}

// Organisations lists the organisations of an account by name, each with its role there.
func (s *Store) Organisations(ctx context.Context, account string) ([]Organisation, error) {
	return queryRows(ctx, s, s.db, scanOrganisation, "SELECT o.id, o.name, o.created, m.role FROM organisations o "+
		"JOIN members m ON m.organisation = o.id WHERE m.account = ? ORDER BY o.name, o.id", account)
}

// RoleOf returns the role of an account in an organisation, or 0 if it is not a member or the organisation does not
// exist.
func (s *Store) RoleOf(ctx context.Context, organisation, account string) (Role, error) {
	found, err := queryRows(ctx, s, s.db, scanRole,
		"SELECT role FROM members WHERE organisation = ? AND account = ?", organisation, account)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0], nil
}

func scanRole(scan func(...any) error) (r Role, err error) {
	err = scan(&r)
	return r, err
}

// RenameOrganisation changes the name.
func (s *Store) RenameOrganisation(ctx context.Context, id, name string) error {
	return s.changeOne(ctx, s.db, "organisation", "UPDATE organisations SET name = ? WHERE id = ?", name, id)
}

// DeleteOrganisation removes an organisation and everything that belongs to it. Accounts stay.
func (s *Store) DeleteOrganisation(ctx context.Context, id string) error {
	return s.changeOne(ctx, s.db, "organisation", "DELETE FROM organisations WHERE id = ?", id)
}

// Members lists the members of an organisation by address.
func (s *Store) Members(ctx context.Context, organisation string) ([]Membership, error) {
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (m Membership, err error) {
		var since int64
		m.Account, err = scanAccount(func(to ...any) error { return scan(append(to, &m.Role, &since)...) })
		m.Since = fromMicros(since)
		return m, err
	}, "SELECT "+accountColumns+", m.role, m.created FROM accounts a JOIN members m ON m.account = a.id "+
		"WHERE m.organisation = ? ORDER BY a.email", organisation)
}

// SetRole gives a member another role, or removes it if the role is 0. The last owner keeps its role: Conflict.
func (s *Store) SetRole(ctx context.Context, organisation, account string, role Role) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		owners, err := queryRows(ctx, s, tx, scanText,
			"SELECT account FROM members WHERE organisation = ? AND role = ?",
			organisation, int(Owner))
		if err != nil {
			return err
		}
		if role < Owner && len(owners) == 1 && owners[0] == account {
			return bailey.Conflict.New("this is the only owner", "make another member an owner first")
		}
		// Otherwise a member that was removed could come back, or up, by an invitation of its own.
		if _, err := s.execChange(ctx, tx,
			"DELETE FROM invitations WHERE organisation = ? AND inviter = ? AND role > ?",
			organisation, account, invitableRole(role)); err != nil {
			return err
		}
		if role > 0 {
			return s.changeOne(ctx, tx, "member", "UPDATE members SET role = ? WHERE organisation = ? AND account = ?",
				int(role), organisation, account)
		}
		if err := s.changeOne(ctx, tx, "member", "DELETE FROM members WHERE organisation = ? AND account = ?",
			organisation, account); err != nil {
			return err
		}
		_, err = s.execChange(ctx, tx, "DELETE FROM tokens WHERE organisation = ? AND account = ?",
			organisation, account)
		return err
	})
}

// invitableRole returns the highest role that a member may give by an invitation.
func invitableRole(role Role) int {
	if role < Admin {
		return 0
	}
	return int(role)
}

func scanText(scan func(...any) error) (text string, err error) {
	err = scan(&text)
	return text, err
}

// Invite stores an invitation under the hash of its token.
func (s *Store) Invite(ctx context.Context, i Invitation, hash string) (Invitation, error) {
	i.ID, i.Email, i.Created = newID("i-"), strings.ToLower(i.Email), s.now()
	_, err := s.execChange(ctx, s.db,
		"INSERT INTO invitations (id, organisation, email, role, inviter, hash, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		i.ID, i.Organisation, i.Email, int(i.Role), i.By, hash, toMicros(i.Created), toMicros(i.Expires))
	return i, err
}

const invitationColumns = "id, organisation, email, role, inviter, created, expires"

func scanInvitation(scan func(...any) error) (i Invitation, err error) {
	var created, expires int64
	err = scan(&i.ID, &i.Organisation, &i.Email, &i.Role, &i.By, &created, &expires)
	i.Created, i.Expires = fromMicros(created), fromMicros(expires)
	return i, err
}

// Invitations lists the invitations of an organisation that have not expired.
func (s *Store) Invitations(ctx context.Context, organisation string) ([]Invitation, error) {
	return queryRows(ctx, s, s.db, scanInvitation, "SELECT "+invitationColumns+
		" FROM invitations WHERE organisation = ? AND expires > ? ORDER BY created, id", organisation, toMicros(s.now()))
}

// Uninvite removes an invitation.
func (s *Store) Uninvite(ctx context.Context, organisation, id string) error {
	return s.changeOne(ctx, s.db, "invitation", "DELETE FROM invitations WHERE organisation = ? AND id = ?",
		organisation, id)
}

// InvitationByHash finds an invitation that has not expired.
func (s *Store) InvitationByHash(ctx context.Context, hash string) (Invitation, error) {
	return oneRow(ctx, s, s.db, "invitation", scanInvitation,
		"SELECT "+invitationColumns+" FROM invitations WHERE hash = ? AND expires > ?", hash, toMicros(s.now()))
}

// AcceptAsNew uses up an invitation and creates its account, which becomes a member. The address is the invitation's.
func (s *Store) AcceptAsNew(ctx context.Context, hash string, a Account) (Account, Invitation, error) {
	var i Invitation
	err := s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if i, err = s.useInvitation(ctx, tx, hash); err != nil {
			return err
		}
		a.Email = i.Email
		if a, err = s.addAccount(ctx, tx, a); err != nil {
			return err
		}
		return s.addMember(ctx, tx, i.Organisation, a.ID, i.Role)
	})
	return a, i, err
}

// Accept uses up an invitation, whose address must be that of the account, which becomes a member.
func (s *Store) Accept(ctx context.Context, hash string, a Account) (i Invitation, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if i, err = s.useInvitation(ctx, tx, hash); err != nil {
			return err
		}
		if i.Email != a.Email {
			return notFound("invitation")
		}
		return s.addMember(ctx, tx, i.Organisation, a.ID, i.Role)
	})
	return i, err
}

// useInvitation removes an invitation that has not expired, and returns it.
func (s *Store) useInvitation(ctx context.Context, tx *sql.Tx, hash string) (Invitation, error) {
	return oneRow(ctx, s, tx, "invitation", scanInvitation,
		"DELETE FROM invitations WHERE hash = ? AND expires > ? RETURNING "+invitationColumns, hash, toMicros(s.now()))
}
