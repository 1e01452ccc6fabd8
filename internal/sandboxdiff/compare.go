package sandboxdiff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Compare returns what changed from before to after, as an administrator would name it: an installed package explains
// its files, accounts and services; a new user explains the home directory with its copies of /etc/skel; a new service
// explains its unit; a new file explains the directories above it. The export has all of these.
func Compare(before, after *Inventory) *Difference {
	c := &comparison{before: before, after: after, explained: map[string]bool{}, accounts: map[string]bool{},
		homes: map[string]string{}, skeleton: map[string]*File{},
		sameOwner: map[[2]string]bool{}, sameGroup: map[[2]string]bool{},
		d: &Difference{OS: after.OS, Release: after.Release, Changes: []Change{}, Notes: []string{},
			Omitted: []Omitted{}}}
	c.comparePackages()
	c.compareAccounts()
	c.compareFiles()
	c.compareServices()
	c.foldChanges()
	c.finishList()
	return c.d
}

type comparison struct {
	before, after *Inventory
	d             *Difference
	changes       []Change
	explained     map[string]bool   // packages with another version, new or removed
	accounts      map[string]bool   // that their installation creates
	homes         map[string]string // home directories of new users: their owner, or "" of a package's user
	skeleton      map[string]*File  // by path below /etc/skel
	// sameOwner has the pairs of a name and a number that mean the same owner before and after, because the account was
	// added or removed.
	sameOwner, sameGroup map[[2]string]bool
}

// changedPair is one thing in two lists that differs.
type changedPair[T any] struct {
	name string
	pair[T]
}

// findDiffering returns the entries of two sorted lists that are not equal.
func findDiffering[T any](before, after []T, name func(*T) string, equal func(a, b *T) bool) []changedPair[T] {
	var out []changedPair[T]
	for i, j := 0, 0; i < len(before) || j < len(after); {
		switch {
		case j == len(after) || i < len(before) && name(&before[i]) < name(&after[j]):
			out = append(out, changedPair[T]{name(&before[i]), pair[T]{before: &before[i]}})
			i++
		case i == len(before) || name(&after[j]) < name(&before[i]):
			out = append(out, changedPair[T]{name(&after[j]), pair[T]{after: &after[j]}})
			j++
		default:
			if !equal(&before[i], &after[j]) {
				out = append(out, changedPair[T]{name(&before[i]), pair[T]{&before[i], &after[j]}})
			}
			i, j = i+1, j+1
		}
	}
	return out
}

// actionOf returns Added, Changed or Removed.
func (p pair[T]) actionOf() string {
	switch {
	case p.before == nil:
		return Added
	case p.after == nil:
		return Removed
	}
	return Changed
}

func (c *comparison) comparePackages() {
	var dependencies []Change
	first := -1
	for _, p := range findDiffering(c.before.Packages, c.after.Packages, func(p *Package) string { return p.Name },
		func(a, b *Package) bool { return a.Version == b.Version }) {
		c.explained[p.name] = true
		for _, side := range []*Package{p.before, p.after} {
			if side != nil {
				for _, a := range side.Accounts {
					c.accounts[a] = true
				}
			}
		}
		change := Change{Kind: KindPackage, Action: p.actionOf(), Name: p.name, packet: p.pair}
		switch change.Action {
		case Added:
			change.Summary = "package " + p.name + " " + p.after.Version + " was installed"
		case Removed:
			change.Summary = "package " + p.name + " " + p.before.Version + " was removed"
			change.keepsConfig = c.keepsConfig(p.name)
		default:
			change.Summary = "package " + p.name + " was changed from " + p.before.Version + " to " + p.after.Version
		}
		if change.Action == Added && p.after.Auto {
			dependencies = append(dependencies, change)
			continue
		}
		if first < 0 && change.Action != Removed {
			first = len(c.changes)
		}
		c.changes = append(c.changes, change)
	}
	if first >= 0 && len(dependencies) > 0 { // apt installed them for these packages
		names := make([]string, len(dependencies))
		for i := range dependencies {
			names[i], dependencies[i].silent = dependencies[i].Name, true
		}
		c.changes[first].Summary += ", with " + cutText(strings.Join(names, ", "), 500)
	}
	c.changes = append(c.changes, dependencies...)
}

// keepsConfig says whether a file in /etc of a removed package still exists, as dpkg leaves it unless it purges.
func (c *comparison) keepsConfig(name string) bool {
	return slices.ContainsFunc(c.before.Files, func(f File) bool {
		return f.Package == name && f.Type == Regular && isBelow(string(f.Path), "/etc") &&
			findFile(c.after.Files, string(f.Path)) != nil
	})
}

func (c *comparison) compareAccounts() {
	users := map[string]*User{}
	for i := range c.after.Users {
		users[c.after.Users[i].Name] = &c.after.Users[i]
	}
	newUsers := map[string]bool{}
	for _, p := range findDiffering(c.before.Users, c.after.Users, func(u *User) string { return u.Name }, equalUsers) {
		switch p.actionOf() {
		case Added:
			newUsers[p.name] = true
			c.homes[p.after.Home] = p.name
			c.sameOwner[[2]string{formatID(p.after.UID), p.name}] = true
		case Removed:
			c.sameOwner[[2]string{p.name, formatID(p.before.UID)}] = true
		}
		if c.accounts[p.name] && p.actionOf() != Changed {
			if p.after != nil {
				c.homes[p.after.Home] = ""
			}
			continue
		}
		c.changes = append(c.changes, Change{Kind: KindUser, Action: p.actionOf(), Name: p.name,
			Summary: userSummary(p.pair), user: p.pair})
		if p.after != nil && p.after.Password == PasswordSet && (p.before == nil || p.before.Password != PasswordSet) {
			c.addNote("the password of user " + p.name + " is set; an export has no passwords")
		}
	}
	c.compareGroups(users, newUsers)
	for i := range c.after.Files {
		f := &c.after.Files[i]
		if below, ok := strings.CutPrefix(string(f.Path), "/etc/skel/"); ok {
			c.skeleton[below] = f
		}
	}
}

func (c *comparison) compareGroups(users map[string]*User, newUsers map[string]bool) {
	for _, p := range findDiffering(c.before.Groups, c.after.Groups, func(g *Group) string { return g.Name },
		func(a, b *Group) bool { return *a == *b }) {
		if p.before == nil {
			c.sameGroup[[2]string{formatID(p.after.GID), p.name}] = true
		} else if p.after == nil {
			c.sameGroup[[2]string{p.name, formatID(p.before.GID)}] = true
		}
		if c.accounts[p.name] && p.actionOf() != Changed {
			continue
		}
		change := Change{Kind: KindGroup, Action: p.actionOf(), Name: p.name, group: p.pair}
		switch change.Action {
		case Added:
			change.Summary = fmt.Sprintf("group %s was added with number %d", p.name, p.after.GID)
			u := users[p.name]
			change.silent = u != nil && newUsers[p.name] && u.Group == p.name // made by useradd(8)
		case Removed:
			change.Summary = "group " + p.name + " was removed"
			change.silent = users[p.name] == nil && c.hadUser(p.name) // removed by userdel(8)
		default:
			change.Summary = fmt.Sprintf("group %s changed its number from %d to %d", p.name, p.before.GID, p.after.GID)
		}
		c.changes = append(c.changes, change)
	}
}

func formatID(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func (c *comparison) hadUser(name string) bool {
	return slices.ContainsFunc(c.before.Users, func(u User) bool { return u.Name == name })
}

func equalUsers(a, b *User) bool {
	return a.UID == b.UID && a.Group == b.Group && a.Comment == b.Comment && a.Home == b.Home && a.Shell == b.Shell &&
		a.Password == b.Password && a.Expires == b.Expires && slices.Equal(a.Groups, b.Groups)
}

func userSummary(p pair[User]) string {
	switch p.actionOf() {
	case Added:
		s := fmt.Sprintf("user %s was added with number %d, group %s, home %s, shell %s", p.after.Name,
			p.after.UID, p.after.Group,
			p.after.Home, p.after.Shell)
		if len(p.after.Groups) > 0 {
			s += ", in " + strings.Join(p.after.Groups, ", ")
		}
		return cutText(s, 1000)
	case Removed:
		return "user " + p.before.Name + " was removed"
	}
	var parts []string
	for _, field := range []struct{ name, before, after string }{
		{"number", formatID(p.before.UID), formatID(p.after.UID)},
		{"group", p.before.Group, p.after.Group}, {"comment", p.before.Comment, p.after.Comment},
		{"home", p.before.Home, p.after.Home}, {"shell", p.before.Shell, p.after.Shell},
		{"password", p.before.Password, p.after.Password}, {"expiry", p.before.Expires, p.after.Expires},
		{"groups", strings.Join(p.before.Groups, ", "), strings.Join(p.after.Groups, ", ")},
	} {
		if field.before != field.after {
			parts = append(parts, fmt.Sprintf("%s from %q to %q", field.name, field.before, field.after))
		}
	}
	return cutText("user "+p.after.Name+" was changed: "+strings.Join(parts, ", "), 1000)
}

func (c *comparison) compareServices() {
	for _, p := range findDiffering(c.before.Services, c.after.Services, func(s *Service) string { return s.Name },
		func(a, b *Service) bool { return a.State == b.State && slices.Equal(a.Wanted, b.Wanted) }) {
		switch {
		case p.before == nil && c.explained[p.after.Package] && p.after.State == p.after.Default,
			p.before == nil && c.explained[p.after.Package] && p.after.State == Static,
			p.after == nil && c.explained[p.before.Package]:
			continue
		}
		change := Change{Kind: KindService, Action: p.actionOf(), Name: p.name, service: p.pair}
		c.takeUnit(&change)
		change.Summary = serviceSummary(p.pair)
		if change.file.after == nil && p.after != nil && p.before == nil && p.after.State == Disabled {
			continue // its unit is named as a file
		}
		c.changes = append(c.changes, change)
	}
}

func serviceSummary(p pair[Service]) string {
	by := func(s *Service) string {
		if len(s.Wanted) == 0 {
			return s.State
		}
		return s.State + " (" + cutText(strings.Join(s.Wanted, ", "), 300) + ")"
	}
	switch p.actionOf() {
	case Added:
		return "service " + p.after.Name + " is new and " + by(p.after)
	case Removed:
		return "service " + p.before.Name + " was removed; it was " + by(p.before)
	}
	return "service " + p.after.Name + " was " + by(p.before) + " and is " + by(p.after)
}

// takeUnit merges the new or deleted unit of a service into the change of the service.
func (c *comparison) takeUnit(change *Change) {
	for i := range c.changes {
		f := &c.changes[i]
		at := f.file.after
		if at == nil {
			at = f.file.before
		}
		if at == nil || path.Base(string(at.Path)) != change.Name || change.Action != f.Action ||
			f.file.pairIsChange() {
			continue
		}
		if dir := path.Dir(string(at.Path)); strings.HasSuffix(dir, "/systemd/system") || dir == "/etc/init.d" {
			change.Diff = f.Diff
			f.silent = true
			if change.file == (pair[File]{}) {
				change.file = f.file
			}
		}
	}
}

func (p pair[T]) pairIsChange() bool { return p.before != nil && p.after != nil }

func (c *comparison) addNote(text string) { c.d.Notes = append(c.d.Notes, text) }

// finishList sorts the changes, and separates those that others explain.
func (c *comparison) finishList() {
	for i := range c.changes {
		if c.changes[i].silent {
			c.d.silent = append(c.d.silent, c.changes[i])
		} else {
			c.d.Changes = append(c.d.Changes, c.changes[i])
		}
		c.noteFile(c.changes[i].file.after)
	}
	order := []Kind{KindPackage, KindGroup, KindUser, KindDeleted, KindFile, KindConfig, KindHosts,
		KindPermission, KindCron,
		KindSysctl, KindService}
	slices.SortStableFunc(c.d.Changes, func(a, b Change) int {
		if n := slices.Index(order, a.Kind) - slices.Index(order, b.Kind); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	slices.Sort(c.d.Notes)
	c.d.Notes = slices.Compact(c.d.Notes)
	c.d.Omitted = append(append(c.d.Omitted, c.before.Omitted...), c.after.Omitted...)
	slices.SortFunc(c.d.Omitted, func(a, b Omitted) int {
		return strings.Compare(string(a.Path)+a.Reason, string(b.Path)+b.Reason)
	})
	c.d.Omitted = slices.Compact(c.d.Omitted)
}

// showPath returns a path as a person can read it.
func showPath(name string) string {
	if utf8.ValidString(name) && !hasControl(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
