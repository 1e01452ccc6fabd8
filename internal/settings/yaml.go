package settings

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/approver"
	"bailey/internal/redact"
	"bailey/internal/sshsig"
	"bailey/internal/strictyaml"
	"bailey/internal/workspace"
)

// Limits of the settings. One ledger entry (64 KiB) must hold all workspaces and the redaction.
const (
	MaxSettings   = 16 << 10 // bytes
	maxWorkspaces = 64
	maxRedaction  = 32 << 10 // bytes of the rules as JSON, including escapes
)

// Contents is the parsed content of a settings file.
type Contents struct {
	Workspaces []string      `json:"workspaces"`
	Readable   []string      `json:"readable,omitempty"` // directories that hooked agents may read, beside the workspaces
	Redaction  redact.Config `json:"redaction,omitzero"` // must compile; zero: the built-in rules
	// Signers: if set, a policy must have a signature of one of them. They are lines in the format of package sshsig.
	Signers []string `json:"policySigners,omitempty"`
	// Approvers: if set, only their answers to approval requests count; otherwise those of operators.
	Approvers []Approver `json:"approvers,omitempty"`
	// ControlPlanePages: answers of passkeys that were made on pages of the control plane itself are accepted. Then the
	// control plane is trusted to show what is asked.
	ControlPlanePages bool       `json:"controlPlanePages,omitempty"`
	Broker            *Broker    `json:"broker,omitempty"` // lends the credentials; nil: no broker
	Notify            Notify     `json:"notify,omitzero"`
	Network           Network    `json:"network,omitzero"` // network access beyond the manifests
	Agents            AgentRules `json:"agents,omitzero"`  // which agents may call
	Model             Model      `json:"model,omitzero"`   // the model proxy
	MicroVM           MicroVM    `json:"microvm,omitzero"` // machines of calls with isolation microvm
}

// Recorded returns the contents without the examples of the redaction. The ledger does not record the URL of the
// webhook either, which has no JSON.
func (c Contents) Recorded() Contents {
	c.Redaction = Expressions(c.Redaction)
	return c
}

// fileFormat is the format of settings and profiles.
var fileFormat = strictyaml.Format{
	Limits:  strictyaml.Limits{Bytes: MaxSettings, Flow: 4, Column: 24},
	Unknown: "%[2]q is not a %[1]s; use %[3]s", Twice: "%[2]s is already defined",
	NotMapping: "must have keys and values", Documents: "has %d documents, but must have one",
}

// reader is a file of settings or a profile while it is read.
type reader struct{ *strictyaml.File }

func newReader(name, apply string) reader {
	return reader{&strictyaml.File{Format: &fileFormat, Name: name, Hint: "correct it, then " + apply}}
}

// ParseSettings parses a settings file. It is strict: an unknown or repeated key, a workspace that is not an absolute
// path, or a redaction rule that fails its own examples is an error with line and column.
func ParseSettings(text []byte) (Contents, error) {
	r := newReader(FileName, "bailey init --apply")
	c := Contents{Workspaces: []string{}}
	r.readKeys(r.Body(text), "setting", strictyaml.Fields{
		"workspaces":        storeIn(&c.Workspaces, r.readWorkspaces),
		"readable":          storeIn(&c.Readable, r.readReadable),
		"redaction":         storeIn(&c.Redaction, r.readRedaction),
		"policySigners":     storeIn(&c.Signers, r.readSigners),
		"notify":            storeIn(&c.Notify, r.readNotify),
		"approvers":         storeIn(&c.Approvers, r.readApprovers),
		"controlPlanePages": r.boolField("controlPlanePages", &c.ControlPlanePages),
		"broker":            storeIn(&c.Broker, r.readBroker),
		"network":           storeIn(&c.Network, r.readNetwork),
		"model":             storeIn(&c.Model, r.readModel),
		"microvm":           storeIn(&c.MicroVM, r.readMicroVM),
		"agents": func(n ast.Node) {
			r.readKeys(n, "part of agents", strictyaml.Fields{
				"required": r.boolField("required", &c.Agents.Required),
				"listed":   r.countField("listed", maxListed, &c.Agents.Listed),
				"asking":   storeIn(&c.Agents.Asking, r.readAsking),
			})
		},
	})
	if err := r.Err(); err != nil {
		return Contents{Workspaces: []string{}}, err
	}
	return c, nil
}

// storeIn returns a function that reads a value into p.
func storeIn[T any](p *T, read func(ast.Node) T) func(ast.Node) {
	return func(n ast.Node) { *p = read(n) }
}

// fields reads a mapping. Nothing is an empty mapping.
func (r reader) readKeys(n ast.Node, what string, known strictyaml.Fields) {
	switch n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
	default:
		r.Fields(n, what, known)
	}
}

// items returns the elements of a list. A null value is an empty list.
func (r reader) readItems(n ast.Node, wants string) []ast.Node {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		return n.Values
	default:
		r.AddFault(n, "%s", wants)
	}
	return nil
}

// maxAsking limits the number of clients that may ask their user, maxClientName the length of their names.
const maxAsking, maxClientName = 16, 96

// readAsking reads the names of MCP clients, as the clients give them in initialize.
func (r reader) readAsking(n ast.Node) (names []string) {
	for _, item := range r.readItems(n, "asking must be a list of names of MCP clients") {
		name := r.readWord(item, maxClientName)
		if len(names) == maxAsking || slices.Contains(names, name) || strings.Contains(name, "/") {
			r.AddFault(item, "a client's name must have no '/' and be listed once; at most %d are allowed", maxAsking)
		}
		names = append(names, name)
	}
	return names
}

// freshSettings is the text before the first workspace in a new settings file.
const freshSettings = `# Settings of Bailey in this home. A change takes effect only when you apply it:
#
#   bailey init --apply    shows the difference and applies it
#
# Until then a starting gateway refuses calls that use paths, and redacts by the settings applied last.

# workspaces are the directories in which calls may use paths, one a line, absolute, without symbolic
# links. They are read-only unless a capability and a rule allow writing. If there are none, the
# directory a client is started in is the workspace of its session.
workspaces:
`

func (r reader) readWorkspaces(n ast.Node) []string { return r.readDirs(n, "workspaces", "workspace") }

// readReadable reads the directories that agents may read with their own tools.
func (r reader) readReadable(n ast.Node) []string {
	return r.readDirs(n, "readable", "readable directory")
}

// readDirs reads the directories of a key; one is called what.
func (r reader) readDirs(n ast.Node, key, what string) []string {
	dirs := []string{}
	for _, item := range r.readItems(n, key+" must be a list of directories") {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(dirs) == maxWorkspaces:
			r.AddFault(item, "there are more than %d directories in %s", maxWorkspaces, key)
			return dirs
		case !ok:
			r.AddFault(item, "a %s must be the path of a directory", what)
		case !filepath.IsAbs(n.Value) || filepath.Clean(n.Value) != n.Value || !isPrintable(n.Value):
			r.AddFault(item, "the %s %q is not an absolute, clean path", what, n.Value)
		case slices.Contains(dirs, n.Value):
			r.AddFault(item, "the %s %q is named twice", what, n.Value)
		default:
			dirs = append(dirs, n.Value)
		}
	}
	return dirs
}

// AddWorkspace returns text with dir as an additional workspace. Everything else, including comments, is preserved.
func AddWorkspace(text []byte, dir string) ([]byte, error) {
	old, err := ParseSettings(text)
	if err != nil {
		return nil, err
	}
	if !isPrintable(dir) {
		return nil, bailey.Invalid.Errorf("give the directory a plain name",
			"the path %q has characters that are not allowed in a settings file", dir)
	}
	if text == nil {
		text = []byte(freshSettings)
	}
	added := insertWorkspace(string(text), dir)
	now, err := ParseSettings([]byte(added))
	want := old
	want.Workspaces = append(slices.Clone(old.Workspaces), dir)
	if err != nil || !reflect.DeepEqual(now, want) {
		return nil, bailey.Conflict.New(FileName+" is formatted so that a workspace cannot be added",
			fmt.Sprintf("add the line %q below workspaces: by hand, then run bailey init --apply", "  - "+dir))
	}
	return []byte(added), nil
}

// insertWorkspace adds the line of dir after the last workspace, or after the key, or adds the key. The caller must parse the
// result again, so that a form that insert does not support is detected.
func insertWorkspace(text, dir string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	at, indent := -1, "  "
	if list := workspaceList([]byte(text)); list != nil && len(list.Values) > 0 {
		pos := list.Values[len(list.Values)-1].GetToken().Position
		at = pos.Line
		if line := lines[at-1]; strings.Contains(line, "-") {
			indent = line[:strings.Index(line, "-")]
		}
	} else if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "workspaces:") }); i >= 0 {
		at = i + 1
	} else {
		lines = slices.Insert(lines, len(lines)-1, "workspaces:\n")
		at = len(lines) - 1
	}
	return strings.Join(slices.Insert(lines, at, indent+"- "+strconv.Quote(dir)+"\n"), "")
}

// workspaceList returns the list node, or nil if the file has none.
func workspaceList(text []byte) (list *ast.SequenceNode) {
	r := newReader(FileName, "")
	r.readKeys(r.Body(text), "", strictyaml.Fields{"workspaces": func(n ast.Node) { list, _ = n.(*ast.SequenceNode) }})
	return list
}

// isPrintable reports whether a path can be written to a file and a terminal without escapes.
func isPrintable(path string) bool {
	return utf8.ValidString(path) &&
		!strings.ContainsFunc(path, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) })
}

// Approver is a person whose signed answers to approval requests count.
type Approver struct {
	Name  string   `json:"name"`
	Key   string   `json:"key"` // type and key, as in a .pub file; or the line of package passkey
	Roles []string `json:"roles,omitempty"`
}

// Limits of the setting approvers. One ledger entry must hold them all.
const (
	maxApprovers = 32
	maxRoles     = 16
	maxRole      = 64
)

// readApprovers reads the setting approvers. A name may have several keys and is one person. A key must have only one
// name, such as ada.
func (r reader) readApprovers(n ast.Node) (list []Approver) {
	var held []string
	for _, item := range r.readItems(n, "approvers must be a list of names with key and roles") {
		if len(list) == maxApprovers {
			r.AddFault(item, "there are more than %d approvers", maxApprovers)
			break
		}
		a := r.readApprover(item)
		key, err := approver.ParseKey(a.Name, a.Key)
		if err != nil {
			r.AddFault(item,
				"an approver's name is a word, and its key the type and key of a .pub file, or a passkey (%v)", err)
			continue
		}
		if slices.Contains(held, key.Fingerprint()) {
			r.AddFault(item, "the key of %s is listed twice: one person must not count as two", a.Name)
		}
		held = append(held, key.Fingerprint())
		list = append(list, a)
	}
	return list
}

func (r reader) readApprover(n ast.Node) (a Approver) {
	r.readKeys(n, "part of an approver", strictyaml.Fields{
		"name": r.wordField(maxSigner, &a.Name),
		"key":  r.wordField(maxSigner, &a.Key),
		"roles": func(n ast.Node) {
			for _, item := range r.readItems(n, "roles must be a list of names") {
				role := r.readWord(item, maxRole)
				if len(a.Roles) == maxRoles || slices.Contains(a.Roles, role) ||
					strings.Trim(role, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
					r.AddFault(item,
						"a role must be lower case letters, digits, '.', '_' or '-', and be listed once; at most %d are allowed", maxRoles)
				}
				a.Roles = append(a.Roles, role)
			}
		},
	})
	if a.Name == "" || a.Key == "" || strings.ContainsAny(a.Name, " \t") {
		r.AddFault(n, "an approver needs a name and a key")
	}
	return a
}

// readWord reads one line of text.
func (r reader) readWord(n ast.Node, most int) string {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Value == "" || len(s.Value) > most || strings.ContainsAny(s.Value, "\r\n") {
		r.AddFault(n, "must be one line of at most %d bytes", most)
		return ""
	}
	return s.Value
}

func (r reader) wordField(most int, p *string) func(ast.Node) {
	return func(n ast.Node) { *p = r.readWord(n, most) }
}

// Broker says where credentials are leased.
type Broker struct {
	Socket string `json:"socket"`
	UID    int    `json:"uid"` // uid of the process that must listen there
	// CheckpointKey has the ledger's checkpoints signed with a key of the broker, not of the home.
	CheckpointKey bool `json:"checkpointKey,omitempty"`
	// SSHLease is the lease whose authority certifies logins to source hosts. If it is "", the key is a file of the home.
	SSHLease string `json:"sshLease,omitempty"`
}

// readBroker reads the setting broker. The uid has no default: otherwise an attacker that replaces the broker's socket
// would be trusted.
func (r reader) readBroker(n ast.Node) *Broker {
	if _, none := n.(*ast.NullNode); none {
		return nil
	}
	b := &Broker{UID: -1}
	r.readKeys(n, "part of broker", strictyaml.Fields{
		"socket": r.wordField(maxSigner, &b.Socket),
		"uid": func(n ast.Node) {
			i, ok := n.(*ast.IntegerNode)
			if !ok {
				r.AddFault(n, "uid must be a number, that of the broker's user (id -u bailey-broker)")
				return
			}
			uid, err := strconv.ParseUint(i.Token.Value, 0, 31)
			if err != nil {
				r.AddFault(n, "%s is not a uid", i.Token.Value)
			}
			b.UID = int(uid)
		},
		"checkpointKey": r.boolField("checkpointKey", &b.CheckpointKey),
		"sshLease":      r.wordField(maxSigner, &b.SSHLease),
	})
	switch {
	case !filepath.IsAbs(b.Socket) || filepath.Clean(b.Socket) != b.Socket:
		r.AddFault(n, "broker needs socket, the absolute path of its socket")
	case b.UID < 0:
		r.AddFault(n, "broker needs uid, that of the broker's user: no other listener is trusted")
	}
	return b
}

// Notify says how users are notified of an approval request. The zero value notifies no user.
type Notify struct {
	Desktop bool   `json:"desktop,omitempty"`
	Webhook string `json:"webhook,omitempty"` // scheme, host and the first digits of the SHA-256 of URL
	// URL is the complete webhook. Many receivers authenticate the sender by it, so it must not be in the ledger.
	URL bailey.Secret `json:"-"`
}

// maxURL is the maximum length of a webhook's URL in bytes.
const maxURL = 1024

func (r reader) readNotify(n ast.Node) (c Notify) {
	r.readKeys(n, "way to notify", strictyaml.Fields{
		"desktop": r.boolField("desktop", &c.Desktop),
		"webhook": func(n ast.Node) {
			r.readKeys(n, "part of a webhook",
				strictyaml.Fields{"url": func(n ast.Node) { c.Webhook, c.URL = r.readWebhook(n) }})
			if c.Webhook == "" {
				r.AddFault(n, "a webhook needs a url")
			}
		},
	})
	return c
}

// readWebhook reads a URL, which must be https, or http to this machine. No error quotes it.
func (r reader) readWebhook(n ast.Node) (shown string, whole bailey.Secret) {
	text := r.readWord(n, maxURL)
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || !isPrintable(text):
		r.AddFault(n, "the url of a webhook is malformed")
		return "", whole
	case u.User != nil || u.Fragment != "":
		r.AddFault(n, "the url of a webhook must have neither a user nor a fragment")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLocalhost(u.Hostname())):
		r.AddFault(n, "the url of a webhook must be https, or http of this machine (127.0.0.1, [::1], localhost)")
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s://%s %x", u.Scheme, u.Host, sum[:4]), bailey.NewSecret(text)
}

// isLocalhost reports whether a host names this machine. It checks only the name; the address is checked when the webhook is
// called.
func isLocalhost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Limits of the setting policySigners. One ledger entry must hold all signers.
const (
	maxSigners = 32
	maxSigner  = 1 << 10 // bytes per signer
)

// readSigners reads the setting policySigners, the keys that may sign a policy. If it is set, a policy without such a
// signature is not applied.
func (r reader) readSigners(n ast.Node) (lines []string) {
	const form = "a signer is a name, a key's type and the key, as in: ada ssh-ed25519 AAAA…"
	for _, item := range r.readItems(n, "policySigners must be a list of keys") {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(lines) == maxSigners:
			r.AddFault(item, "there are more than %d signers", maxSigners)
			return lines
		case !ok || len(n.Value) > maxSigner || strings.ContainsAny(n.Value, "\r\n"):
			r.AddFault(item, form)
			continue
		}
		keys, err := sshsig.ParseKeys([]byte(n.Value))
		switch {
		case err != nil || len(keys) != 1:
			r.AddFault(item, form+" (%v)", err)
		case slices.Contains(lines, n.Value):
			r.AddFault(item, "a signer is listed twice")
		}
		lines = append(lines, n.Value)
	}
	return lines
}

// readSockets reads the sockets of daemons.
func (r reader) readSockets(n ast.Node) map[string]string {
	all, known := map[string]string{}, strictyaml.Fields{}
	for _, daemon := range bailey.Daemons() {
		known[daemon] = func(n ast.Node) {
			path := r.readWord(n, maxWord)
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				r.AddFault(n, "a socket must be an absolute path without .., for example /var/run/docker.sock")
			}
			all[daemon] = path
		}
	}
	r.readKeys(n, "daemon", known)
	return all
}

// Sheltered refuses a daemon's socket inside a workspace: a process that can create sockets there can reach the daemon
// without the gate.
func Sheltered(n Network, workspaces []string) error {
	for _, daemon := range slices.Sorted(maps.Keys(n.Sockets)) {
		if path := n.Sockets[daemon]; (workspace.Bounds{Dirs: workspaces}).Hold(workspace.Canonical(path)) {
			return bailey.Invalid.New("the socket "+path+" of "+daemon+" is in a workspace",
				"make the daemon listen elsewhere: an agent in the workspace could reach it")
		}
	}
	return nil
}
