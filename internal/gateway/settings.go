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
	"bailey/internal/redact"
	"bailey/internal/wire"
)

// SettingsName is the settings file's name in the home.
const SettingsName = "settings.yaml"

// ApplyEvent is the ledger's kind of entry for settings that took effect. Its data is an [Applied].
const ApplyEvent = "settings.apply"

// Applied is what the settings said when an operator last applied them. The zero Applied is a home
// where nobody ever did.
type Applied struct {
	Digest     string        `json:"digest"` // SHA-256 of the file, hex; "" where there is none
	Workspaces []string      `json:"workspaces"`
	Redaction  redact.Config `json:"redaction,omitzero"`      // without its examples; zero: what is built in
	Signers    []string      `json:"policySigners,omitempty"` // whose signature a policy has to carry; none: it needs none
	Approvers  []Approver    `json:"approvers,omitempty"`     // whose answers to a question count; none: an operator's
	Broker     *Broker       `json:"broker,omitempty"`        // where credentials are borrowed; nil: nowhere
	Notify     Notify        `json:"notify,omitzero"`         // without its URL, which the file alone has
	Network    Network       `json:"network,omitzero"`        // what cages reach beyond manifests
	Agents     AgentRules    `json:"agents,omitzero"`         // who may call
	Operator   wire.Operator `json:"operator,omitempty"`
	Person     string        `json:"person,omitempty"`
}

// maxListed bounds what a tools/list is asked to hold.
const maxListed = 1000

// AgentRules say which agents the doors let in.
type AgentRules struct {
	Required bool `json:"required,omitempty"` // who shows no token makes no call
	Listed   int  `json:"listed,omitempty"`   // how many tools they are shown; what is beyond they search for. 0: all
	// Asking names the MCP clients that may ask their user. The model of such a client must not be able to answer in the user's place.
	Asking []string `json:"asking,omitempty"`
}

// UnmarshalJSON refuses what it does not know: a rule of a newer version that was left out would hide less than what
// was applied.
func (a *Applied) UnmarshalJSON(data []byte) error {
	type plain Applied
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(a)); err != nil {
		return fmt.Errorf("the settings that were applied last are of another version of bailey: %w", err)
	}
	return nil
}

// SettingsState is the file beside what was applied.
type SettingsState struct {
	File       string        `json:"file"`
	Digest     string        `json:"digest"`             // of the file as it is now
	Text       string        `json:"text"`               // its content
	Applied    Applied       `json:"applied"`            // what holds
	Changed    bool          `json:"changed"`            // the file is not what was applied
	Workspaces []string      `json:"workspaces"`         // what the file says
	Redaction  redact.Config `json:"redaction,omitzero"` // what the file says, without examples
	Signers    []string      `json:"policySigners,omitempty"`
	Approvers  []Approver    `json:"approvers,omitempty"`
	Broker     *Broker       `json:"broker,omitempty"`
	Notify     Notify        `json:"notify,omitzero"`
	Network    Network       `json:"network,omitzero"`
	Agents     AgentRules    `json:"agents,omitzero"`
	Fault      string        `json:"fault,omitempty"`   // why the file cannot be used as it is
	Cure       string        `json:"cure,omitempty"`    // of a fault in what it says
	Dir        string        `json:"dir,omitempty"`     // the directory asked about, canonical
	Inside     bool          `json:"inside,omitempty"`  // it lies in one of the file's workspaces
	Refusal    string        `json:"refusal,omitempty"` // why calls get no workspace now
}

// Settings owns $BAILEY_HOME/settings.yaml. The file is read when the gateway starts and when an
// operator applies it, never because it changed: a file that is not what the ledger last recorded is not
// used, and then no call gets a workspace. The redaction that was applied last holds in any case: it stands in
// the ledger, so that a file which is changed or removed hides no less.
type Settings struct {
	home       wire.Home
	workspaces *Workspaces
	redaction  *Redaction
	note       func(ctx context.Context, kind string, data any) error

	mu      sync.Mutex // one apply at a time; guards what follows
	applied Applied
	shut    error // why the settings are not in use
}

// OpenSettings reads the home's settings and puts them to use if they are what was applied last. It is an error
// when the redaction applied last is none that this version can hold to.
func OpenSettings(home wire.Home, w *Workspaces, r *Redaction, last Applied, note func(context.Context, string, any) error, log *slog.Logger) (*Settings, error) {
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
	if info, err := os.Lstat(s.path()); err == nil && wide(info) {
		log.Warn("the settings are open to others", "file", s.path(), "mode", info.Mode().Perm(), "cure", "chmod 600")
	}
	w.use(last.Workspaces, s.shut)
	return s, nil
}

// recall takes from the file, which is what was applied, what the ledger does not hold.
func (s *Settings) recall() {
	if text, err := s.read(); s.shut == nil && err == nil {
		if said, err := ParseSettings(text); err == nil && said.Notify.Webhook == s.applied.Notify.Webhook {
			s.applied.Notify.URL = said.Notify.URL
		}
	}
}

// Applied returns what holds now.
func (s *Settings) Applied() Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

func (s *Settings) path() string { return s.home.Path(SettingsName) }

// check says why what was applied cannot be used.
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

// read returns the file's text, nil when there is none.
func (s *Settings) read() ([]byte, error) {
	text, err := ReadPlain(s.path(), maxSettings)
	if err != nil {
		return nil, handMade("cannot be read", err)
	}
	return text, nil
}

// digest is the SHA-256 of a file, hex, and "" for none.
func digest(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// State looks at the file. When dir is not empty it must be fit for a workspace.
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

// Digest is that of the settings in use, "" where nobody applied any.
func (s *Settings) Digest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.Digest
}

// Apply makes text the settings, durably, and uses them from the next call on. text nil keeps the file
// as it is. base is the digest of the file that the operator was shown: another one by now is a Conflict.
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
	return Replace(root, SettingsName, text, 0o600, record)
}

// fitted returns what text says; each workspace must exist, be canonical and fit.
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
