package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/redact"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/workspace"
)

// ApplyEvent is the kind of the ledger entry for settings that took effect. Its data is an [Applied].
const ApplyEvent = "settings.apply"

// Settings manages $BAILEY_HOME/settings.yaml. The file is read when the gateway starts and when an operator applies
// it, not when it changes. If it differs from the one that the ledger recorded last, it is not used, and no call gets a
// workspace. The redaction applied last is always in force: it is stored in the ledger, so a changed or deleted file
// does not weaken it.
type Settings struct {
	home       localapi.Home
	workspaces *workspace.Workspaces
	redaction  *Redaction
	note       func(ctx context.Context, kind string, data any) error

	mu      sync.Mutex // one apply at a time; guards the fields below
	applied settings.Applied
	shut    error // why the settings are not in use
}

// OpenSettings reads the home's settings and uses them if they are those that were applied last. It returns an error if
// this version cannot apply the last redaction.
func OpenSettings(home localapi.Home, w *workspace.Workspaces, r *Redaction, last settings.Applied,
	note func(context.Context, string, any) error, log *slog.Logger) (*Settings, error) {
	if err := r.Use(last.Redaction); err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the redaction applied last is not understood",
			"start the version of bailey that applied it, take the rule out of "+settings.FileName+
				", then bailey init --apply")
	}
	s := &Settings{home: home, workspaces: w, redaction: r, note: note, applied: last}
	s.shut = s.checkApplied()
	s.readUnrecorded()
	if s.shut != nil {
		log.Warn("the settings are not used", "why", s.shut, "cure", bailey.HintOf(s.shut))
	}
	if info, err := os.Lstat(s.filePath()); err == nil && safefile.Wide(info) {
		log.Warn("the settings are open to others", "file", s.filePath(), "mode", info.Mode().Perm(), "cure",
			"chmod 600")
	}
	w.Use(last.Workspaces, s.shut)
	return s, nil
}

// readUnrecorded reads from the file the values that the ledger does not store, if the file is the applied one.
func (s *Settings) readUnrecorded() {
	if text, err := s.readFile(); s.shut == nil && err == nil {
		if said, err := settings.ParseSettings(text); err == nil && said.Notify.Webhook == s.applied.Notify.Webhook {
			s.applied.Notify.URL = said.Notify.URL
		}
	}
}

// Applied returns the settings that were applied last.
func (s *Settings) Applied() settings.Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

func (s *Settings) filePath() string { return s.home.Path(settings.FileName) }

// checkApplied returns an error if the applied settings cannot be used.
func (s *Settings) checkApplied() error {
	text, err := s.readFile()
	switch {
	case err != nil:
		return err
	case textDigest(text) != s.applied.Digest && text == nil:
		return handMade("is missing", nil)
	case textDigest(text) != s.applied.Digest:
		return handMade("was changed by hand", nil)
	}
	for _, dir := range s.applied.Workspaces {
		if why := s.workspaces.Unfit(dir); why != "" {
			return handMade(fmt.Sprintf("names the workspace %s, which is now %s", dir, why), nil)
		}
	}
	return nil
}

func handMade(what string, err error) error {
	return bailey.Denied.Wrap(err, settings.FileName+" "+what,
		"bailey init --apply shows the difference and applies it")
}

// readFile returns the text of the file, or nil if it does not exist.
func (s *Settings) readFile() ([]byte, error) {
	text, err := safefile.Read(s.filePath(), settings.MaxSettings)
	if err != nil {
		return nil, handMade("cannot be read", err)
	}
	return text, nil
}

// textDigest returns the SHA-256 of text in hex, or "" if text is nil.
func textDigest(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// State returns the state of the file. If dir is not empty, it must be valid as a workspace.
func (s *Settings) State(dir string) (st settings.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st = settings.State{File: s.filePath(), Applied: s.applied, Workspaces: []string{}}
	if s.shut != nil {
		st.Refusal = s.shut.Error()
	}
	if dir != "" {
		if st.Dir, err = s.workspaces.Resolve(dir); err != nil {
			return st, err
		}
	}
	text, err := s.readFile()
	if err != nil {
		st.Changed, st.Fault = true, err.Error()
		return st, nil
	}
	st.Text, st.Digest = string(text), textDigest(text)
	st.Changed = st.Digest != s.applied.Digest
	said, err := settings.ParseSettings(text)
	if err != nil {
		st.Fault, st.Cure = err.Error(), bailey.HintOf(err)
	}
	st.Workspaces, st.Redaction, st.Signers, st.Approvers = said.Workspaces, settings.Expressions(said.Redaction), said.Signers, said.Approvers
	st.Broker = said.Broker
	st.Notify, st.Network, st.Agents = said.Notify, said.Network, said.Agents
	st.Inside = st.Dir != "" && workspace.Bounds{Dirs: st.Workspaces}.Hold(st.Dir)
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
func (s *Settings) Apply(ctx context.Context, base string, text []byte, by settings.Applied) (settings.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.readFile()
	if err != nil {
		return s.applied, err
	}
	if textDigest(old) != base {
		return s.applied, bailey.Conflict.New(settings.FileName+" changed meanwhile",
			"look at it again: bailey init")
	}
	keep := text == nil
	if keep {
		text = old
	}
	said, err := s.parseChecked(text)
	if err != nil {
		return s.applied, err
	}
	by.Digest, by.Workspaces, by.Redaction, by.Signers, by.Approvers = textDigest(text), said.Workspaces, settings.Expressions(said.Redaction), said.Signers, said.Approvers
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
		err = s.writeFile(text, record)
	}
	if err != nil {
		return s.applied, err
	}
	s.applied, s.shut = by, nil
	s.workspaces.Use(by.Workspaces, nil)
	s.redaction.inForce.Store(rules)
	return by, nil
}

func (s *Settings) writeFile(text []byte, record func() error) error {
	root, err := os.OpenRoot(string(s.home))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, settings.FileName, text, 0o600, record)
}

// parseChecked parses text. Each workspace must exist, be canonical and be allowed as a workspace.
func (s *Settings) parseChecked(text []byte) (settings.Contents, error) {
	said, err := settings.ParseSettings(text)
	if err != nil {
		return said, err
	}
	for _, dir := range said.Workspaces {
		real, err := s.workspaces.Resolve(dir)
		if err == nil && real != dir {
			err = bailey.Invalid.Errorf("write "+real, "the workspace %s is not canonical", dir)
		}
		if err != nil {
			return said, err
		}
	}
	return said, settings.Sheltered(said.Network, said.Workspaces)
}
