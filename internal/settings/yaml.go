package settings

import (
	"cmp"
	"crypto/sha256"
	"errors"
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

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"bailey"
	"bailey/internal/redact"
	"bailey/internal/sshsig"
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
	Redaction  redact.Config `json:"redaction,omitzero"` // must compile; zero: the built-in rules
	// Signers: if set, a policy must have a signature of one of them. They are lines in the format of package sshsig.
	Signers []string `json:"policySigners,omitempty"`
	// Approvers: if set, only their answers to approval requests count; otherwise those of operators.
	Approvers []Approver `json:"approvers,omitempty"`
	Broker    *Broker    `json:"broker,omitempty"` // lends the credentials; nil: no broker
	Notify    Notify     `json:"notify,omitzero"`
	Network   Network    `json:"network,omitzero"` // network access beyond the manifests
	Agents    AgentRules `json:"agents,omitzero"`  // which agents may call
}

// Recorded returns the contents without the examples of the redaction. The ledger does not record the URL of the
// webhook either, which has no JSON.
func (c Contents) Recorded() Contents {
	c.Redaction = Expressions(c.Redaction)
	return c
}

// ParseSettings parses a settings file. It is strict: an unknown or repeated key, a workspace that is not an absolute
// path, or a redaction rule that fails its own examples is an error with line and column.
func ParseSettings(text []byte) (c Contents, err error) {
	defer func() { err = inFile(FileName, "bailey init --apply", err) }()
	defer recoverParser(&err)
	body, err := parseDocument(text)
	if err != nil {
		return Contents{Workspaces: []string{}}, err
	}
	c.Workspaces = []string{}
	err = readMapping(body, "setting", keyReaders{
		"workspaces":    func(n ast.Node) (err error) { c.Workspaces, err = workspacesOf(n); return err },
		"redaction":     func(n ast.Node) (err error) { c.Redaction, err = rulesOf(n); return err },
		"policySigners": func(n ast.Node) (err error) { c.Signers, err = signersOf(n); return err },
		"notify":        func(n ast.Node) (err error) { c.Notify, err = notifyOf(n); return err },
		"approvers":     func(n ast.Node) (err error) { c.Approvers, err = approversOf(n); return err },
		"broker":        func(n ast.Node) (err error) { c.Broker, err = brokerOf(n); return err },
		"network":       func(n ast.Node) (err error) { c.Network, err = networkOf(n); return err },
		"agents": func(n ast.Node) error {
			return readMapping(n, "part of agents",
				keyReaders{"required": readBool("required", &c.Agents.Required),
					"listed": countOf("listed", maxListed, &c.Agents.Listed),
					"asking": func(n ast.Node) (err error) { c.Agents.Asking, err = askingOf(n); return err }})
		},
	})
	if err != nil {
		return Contents{Workspaces: []string{}}, err
	}
	return c, nil
}

// recoverParser converts a panic of the parser, which is third-party code, to an error about the file.
func recoverParser(err *error) {
	if p := recover(); p != nil {
		*err = unreadableError(fmt.Errorf("%v", p))
	}
}

// parseDocument returns the single document of a text, or nil if there is none.
func parseDocument(text []byte) (ast.Node, error) {
	if len(text) > MaxSettings || !utf8.Valid(text) {
		return nil, unreadableError(fmt.Errorf("it is not UTF-8 of at most %d bytes", MaxSettings))
	}
	tokens := lexer.Tokenize(string(text))
	if err := checkDepth(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return nil, faultAt(at.GetToken(), "%s", at.GetMessage())
		}
		return nil, unreadableError(err)
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return file.Docs[0].Body, nil
	}
	return nil, unreadableError(fmt.Errorf("it holds %d documents", len(file.Docs)))
}

// checkDepth refuses deep nesting and unneeded syntax before the recursive parser sees the text. Blocks nest by column, so
// their column is limited. Outside braces, a line may have only one key.
func checkDepth(tokens token.Tokens) error {
	const nest, column = 4, 24
	flow, keyed := 0, 0
	for _, t := range tokens {
		deep := false
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType,
			token.MappingKeyType:
			return faultAt(t, "anchors, aliases, tags, merge keys, directives and complex keys are not read")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			deep = t.Position.Column > column
		case token.MappingValueType:
			deep = flow == 0 && (t.Position.Line == keyed || t.Prev != nil && t.Prev.Position.Column > column)
			if flow == 0 {
				keyed = t.Position.Line
			}
		}
		if deep || flow > nest {
			return faultAt(t, "settings are not nested so deep")
		}
	}
	return nil
}

// keyReaders maps each allowed key of a mapping to the function that reads its value.
type keyReaders map[string]func(ast.Node) error

// readMapping reads a mapping. Every key must be known and may occur only once.
func readMapping(n ast.Node, what string, known keyReaders) error {
	pairs, ok := pairsOf(n)
	if !ok {
		return nodeError(n, "wants keys and values")
	}
	seen := map[string]bool{}
	for _, kv := range pairs {
		key, ok := kv.Key.(*ast.StringNode)
		if !ok || known[key.Value] == nil {
			return nodeError(kv.Key, "%q is no %s; there is %s", kv.Key.String(), what,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if seen[key.Value] {
			return nodeError(kv.Key, "%s stands here twice", key.Value)
		}
		seen[key.Value] = true
		if err := known[key.Value](kv.Value); err != nil {
			return err
		}
	}
	return nil
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil, true
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// readList reads a list. A null value is an empty list.
func readList(n ast.Node, wants string, read func(ast.Node) error) error {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for _, item := range n.Values {
			if err := read(item); err != nil {
				return err
			}
		}
	default:
		return nodeError(n, "%s", wants)
	}
	return nil
}

func unreadableError(err error) error { return &parseError{why: " cannot be read", err: err} }

func nodeError(n ast.Node, format string, args ...any) error {
	return faultAt(n.GetToken(), format, args...)
}

func faultAt(at *token.Token, format string, args ...any) error {
	return &parseError{why: positionText(at) + ": " + fmt.Sprintf(format, args...)}
}

// positionText returns the position of a token in its file.
func positionText(at *token.Token) string {
	if at == nil || at.Position == nil {
		return ""
	}
	return fmt.Sprintf(":%d:%d", at.Position.Line, at.Position.Column)
}

// parseError is an error in a file whose name the parser does not know; see [inFile].
type parseError struct {
	why  string // the text after the file name
	cure string // hint; if empty: correct it
	err  error
}

func (m *parseError) Error() string { return "the file" + m.why }

// inFile adds to an error the file name and the command that applies the corrected file.
func inFile(name, apply string, err error) error {
	m, ok := err.(*parseError)
	if !ok {
		return err
	}
	return bailey.Invalid.Wrap(m.err, name+m.why, cmp.Or(m.cure, "correct it")+", then "+apply)
}

// maxAsking limits the number of clients that may ask their user, maxClientName the length of their names.
const maxAsking, maxClientName = 16, 96

// askingOf reads the names of MCP clients, as the clients give them in initialize.
func askingOf(n ast.Node) (names []string, err error) {
	err = readList(n, "asking wants a list of names of MCP clients", func(item ast.Node) error {
		name, err := wordOf(item, maxClientName)
		if err == nil && (len(names) == maxAsking || slices.Contains(names, name) || strings.Contains(name, "/")) {
			err = nodeError(item, "a client's name has no '/' and is listed only once; at most %d may be listed",
				maxAsking)
		}
		names = append(names, name)
		return err
	})
	return names, err
}

// freshSettings is the text before the first workspace in a new settings file.
const freshSettings = `# Settings of Bailey in this home. A change takes effect when you apply it, not before:
#
#   bailey init --apply    shows the difference and applies it
#
# Until then a gateway that starts refuses calls that name a path, and redacts as was applied last.

# workspaces are the directories that calls may name paths in, one a line, absolute, without symbolic
# links. They are read-only unless a capability and a rule say otherwise. While there is none, the
# directory a client is started in is the workspace of its session.
workspaces:
`

func workspacesOf(n ast.Node) ([]string, error) {
	dirs := []string{}
	err := readList(n, "workspaces wants a list of directories", func(item ast.Node) error {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(dirs) == maxWorkspaces:
			return nodeError(item, "over the %d workspaces allowed", maxWorkspaces)
		case !ok:
			return nodeError(item, "a workspace is the path of a directory")
		case !filepath.IsAbs(n.Value) || filepath.Clean(n.Value) != n.Value || !isPrintable(n.Value):
			return nodeError(item, "the workspace %q is not an absolute, clean path", n.Value)
		case slices.Contains(dirs, n.Value):
			return nodeError(item, "the workspace %q is named twice", n.Value)
		}
		dirs = append(dirs, n.Value)
		return nil
	})
	return dirs, err
}

// AddWorkspace returns text with dir as an additional workspace. Everything else, including comments, is preserved.
func AddWorkspace(text []byte, dir string) ([]byte, error) {
	old, err := ParseSettings(text)
	if err != nil {
		return nil, err
	}
	if !isPrintable(dir) {
		return nil, bailey.Invalid.Errorf("give the directory a plain name",
			"the path %q holds characters that a settings file may not", dir)
	}
	if text == nil {
		text = []byte(freshSettings)
	}
	added := insertWorkspace(string(text), dir)
	now, err := ParseSettings([]byte(added))
	want := old
	want.Workspaces = append(slices.Clone(old.Workspaces), dir)
	if err != nil || !reflect.DeepEqual(now, want) {
		return nil, bailey.Conflict.New(FileName+" has a form that a workspace cannot be added to",
			fmt.Sprintf("write the line %q below workspaces: yourself, then bailey init --apply", "  - "+dir))
	}
	return []byte(added), nil
}

// insertWorkspace adds the line of dir after the last workspace, or after the key, or adds the key. The caller must parse the
// result again, so that a form that insert does not support is detected.
func insertWorkspace(text, dir string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	at, indent := -1, "  "
	if list, err := workspaceList([]byte(text)); err == nil && list != nil && len(list.Values) > 0 {
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
func workspaceList(text []byte) (list *ast.SequenceNode, err error) {
	defer recoverParser(&err)
	body, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	pairs, _ := pairsOf(body)
	for _, kv := range pairs {
		if key, ok := kv.Key.(*ast.StringNode); ok && key.Value == "workspaces" {
			list, _ = kv.Value.(*ast.SequenceNode)
		}
	}
	return list, nil
}

// isPrintable reports whether a path can be written to a file and a terminal without escapes.
func isPrintable(path string) bool {
	return utf8.ValidString(path) &&
		!strings.ContainsFunc(path, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) })
}

// Approver is a person whose signed answers to approval requests count.
type Approver struct {
	Name  string   `json:"name"`
	Key   string   `json:"key"` // type and key, as in a .pub file
	Roles []string `json:"roles,omitempty"`
}

// Line returns the approver's key in the format of package sshsig.
func (a Approver) Line() string { return a.Name + " " + a.Key }

// Limits of the setting approvers. One ledger entry must hold them all.
const (
	maxApprovers = 32
	maxRoles     = 16
	maxRole      = 64
)

// approversOf reads the setting approvers. A name may have several keys and is one person. A key must have only one
// name, such as ada.
func approversOf(n ast.Node) (list []Approver, err error) {
	var held []string
	err = readList(n, "approvers wants a list of names with key and roles", func(item ast.Node) error {
		if len(list) == maxApprovers {
			return nodeError(item, "over the %d approvers allowed", maxApprovers)
		}
		a, err := approverOf(item)
		if err != nil {
			return err
		}
		keys, err := sshsig.ParseKeys([]byte(a.Line()))
		if err != nil || len(keys) != 1 || keys[0].Name != a.Name {
			return nodeError(item, "an approver's name is a word, and its key the type and the key of a .pub file (%v)",
				err)
		}
		if slices.Contains(held, keys[0].Fingerprint()) {
			return nodeError(item, "the key of %s is named twice: one person must not answer as two", a.Name)
		}
		held = append(held, keys[0].Fingerprint())
		list = append(list, a)
		return nil
	})
	return list, err
}

func approverOf(n ast.Node) (a Approver, err error) {
	err = readMapping(n, "part of an approver", keyReaders{
		"name": func(n ast.Node) (err error) { a.Name, err = wordOf(n, maxSigner); return err },
		"key":  func(n ast.Node) (err error) { a.Key, err = wordOf(n, maxSigner); return err },
		"roles": func(n ast.Node) error {
			return readList(n, "roles wants a list of names", func(item ast.Node) error {
				role, err := wordOf(item, maxRole)
				if err == nil &&
					(len(a.Roles) == maxRoles || slices.Contains(a.Roles, role) ||
						strings.Trim(role, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "") {
					err = nodeError(item,
						"a role is lower case letters, digits, '.', '_' or '-', and stands once; there are at most %d", maxRoles)
				}
				a.Roles = append(a.Roles, role)
				return err
			})
		},
	})
	if err == nil && (a.Name == "" || a.Key == "" || strings.ContainsAny(a.Name, " \t")) {
		err = nodeError(n, "an approver has a name and a key")
	}
	return a, err
}

// wordOf reads one line of text.
func wordOf(n ast.Node, most int) (string, error) {
	s, ok := n.(*ast.StringNode)
	if !ok || s.Value == "" || len(s.Value) > most || strings.ContainsAny(s.Value, "\r\n") {
		return "", nodeError(n, "%s", fmt.Sprintf("want one line of at most %d bytes", most))
	}
	return s.Value, nil
}

// Broker says where credentials are leased.
type Broker struct {
	Socket string `json:"socket"`
	UID    int    `json:"uid"` // uid of the process that must listen there
	// CheckpointKey has the ledger's checkpoints signed with a key of the broker, not of the home.
	CheckpointKey bool `json:"checkpointKey,omitempty"`
}

// brokerOf reads the setting broker. The uid has no default: otherwise an attacker that replaces the broker's socket
// would be trusted.
func brokerOf(n ast.Node) (b *Broker, err error) {
	if _, none := n.(*ast.NullNode); none || n == nil {
		return nil, nil
	}
	b = &Broker{UID: -1}
	err = readMapping(n, "part of broker", keyReaders{
		"socket": func(n ast.Node) (err error) { b.Socket, err = wordOf(n, maxSigner); return err },
		"uid": func(n ast.Node) error {
			i, ok := n.(*ast.IntegerNode)
			if !ok {
				return nodeError(n, "uid is a number: that of the broker's user (id -u bailey-broker)")
			}
			switch v := i.Value.(type) {
			case uint64:
				if v < 1<<31 {
					b.UID = int(v)
				}
			case int64:
				if v >= 0 && v < 1<<31 {
					b.UID = int(v)
				}
			}
			if b.UID < 0 {
				return nodeError(n, "%s is no uid", n)
			}
			return nil
		},
		"checkpointKey": readBool("checkpointKey", &b.CheckpointKey),
	})
	switch {
	case err != nil:
		return nil, err
	case !filepath.IsAbs(b.Socket) || filepath.Clean(b.Socket) != b.Socket:
		return nil, nodeError(n, "broker wants socket, the absolute path of its socket")
	case b.UID < 0:
		return nil, nodeError(n, "broker wants uid, that of the broker's user: who else listens there is not believed")
	}
	return b, nil
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

func notifyOf(n ast.Node) (c Notify, err error) {
	err = readMapping(n, "way to notify", keyReaders{
		"desktop": readBool("desktop", &c.Desktop),
		"webhook": func(n ast.Node) error {
			err := readMapping(n, "part of a webhook",
				keyReaders{"url": func(n ast.Node) (err error) { c.Webhook, c.URL, err = webhookOf(n); return err }})
			if err == nil && c.Webhook == "" {
				err = nodeError(n, "a webhook has a url")
			}
			return err
		},
	})
	return c, err
}

// webhookOf reads a URL, which must be https, or http to this machine. No error quotes it.
func webhookOf(n ast.Node) (shown string, whole bailey.Secret, err error) {
	text, err := wordOf(n, maxURL)
	if err != nil {
		return "", whole, err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || !isPrintable(text):
		return "", whole, nodeError(n, "the url of a webhook is no url")
	case u.User != nil || u.Fragment != "":
		return "", whole, nodeError(n, "the url of a webhook has neither a user nor a fragment")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLocalhost(u.Hostname())):
		return "", whole, nodeError(n,
			"the url of a webhook is https, or http of this machine (127.0.0.1, [::1], localhost)")
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s://%s %x", u.Scheme, u.Host, sum[:4]), bailey.NewSecret(text), nil
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

// signersOf reads the setting policySigners, the keys that may sign a policy. If it is set, a policy without such a
// signature is not applied.
func signersOf(n ast.Node) (lines []string, err error) {
	err = readList(n, "policySigners wants a list of keys", func(item ast.Node) error {
		n, ok := item.(*ast.StringNode)
		switch {
		case len(lines) == maxSigners:
			return nodeError(item, "over the %d signers allowed", maxSigners)
		case !ok || len(n.Value) > maxSigner || strings.ContainsAny(n.Value, "\r\n"):
			return nodeError(item, "a signer is a name, a key's type and the key, as in: ada ssh-ed25519 AAAA…")
		}
		keys, err := sshsig.ParseKeys([]byte(n.Value))
		if err != nil || len(keys) != 1 {
			return nodeError(item, "a signer is a name, a key's type and the key, as in: ada ssh-ed25519 AAAA… (%v)",
				err)
		}
		if slices.Contains(lines, n.Value) {
			return nodeError(item, "a signer is named twice")
		}
		lines = append(lines, n.Value)
		return nil
	})
	return lines, err
}

// socketsOf reads the sockets of daemons.
func socketsOf(n ast.Node) (map[string]string, error) {
	all, known := map[string]string{}, keyReaders{}
	for _, daemon := range bailey.Daemons() {
		known[daemon] = func(n ast.Node) error {
			path, err := wordOf(n, maxWord)
			if err == nil && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
				err = nodeError(n, "a socket wants an absolute path without .., as in /var/run/docker.sock")
			}
			all[daemon] = path
			return err
		}
	}
	if err := readMapping(n, "daemon", known); err != nil {
		return nil, err
	}
	return all, nil
}

// Sheltered refuses a daemon's socket inside a workspace: a process that can create sockets there can reach the daemon
// without the gate.
func Sheltered(n Network, workspaces []string) error {
	for _, daemon := range slices.Sorted(maps.Keys(n.Sockets)) {
		if path := n.Sockets[daemon]; (workspace.Bounds{Dirs: workspaces}).Hold(workspace.Canonical(path)) {
			return bailey.Invalid.New("the socket "+path+" of "+daemon+" lies in a workspace",
				"have the daemon listen elsewhere: an agent in the workspace would reach it")
		}
	}
	return nil
}
