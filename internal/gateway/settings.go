package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/redact"
	"bailey/internal/safefile"
)

// SettingsName is the name of the settings file in the home.
const SettingsName = "settings.yaml"

// ApplyEvent is the kind of the ledger entry for settings that took effect. Its data is an [Applied].
const ApplyEvent = "settings.apply"

// Applied holds the settings that an operator applied last. The zero Applied is a home where no settings were ever
// applied.
type Applied struct {
	Digest     string        `json:"digest"` // SHA-256 of the file, hex; "" without a file
	Workspaces []string      `json:"workspaces"`
	Redaction  redact.Config `json:"redaction,omitzero"` // without its examples; zero: the built-in rules
	// Signers: if set, a policy must have a signature of one of them.
	Signers []string `json:"policySigners,omitempty"`
	// Approvers: if set, only their answers to approval requests count; otherwise those of operators.
	Approvers []Approver        `json:"approvers,omitempty"`
	Broker    *Broker           `json:"broker,omitempty"` // lends the credentials; nil: no broker
	Notify    Notify            `json:"notify,omitzero"`  // without its URL, which is only in the file
	Network   Network           `json:"network,omitzero"` // network access beyond the manifests
	Agents    AgentRules        `json:"agents,omitzero"`  // which agents may call
	Operator  localapi.Operator `json:"operator,omitempty"`
	Person    string            `json:"person,omitempty"`
}

const maxListed = 1000

// AgentRules say which agents the front ends admit.
type AgentRules struct {
	Required bool `json:"required,omitempty"` // calls without a token are refused
	Listed   int  `json:"listed,omitempty"`   // how many tools an agent is shown; it must search for the others. 0: all
	// Asking names the MCP clients that may ask their user. The model of such a client must not be able to answer in
	// the user's place.
	Asking []string `json:"asking,omitempty"`
}

// UnmarshalJSON refuses unknown fields: if it ignored a rule of a newer version, less would be redacted than was
// applied.
func (a *Applied) UnmarshalJSON(data []byte) error {
	type plain Applied
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(a)); err != nil {
		return fmt.Errorf("the settings that were applied last are of another version of bailey: %w", err)
	}
	return nil
}

// SettingsState compares the current file with the applied settings.
type SettingsState struct {
	File       string        `json:"file"`
	Digest     string        `json:"digest"`             // of the current file
	Text       string        `json:"text"`               // content of the current file
	Applied    Applied       `json:"applied"`            // settings in force
	Changed    bool          `json:"changed"`            // the file differs from the applied one
	Workspaces []string      `json:"workspaces"`         // from the file
	Redaction  redact.Config `json:"redaction,omitzero"` // from the file, without examples
	Signers    []string      `json:"policySigners,omitempty"`
	Approvers  []Approver    `json:"approvers,omitempty"`
	Broker     *Broker       `json:"broker,omitempty"`
	Notify     Notify        `json:"notify,omitzero"`
	Network    Network       `json:"network,omitzero"`
	Agents     AgentRules    `json:"agents,omitzero"`
	Fault      string        `json:"fault,omitempty"`   // why the file cannot be used
	Cure       string        `json:"cure,omitempty"`    // hint for a fault in the content
	Dir        string        `json:"dir,omitempty"`     // the given directory, canonical
	Inside     bool          `json:"inside,omitempty"`  // Dir is in one of the file's workspaces
	Refusal    string        `json:"refusal,omitempty"` // why calls get no workspace now
}

// Settings manages $BAILEY_HOME/settings.yaml. The file is read when the gateway starts and when an operator applies
// it, not when it changes. If it differs from the one that the ledger recorded last, it is not used, and no call gets a
// workspace. The redaction applied last is always in force: it is stored in the ledger, so a changed or deleted file
// does not weaken it.
type Settings struct {
	home       localapi.Home
	workspaces *Workspaces
	redaction  *Redaction
	note       func(ctx context.Context, kind string, data any) error

	mu      sync.Mutex // one apply at a time; guards the fields below
	applied Applied
	shut    error // why the settings are not in use
}

// OpenSettings reads the home's settings and uses them if they are those that were applied last. It returns an error if
// this version cannot apply the last redaction.
func OpenSettings(home localapi.Home, w *Workspaces, r *Redaction, last Applied, note func(context.Context, string, any) error, log *slog.Logger) (*Settings, error) {
	if err := r.Use(last.Redaction); err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the redaction applied last is not understood", Err: err,
			Hint: "start the version of bailey that applied it, take the rule out of " + SettingsName + ", then bailey init --apply"}
	}
	s := &Settings{home: home, workspaces: w, redaction: r, note: note, applied: last}
	s.shut = s.check()
	s.recall()
	if s.shut != nil {
		log.Warn("the settings are not used", "why", s.shut, "cure", bailey.HintOf(s.shut))
	}
	if info, err := os.Lstat(s.path()); err == nil && safefile.Wide(info) {
		log.Warn("the settings are open to others", "file", s.path(), "mode", info.Mode().Perm(), "cure", "chmod 600")
	}
	w.use(last.Workspaces, s.shut)
	return s, nil
}

// recall reads from the file the values that the ledger does not store, if the file is the applied one.
func (s *Settings) recall() {
	if text, err := s.read(); s.shut == nil && err == nil {
		if said, err := ParseSettings(text); err == nil && said.Notify.Webhook == s.applied.Notify.Webhook {
			s.applied.Notify.URL = said.Notify.URL
		}
	}
}

func (s *Settings) Applied() Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

func (s *Settings) path() string { return s.home.Path(SettingsName) }

// check returns an error if the applied settings cannot be used.
func (s *Settings) check() error {
	text, err := s.read()
	switch {
	case err != nil:
		return err
	case digest(text) != s.applied.Digest && text == nil:
		return handMade("is missing", nil)
	case digest(text) != s.applied.Digest:
		return handMade("was changed by hand", nil)
	}
	for _, dir := range s.applied.Workspaces {
		if why := s.workspaces.unfit(dir); why != "" {
			return handMade(fmt.Sprintf("names the workspace %s, which is now %s", dir, why), nil)
		}
	}
	return nil
}

func handMade(what string, err error) error {
	return &bailey.Error{Kind: bailey.Denied, Message: SettingsName + " " + what, Err: err,
		Hint: "bailey init --apply shows the difference and applies it"}
}

// read returns the text of the file, or nil if it does not exist.
func (s *Settings) read() ([]byte, error) {
	text, err := safefile.Read(s.path(), maxSettings)
	if err != nil {
		return nil, handMade("cannot be read", err)
	}
	return text, nil
}

// digest returns the SHA-256 of text in hex, or "" if text is nil.
func digest(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// State returns the state of the file. If dir is not empty, it must be valid as a workspace.
func (s *Settings) State(dir string) (st SettingsState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st = SettingsState{File: s.path(), Applied: s.applied, Workspaces: []string{}}
	if s.shut != nil {
		st.Refusal = s.shut.Error()
	}
	if dir != "" {
		if st.Dir, err = s.workspaces.fit(dir); err != nil {
			return st, err
		}
	}
	text, err := s.read()
	if err != nil {
		st.Changed, st.Fault = true, err.Error()
		return st, nil
	}
	st.Text, st.Digest = string(text), digest(text)
	st.Changed = st.Digest != s.applied.Digest
	said, err := ParseSettings(text)
	if err != nil {
		st.Fault, st.Cure = err.Error(), bailey.HintOf(err)
	}
	st.Workspaces, st.Redaction, st.Signers, st.Approvers = said.Workspaces, expressions(said.Redaction), said.Signers, said.Approvers
	st.Broker = said.Broker
	st.Notify, st.Network, st.Agents = said.Notify, said.Network, said.Agents
	st.Inside = st.Dir != "" && bounds{dirs: st.Workspaces}.hold(st.Dir)
	return st, nil
}

// Digest returns the digest of the applied settings, or "" if none were ever applied.
func (s *Settings) Digest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.Digest
}

// Apply durably makes text the settings and uses them from the next call on. If text is nil, the file stays unchanged.
// base is the digest of the file that the operator was shown. If the file has changed since, the error is a Conflict.
func (s *Settings) Apply(ctx context.Context, base string, text []byte, by Applied) (Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.read()
	if err != nil {
		return s.applied, err
	}
	if digest(old) != base {
		return s.applied, &bailey.Error{Kind: bailey.Conflict, Message: SettingsName + " changed meanwhile",
			Hint: "look at it again: bailey init"}
	}
	keep := text == nil
	if keep {
		text = old
	}
	said, err := s.fitted(text)
	if err != nil {
		return s.applied, err
	}
	by.Digest, by.Workspaces, by.Redaction, by.Signers, by.Approvers = digest(text), said.Workspaces, expressions(said.Redaction), said.Signers, said.Approvers
	by.Broker = said.Broker
	by.Notify, by.Network, by.Agents = said.Notify, said.Network, said.Agents
	rules, err := redact.Compile(by.Redaction)
	if err != nil {
		return s.applied, err
	}
	record := func() error { return s.note(ctx, ApplyEvent, by) }
	if keep {
		err = record()
	} else {
		err = s.write(text, record)
	}
	if err != nil {
		return s.applied, err
	}
	s.applied, s.shut = by, nil
	s.workspaces.use(by.Workspaces, nil)
	s.redaction.inForce.Store(rules)
	return by, nil
}

func (s *Settings) write(text []byte, record func() error) error {
	root, err := os.OpenRoot(string(s.home))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, SettingsName, text, 0o600, record)
}

// fitted parses text. Each workspace must exist, be canonical and be allowed as a workspace.
func (s *Settings) fitted(text []byte) (Contents, error) {
	said, err := ParseSettings(text)
	if err != nil {
		return said, err
	}
	for _, dir := range said.Workspaces {
		real, err := s.workspaces.fit(dir)
		if err == nil && real != dir {
			err = &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("the workspace %s is not canonical", dir), Hint: "write " + real}
		}
		if err != nil {
			return said, err
		}
	}
	return said, sheltered(said.Network, said.Workspaces)
}
