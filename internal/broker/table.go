package broker

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"bailey"
	"bailey/internal/approver"
	"bailey/internal/strictyaml"
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

// tableLimits limits the file. The parser's own messages are not used, because they may quote a line with a value.
var tableLimits = strictyaml.Limits{Bytes: maxTable, Flow: 8, Column: 64, Opaque: true}

// Table lists the credentials that a broker lends, the uids that may borrow them, and the approvers. The zero value
// lends nothing.
type Table struct {
	Digest    string // SHA-256 of the file, hex
	Admitted  []int  // uids that may connect; the broker's own always may
	Approvers []Approver
	Leases    map[string]Entry

	keys []approver.Key // of the approvers, in the same order
}

// Approver is a person whose signed answers count.
type Approver struct {
	Name  string
	Key   string // type and key, as in a .pub file; or the line of package passkey
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
	return fmt.Sprintf("%s, for %s, %v, %v", e.summary, cmp.Or(e.Scope, "anything that it allows"), e.TTL, e.Approval)
}

// loanScope returns the terms of a loan of the entry.
func (e Entry) loanScope(w want) scope {
	return scope{Name: w.Name, Env: w.Env, Adapter: e.Adapter, Scope: e.Scope, TTL: int64(e.TTL / time.Second),
		Approval: e.Approval != nil}
}

// canConnect reports whether a uid may connect: a listed one, or the broker's own.
func (t *Table) canConnect(uid, own int) bool { return uid == own || slices.Contains(t.Admitted, uid) }

// findEntry returns the entry of the table for a want, with the limits of its call.
func (t *Table) findEntry(w want) (Entry, error) {
	e, ok := t.Leases[w.Name]
	if !ok && w.Name == azureLogin {
		return e, unavailableError(nil, "use a capability of pack az with inputs instead, which takes the lease azure-headers: bailey capabilities list",
			"a command line of az needs the directory of az login, and no lease has that form")
	}
	if !ok {
		return e, unavailableError(nil, "name it under leases in "+TableName+", then bailey-broker apply; there is "+cmp.Or(leaseNames(t.Leases), "none"),
			"credential %q is not in the broker's table", w.Name)
	}
	return e.narrowEntry(w)
}

// azureLogin is the credential of typed lines of az. az takes an access token alone, without one to renew it, but from two
// files with names of its own in a directory that it writes; a credential is one file, which no tool writes.
const azureLogin = "azure-login"

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
		return tableFault("it has more than %d approvers or %d leases", maxApprovers, maxLeases)
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
			if hasRoles(a.Roles, e.Approval.Roles) && (e.Approval.Level != bailey.SignedTouch || t.keys[i].CanTouch()) {
				able[a.Name] = true
			}
		}
		if len(able) < e.Approval.Count {
			return tableFault("lease %s requires %v, but only %d approvers qualify", name, e.Approval, len(able))
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
		key, err := approver.ParseKey(a.Name, a.Key)
		switch {
		case err != nil:
			return tableFault("approver %.60q is malformed: the name must be a word, and the key the type and key of a .pub file, or a passkey (%v)", a.Name, err)
		case seen[key.Fingerprint()]:
			return tableFault("the key of approver %s is listed twice: one person must not count as two", a.Name)
		}
		for _, role := range a.Roles {
			if !isName(role) {
				return tableFault("approver %s: %.40q is not a role: use lower case letters, digits, '.', '_' and '-'",
					a.Name, role)
			}
		}
		seen[key.Fingerprint()] = true
		t.keys = append(t.keys, key)
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
		"correct it, then run bailey-broker apply; docs/broker.md shows a table")
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

// rawValue is a value of the file that is decoded later, as strictly as the rest.
type rawValue struct{ decode func(any) error }

func (r *rawValue) UnmarshalYAML(decode func(any) error) error {
	r.decode = decode
	return nil
}

// ParseTable parses a table strictly. It returns an error if a key is unknown or occurs twice, or if a lease does not
// say whether it needs an approval. No error contains a value.
func ParseTable(text []byte, dir string, adapters map[string]Make) (t *Table, err error) {
	defer func() { // the parser is foreign code; a panic in it counts as an error in the file
		if p := recover(); p != nil {
			t, err = nil, tableFault("it cannot be parsed")
		}
	}()
	docs, fault := tableLimits.Parse(text)
	switch {
	case fault != nil && fault.Line > 0:
		return nil, tableFault("line %d, column %d: %s", fault.Line, fault.Column, fault.Text)
	case fault != nil:
		return nil, tableFault("%s", fault.Text)
	case len(docs) > 1:
		return nil, tableFault("it has more than one document")
	}
	var said struct {
		Admitted  []int               `yaml:"admitted"`
		Approvers []Approver          `yaml:"approvers"`
		Leases    map[string]rawValue `yaml:"leases"`
	}
	if len(docs) == 1 && docs[0].Body != nil {
		if err := yaml.NodeToValue(docs[0].Body, &said, yaml.Strict()); err != nil {
			return nil, positionError(err)
		}
	}
	t = &Table{Digest: digestOf(text), Admitted: said.Admitted, Approvers: said.Approvers, Leases: map[string]Entry{}}
	for _, uid := range t.Admitted {
		if uid < 0 {
			return nil, tableFault("%d is not a uid", uid)
		}
	}
	for name, r := range said.Leases {
		if !isName(name) {
			return nil, tableFault("%.60q is not a lease name: use lower case letters, digits, '.', '_' and '-'",
				name)
		}
		if t.Leases[name], err = readEntry(r, dir, adapters); err != nil {
			if bailey.KindOf(err) != bailey.Invalid {
				err = tableFault("lease %s: %v", name, err)
			}
			return nil, err
		}
	}
	return t, t.checkTable()
}

// readEntry reads a lease: scope, ttl, approval, and exactly one key that names an adapter.
func readEntry(r rawValue, dir string, adapters map[string]Make) (e Entry, err error) {
	var parts map[string]rawValue
	if r.decode == nil {
		return e, errors.New("it is empty")
	}
	if err := r.decode(&parts); err != nil {
		return e, positionError(err)
	}
	e.TTL = bailey.DefaultTimeout
	approval, ttl := false, false
	for key, part := range parts {
		switch {
		case part.decode == nil:
			err = fmt.Errorf("%s is empty", key)
		case key == "scope":
			err = positionError(part.decode(&e.Scope))
		case key == "ttl":
			e.TTL, err = readTTL(part)
			ttl = true
		case key == "approval":
			e.Approval, err = readApproval(part)
			approval = true
		case adapters[key] == nil:
			err = fmt.Errorf("%.40q is not a key of a lease; use scope, ttl, approval, and one of %s", key,
				adapterNames(adapters))
		case e.Adapter != "":
			err = fmt.Errorf("it has both %s and %s; use one", min(e.Adapter, key), max(e.Adapter, key))
		default:
			e.Adapter = key
			decode := func(into any) error { return positionError(part.decode(into)) }
			if e.mint, e.summary, err = adapters[key](decode, dir); err != nil && bailey.KindOf(err) != bailey.Invalid {
				err = fmt.Errorf("%s: %w", key, err)
			}
		}
		if err != nil {
			return e, err
		}
	}
	switch {
	case e.Adapter == "":
		return e, fmt.Errorf("it has no source: add one of %s", adapterNames(adapters))
	case !approval:
		return e, errors.New("it has no approval: write approval: none, or approval: {level: signed-software, roles: [], count: 1}")
	case e.Adapter == "token" && e.Scope == "":
		return e, errors.New("a token needs a scope that describes what it allows")
	case len(e.Scope) > maxWord || !isPrintable(e.Scope):
		return e, fmt.Errorf("scope must be one line of at most %d bytes", maxWord)
	}
	if e.Adapter == "ssh" {
		err = checkSSHLease(&e, ttl)
	}
	return e, err
}

func readTTL(r rawValue) (time.Duration, error) {
	var text string
	if err := r.decode(&text); err != nil {
		return 0, positionError(err)
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < minTTL || ttl > maxTTL || ttl%time.Second != 0 {
		return 0, fmt.Errorf("ttl must be whole seconds from %v to %v, for example 10m", minTTL, maxTTL)
	}
	return ttl, nil
}

func readApproval(r rawValue) (*Approval, error) {
	var word string
	if err := r.decode(&word); err == nil && word == "none" {
		return nil, nil
	}
	var said struct {
		Level string   `yaml:"level"`
		Roles []string `yaml:"roles"`
		Count *int     `yaml:"count"`
	}
	if err := r.decode(&said); err != nil {
		return nil, positionError(err)
	}
	a := &Approval{Level: bailey.Level(said.Level), Roles: said.Roles, Count: 1}
	if said.Count != nil {
		a.Count = *said.Count
	}
	switch {
	case a.Level != bailey.SignedSoftware && a.Level != bailey.SignedTouch:
		return nil, fmt.Errorf("level must be %s or %s: the broker cannot tell who gave an unsigned answer", bailey.SignedSoftware, bailey.SignedTouch)
	case a.Count < 1 || a.Count > maxApprovers:
		return nil, fmt.Errorf("count must be 1 to %d", maxApprovers)
	}
	return a, nil
}

// positionError returns an error with the position in the file. The parser's own message is not used, because it may quote a
// line with a value.
func positionError(err error) error {
	if err == nil || bailey.KindOf(err) == bailey.Invalid {
		return err
	}
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil || at.GetToken().Position == nil {
		return tableFault("it cannot be parsed")
	}
	what := "this cannot be parsed"
	var unknown *yaml.UnknownFieldError
	var twice *yaml.DuplicateKeyError
	if errors.As(err, &unknown) || errors.As(err, &twice) { // these messages quote only a key
		what = at.GetMessage()
	}
	return tableFault("line %d, column %d: %s", at.GetToken().Position.Line, at.GetToken().Position.Column, what)
}

func isPrintable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}
