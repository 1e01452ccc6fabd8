package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"bailey"
	"bailey/internal/applied"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
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
	note       func(ctx context.Context, kind string, data any) error
	now        applied.Store[settingsInForce]
}

type settingsInForce struct {
	settings.Applied
	rules *redact.Rules // of Redaction
	shut  error         // why no call gets a workspace
}

// OpenSettings reads the home's settings and uses them if they are those that were applied last. It returns an error if
// this version cannot apply the last redaction.
func OpenSettings(home localapi.Home, w *workspace.Workspaces, r *Redaction, last settings.Applied,
	note func(context.Context, string, any) error, log *slog.Logger) (*Settings, error) {
	rules, err := redact.Compile(last.Redaction)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot parse the redaction settings applied last",
			"start the version of bailey that applied it, remove the rule from "+settings.FileName+
				", then run bailey init --apply")
	}
	s := &Settings{home: home, workspaces: w, note: note}
	shut := s.checkApplied(&last)
	if shut != nil {
		log.Warn("the settings are not used", "why", shut, "cure", bailey.HintOf(shut))
	}
	if info, err := os.Lstat(s.filePath()); err == nil && safefile.Wide(info) {
		log.Warn("other users can access the settings", "file", s.filePath(), "mode", info.Mode().Perm(), "cure",
			"chmod 600")
	}
	s.now.Use = func(now settingsInForce) {
		w.Use(now.Workspaces, now.shut)
		r.inForce.Store(now.rules)
	}
	s.now.Restore(settingsInForce{last, rules, shut})
	return s, nil
}

// Applied returns the settings that were applied last.
func (s *Settings) Applied() settings.Applied { return s.now.Load().Applied }

func (s *Settings) filePath() string { return s.home.Path(settings.FileName) }

// checkApplied returns an error if the applied settings cannot be used. Otherwise it adds the values that the ledger
// does not store.
func (s *Settings) checkApplied(last *settings.Applied) error {
	text, err := s.readFile()
	switch {
	case err != nil:
		return err
	case apitype.FileDigest(text) != last.Digest && text == nil:
		return handMade("is missing", nil)
	case apitype.FileDigest(text) != last.Digest:
		return handMade("was changed by hand", nil)
	}
	for _, dir := range slices.Concat(last.Workspaces, last.Readable) {
		if why := s.workspaces.Unfit(dir); why != "" {
			return handMade(fmt.Sprintf("names the directory %s, which is now %s", dir, why), nil)
		}
	}
	if said, err := settings.ParseSettings(text); err == nil && said.Notify.Webhook == last.Notify.Webhook {
		last.Notify.URL = said.Notify.URL
	}
	return nil
}

func handMade(what string, err error) error {
	return bailey.Denied.Wrap(err, settings.FileName+" "+what,
		"run bailey init --apply to see the difference and apply it")
}

// readFile returns the text of the file, or nil if it does not exist.
func (s *Settings) readFile() ([]byte, error) {
	text, err := safefile.Read(s.filePath(), settings.MaxSettings)
	if err != nil {
		return nil, handMade("cannot be read", err)
	}
	return text, nil
}

// State returns the state of the file. If dir is not empty, it must be valid as a workspace.
func (s *Settings) State(dir string) (st settings.State, err error) {
	now := s.now.Load()
	st = settings.State{File: s.filePath(), Applied: now.Applied}
	st.Workspaces = []string{}
	if now.shut != nil {
		st.Refusal = now.shut.Error()
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
	st.Text, st.Digest = string(text), apitype.FileDigest(text)
	st.Changed = st.Digest != now.Digest
	said, err := settings.ParseSettings(text)
	if err != nil {
		st.Fault, st.Cure = err.Error(), bailey.HintOf(err)
	}
	st.Contents = said.Recorded()
	st.Inside = st.Dir != "" && workspace.Bounds{Dirs: st.Workspaces}.Hold(st.Dir)
	return st, nil
}

// Digest returns the digest of the applied settings, or "" if none were ever applied.
func (s *Settings) Digest() string { return s.Applied().Digest }

// Apply durably makes text the settings and uses them from the next call on. If text is nil, the file stays unchanged.
// base is the digest of the file that the operator was shown. If the file has changed since, the error is a Conflict.
func (s *Settings) Apply(ctx context.Context, base string, text []byte, by settings.Applied) (settings.Applied, error) {
	next := settingsInForce{Applied: by}
	record := func() error { return s.note(ctx, ApplyEvent, next.Applied) }
	err := s.now.Apply(func(settingsInForce) (settingsInForce, func() error, error) {
		old, err := s.readFile()
		switch {
		case err != nil:
			return next, nil, err
		case apitype.FileDigest(old) != base:
			return next, nil, bailey.Conflict.New(settings.FileName+" changed meanwhile",
				"check it again: bailey init")
		}
		write := record
		if text == nil {
			text = old
		} else {
			write = func() error { return safefile.Put(string(s.home), settings.FileName, text, 0o600, record) }
		}
		said, err := s.parseChecked(text)
		if err != nil {
			return next, nil, err
		}
		next.Digest, next.Contents = apitype.FileDigest(text), said.Recorded()
		next.rules, err = redact.Compile(next.Redaction)
		return next, write, err
	})
	if err != nil {
		return s.Applied(), err
	}
	return next.Applied, nil
}

// parseChecked parses text. Each workspace must exist, be canonical and be allowed as a workspace.
func (s *Settings) parseChecked(text []byte) (settings.Contents, error) {
	said, err := settings.ParseSettings(text)
	if err == nil {
		err = s.workspaces.CheckCanonical(slices.Concat(said.Workspaces, said.Readable))
	}
	if err != nil {
		return said, err
	}
	return said, settings.Sheltered(said.Network, said.Workspaces)
}
