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

// Bounds of a table.
const (
	maxTable     = 64 << 10 // bytes
	maxApprovers = 64
	maxLeases    = 256
	minTTL       = time.Second
	maxTTL       = 24 * time.Hour
)

// Table is what a broker lends, to whom, and for whose word. Its zero value lends nothing to anybody.
type Table struct {
	Digest    string // SHA-256 of the file, hex
	Admitted  []int  // uids that may connect; the broker's own always may
	Approvers []Approver
	Leases    map[string]Entry

	keys []sshsig.Key // of the approvers, in their order
}

// Approver is somebody whose signed answers count.
type Approver struct {
	Name  string
	Key   string // type and key, as a .pub file has them
	Roles []string
}

// Entry is one credential.
type Entry struct {
	Adapter  string // its name
	Scope    string // in words, for who is asked
	TTL      time.Duration
	Approval *Approval // nil: it is lent without an answer

	summary string
	mint    Adapter
}

// Approval is what an answer has to come to.
type Approval struct {
	Level bailey.Level // [bailey.SignedSoftware] or [bailey.SignedTouch]
	Roles []string     // that each who counts holds all of
	Count int          // of how many people
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

// Lines say what the table is, without a value, sorted: for a person who compares two.
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

// scope is what a loan of the entry comes to.
func (e Entry) scope(w want) scope {
	return scope{Name: w.Name, Env: w.Env, Adapter: e.Adapter, Scope: e.Scope, TTL: int64(e.TTL / time.Second), Approval: e.Approval != nil}
}

// admits reports whether a uid may connect: one that is listed, or the broker's own.
func (t *Table) admits(uid, own int) bool { return uid == own || slices.Contains(t.Admitted, uid) }

// entry is the table's for a want.
func (t *Table) entry(w want) (Entry, error) {
	e, ok := t.Leases[w.Name]
	if !ok {
		return e, unavailable(nil, "name it under leases in "+TableName+", then bailey-broker apply; there is "+cmp.Or(listed(t.Leases), "none"),
			"credential %q is not in the broker's table", w.Name)
	}
	return e, nil
}

func listed(m map[string]Entry) string {
	var list []string
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// fit says what is wrong with a table as a whole.
func (t *Table) fit() error {
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
			if holds(a.Roles, e.Approval.Roles) && (e.Approval.Level != bailey.SignedTouch || t.keys[i].Hardware()) {
				able[a.Name] = true
			}
		}
		if len(able) < e.Approval.Count {
			return tableFault("lease %s wants %v, and %d of the approvers could give that", name, e.Approval, len(able))
		}
	}
	return nil
}

// readKeys reads the keys of the approvers. One name may have several, and is one person; a key has one name.
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
				return tableFault("approver %s: %.40q is no role: lower case letters, digits, '.', '_' and '-' are", a.Name, role)
			}
		}
		seen[keys[0].Fingerprint()] = true
		t.keys = append(t.keys, keys[0])
	}
	return nil
}

// holds reports whether somebody with these roles has all that are wanted.
func holds(roles, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(r string) bool { return !slices.Contains(roles, r) })
}

// isName holds for names of leases and roles.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

func tableFault(format string, args ...any) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: TableName + ": " + fmt.Sprintf(format, args...), Hint: "correct it, then bailey-broker apply; docs/broker.md shows a table"}
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// LoadTable reads the table of a directory that another broker serves.
func LoadTable(dir string) (*Table, error) {
	s := &Server{Config: Config{Dir: dir}}
	s.defaults()
	if err := s.perm(dir); err != nil {
		return nil, notOurs(dir, err)
	}
	return s.ReadTable()
}
