package broker

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/sshsig"
)

// Names in the broker's directory.
const (
	TableName   = "broker.yaml"
	journalName = "journal"
	lockName    = "lock"
	SocketName  = "broker.sock"
)

// Limits of a table.
const (
	maxTable     = 64 << 10 // bytes
	maxApprovers = 64
	maxLeases    = 256
	minTTL       = time.Second
	maxTTL       = 24 * time.Hour
)

// Table lists the credentials that a broker lends, the uids that may borrow them, and the approvers. The zero value
// lends nothing.
type Table struct {
	Digest    string // SHA-256 of the file, hex
	Admitted  []int  // uids that may connect; the broker's own always may
	Approvers []Approver
	Leases    map[string]Entry

	keys []sshsig.Key // of the approvers, in the same order
}

// Approver is a person whose signed answers count.
type Approver struct {
	Name  string
	Key   string // type and key, as in a .pub file
	Roles []string
}

// Entry is one credential.
type Entry struct {
	Adapter  string // its name
	Scope    string // text shown to approvers
	TTL      time.Duration
	Approval *Approval // nil: lent without an answer

	summary string
	mint    Adapter
}

// Approval is the condition that an answer must meet.
type Approval struct {
	Level bailey.Level // [bailey.SignedSoftware] or [bailey.SignedTouch]
	Roles []string     // each person who counts must have all of them
	Count int          // number of people
}

func (a *Approval) String() string {
	if a == nil {
		return "no approval"
	}
	text := fmt.Sprintf("approval of %d at %s", a.Count, a.Level)
	if len(a.Roles) > 0 {
		text += " with " + strings.Join(a.Roles, ", ")
	}
	return text
}

// Lines describes the table, without values, in sorted lines that a person can compare.
func (t *Table) Lines() (lines []string) {
	for _, uid := range t.Admitted {
		lines = append(lines, fmt.Sprintf("admitted %d", uid))
	}
	for _, a := range t.Approvers {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("approver %s %s with %s", a.Name, a.Key, strings.Join(a.Roles, ", ")), " with "))
	}
	for name, e := range t.Leases {
		lines = append(lines, "lease "+name+": "+e.String())
	}
	slices.Sort(lines)
	return lines
}

func (e Entry) String() string {
	return fmt.Sprintf("%s, for %s, %v, %v", e.summary, cmp.Or(e.Scope, "whatever it is good for"), e.TTL, e.Approval)
}

// loanScope returns the terms of a loan of the entry.
func (e Entry) loanScope(w want) scope {
	return scope{Name: w.Name, Env: w.Env, Adapter: e.Adapter, Scope: e.Scope, TTL: int64(e.TTL / time.Second),
		Approval: e.Approval != nil}
}

// canConnect reports whether a uid may connect: a listed one, or the broker's own.
func (t *Table) canConnect(uid, own int) bool { return uid == own || slices.Contains(t.Admitted, uid) }

// findEntry returns the entry of the table for a want.
func (t *Table) findEntry(w want) (Entry, error) {
	e, ok := t.Leases[w.Name]
	if !ok {
		return e, unavailableError(nil, "name it under leases in "+TableName+", then bailey-broker apply; there is "+cmp.Or(leaseNames(t.Leases), "none"),
			"credential %q is not in the broker's table", w.Name)
	}
	return e, nil
}

func leaseNames(m map[string]Entry) string {
	var list []string
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// checkTable returns an error if the parts of a table do not fit together.
func (t *Table) checkTable() error {
	if len(t.Approvers) > maxApprovers || len(t.Leases) > maxLeases {
		return tableFault("it names over %d approvers or %d leases", maxApprovers, maxLeases)
	}
	if err := t.readKeys(); err != nil {
		return err
	}
	for name, e := range t.Leases {
		if e.Approval == nil {
			continue
		}
		able := map[string]bool{}
		for i, a := range t.Approvers {
			if hasRoles(a.Roles, e.Approval.Roles) && (e.Approval.Level != bailey.SignedTouch || t.keys[i].Hardware()) {
				able[a.Name] = true
			}
		}
		if len(able) < e.Approval.Count {
			return tableFault("lease %s wants %v, and %d of the approvers could give that", name, e.Approval, len(able))
		}
	}
	return nil
}

// readKeys parses the keys of the approvers. A name may have several keys and is one person. A key must have one name
// only.
func (t *Table) readKeys() error {
	t.keys = nil
	seen := map[string]bool{}
	for _, a := range t.Approvers {
		keys, err := sshsig.ParseKeys([]byte(a.Name + " " + a.Key))
		switch {
		case err != nil || len(keys) != 1 || keys[0].Name != a.Name:
			return tableFault("approver %.60q: the name is a word, and the key the type and the key of a .pub file (%v)", a.Name, err)
		case seen[keys[0].Fingerprint()]:
			return tableFault("the key of approver %s is named twice: one person must not answer as two", a.Name)
		}
		for _, role := range a.Roles {
			if !isName(role) {
				return tableFault("approver %s: %.40q is no role: lower case letters, digits, '.', '_' and '-' are",
					a.Name, role)
			}
		}
		seen[keys[0].Fingerprint()] = true
		t.keys = append(t.keys, keys[0])
	}
	return nil
}

// hasRoles reports whether roles contains all wanted roles.
func hasRoles(roles, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(r string) bool { return !slices.Contains(roles, r) })
}

// isName reports whether s is a valid name of a lease or a role.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

func tableFault(format string, args ...any) error {
	return bailey.Invalid.New(TableName+": "+fmt.Sprintf(format, args...),
		"correct it, then bailey-broker apply; docs/broker.md shows a table")
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// LoadTable reads the table of a directory that another broker serves.
func LoadTable(dir string) (*Table, error) {
	s := &Server{Config: Config{Dir: dir}}
	s.setDefaults()
	if err := s.perm(dir); err != nil {
		return nil, notOurs(dir, err)
	}
	return s.ReadTable()
}
