package apitype

import (
	"fmt"
	"strings"

	"bailey/internal/localapi"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// Added says how much of a file Bailey added. Undo removes exactly that much.
type Added string

const (
	AddedDir     Added = "directory" // the directory of the file did not exist
	AddedFile    Added = "file"      // the file did not exist
	AddedServers Added = "servers"   // the file had no list of servers
	AddedServer  Added = "server"    // only the entry
	AddedHooks   Added = "hooks"     // the file had no hooks
	AddedEvent   Added = "event"     // the file had no hook for the event
	AddedHook    Added = "hook"      // only the entry
)

// InFile returns the part of a that is inside the file.
func (a Added) InFile() Added {
	if a == AddedDir {
		return AddedFile
	}
	return a
}

// The ledger events for the changes that init makes in the files of a client.
const (
	ConfigureEvent = "client.configure"
	UndoEvent      = "client.undo"
)

// SettingsQuery asks for the settings.
type SettingsQuery struct {
	Dir string `json:"dir,omitempty"` // the answer tells whether it is inside a workspace
}

// SettingsRequest asks to apply settings.
type SettingsRequest struct {
	Base string  `json:"base"`           // digest of the file that was shown; "" without a file
	Text *string `json:"text,omitempty"` // new content of the file; nil: the file as it is
}

// ClientFile names a file of a client.
type ClientFile struct {
	File string `json:"file"`
}

// Configuration is the data of both events, and the request to record one: a file of a client, and how much of it
// Bailey added. It must be recorded before the file changes. The gateway sets Operator and Person.
type Configuration struct {
	Client   string            `json:"client"`
	Scope    string            `json:"scope"`
	File     string            `json:"file"`
	Command  string            `json:"command"`
	Added    Added             `json:"added"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// ProfileEvent is the kind of the ledger entry for profiles that took effect. Its data is an [InUse].
const ProfileEvent = "profile.use"

// ProfileState compares the file of a profile with the profile in use.
type ProfileState struct {
	Name    string            `json:"name"`
	File    string            `json:"file"`
	Digest  string            `json:"digest,omitempty"` // of the current file
	Profile *settings.Profile `json:"profile,omitempty"`
	InUse   bool              `json:"inUse"`
	Changed bool              `json:"changed,omitempty"` // in use, but the file has changed since
	Fault   string            `json:"fault,omitempty"`
	Cure    string            `json:"cure,omitempty"`
}

// ProfilesQuery is the name of [ListProfiles].
const ProfilesQuery = "profiles"

// ProfilesRequest asks for the effect of profiles, or for their use. Both lists are required; they can be empty.
type ProfilesRequest struct {
	Names   []string `json:"names"`
	Digests []string `json:"digests"` // of the profiles that were shown; only for the use
}

// ProfileList is the answer with the profiles of the home and the names of those in use.
type ProfileList struct {
	OK       bool           `json:"ok"`
	InUse    []string       `json:"inUse"`
	Fault    string         `json:"fault,omitempty"` // why no capability can be called
	Profiles []ProfileState `json:"profiles"`
}

// ProfileChange describes the changes of a use of profiles.
type ProfileChange struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"` // it was applied
	Differs bool     `json:"differs"`
	InUse   []string `json:"inUse"`
	Digests []string `json:"digests"`
	Text    string   `json:"text,omitempty"`  // the difference, line by line
	More    []string `json:"more,omitempty"`  // capabilities that become callable
	Fewer   []string `json:"fewer,omitempty"` // capabilities that stop being callable
}

// Summary returns the difference, and the capabilities that become or stop being callable, one list a line.
func (p ProfileChange) Summary() string {
	var b strings.Builder
	b.WriteString(p.Text)
	for _, of := range []struct {
		words string
		ids   []string
	}{{"can be called then", p.More}, {"cannot be called then", p.Fewer}} {
		if len(of.ids) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", of.words, strings.Join(of.ids, ", "))
		}
	}
	return b.String()
}

// ProfileStatus is the state of the profiles, as `bailey status` shows it.
type ProfileStatus struct {
	InUse   []string `json:"inUse"`
	Fault   string   `json:"fault,omitempty"`
	Changed []string `json:"changed,omitempty"` // whose file has changed since
}

// NewProfileStatus returns nil if no profile is in use.
func NewProfileStatus(stack settings.Stack, states []ProfileState) *ProfileStatus {
	if len(stack.Profiles) == 0 {
		return nil
	}
	p := &ProfileStatus{InUse: stack.Names()}
	if fault := stack.Fault(); fault != nil {
		p.Fault = WithHint(fault)
	}
	for _, st := range states {
		if st.Changed {
			p.Changed = append(p.Changed, st.Name)
		}
	}
	return p
}

func (p *ProfileStatus) printSummary(line func(name, format string, args ...any)) {
	line("profile", "%s", strings.Join(p.InUse, ", "))
	if p.Fault != "" {
		line("PROFILE", "NO CALL IS POSSIBLE: %s", terminal.Shown(p.Fault))
	}
	if len(p.Changed) > 0 {
		line("DRIFT", "%s; %s", p.Drift(), p.Cure())
	}
}

// Drift returns the text that names the changed files. Changed must not be empty.
func (p *ProfileStatus) Drift() string {
	return fmt.Sprintf("profiles/%s.yaml differs from what is in use", strings.Join(p.Changed, ".yaml and profiles/"))
}

// Cure returns the hint with the command that applies the profiles in use again.
func (p *ProfileStatus) Cure() string {
	return fmt.Sprintf("run bailey profile use %s to see the difference and apply it", strings.Join(p.InUse, " "))
}
