package settings

import (
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// Stack is the combination of the profiles in use. Lists are merged. For single values and bindings, a later profile
// wins. If any profile names packs or capabilities, only those that such a profile admits are active; otherwise all
// are. A Stack is immutable.
type Stack struct {
	InUse
	Failed error // why no capability can be called
}

// Fault returns why no capability can be called, or nil.
func (s Stack) Fault() error { return s.Failed }

// Name returns the value of context.profile: all names in order, joined by "+".
func (s Stack) Name() string { return strings.Join(s.Names(), "+") }

// Environment returns the value of context.environment.
func (s Stack) Environment() (env string) {
	for _, p := range s.Profiles {
		if p.Environment != "" {
			env = p.Environment
		}
	}
	return env
}

// Edition returns a string that differs if any content of the profiles differs.
func (s Stack) Edition() string { return strings.Join(s.Digests(), " ") }

// Admit returns an error if a capability of a pack cannot be called.
func (s Stack) Admit(id bailey.CapabilityID, pack string) error {
	if s.Failed != nil {
		return s.Failed
	}
	silent := true // no profile restricts capabilities
	for _, p := range s.Profiles {
		if p.says() && p.admits(id, pack) {
			return nil
		}
		silent = silent && !p.says()
	}
	if silent {
		return nil
	}
	return &bailey.Error{Kind: bailey.Blocked, Message: fmt.Sprintf("%s is not active in the profile %s", id, s.Name()),
		Hint: "use a capability that is: bailey capabilities list; a person can put another profile to use: bailey profile use"}
}

func (s Stack) Workspaces() (dirs []string) {
	for _, p := range s.Profiles {
		for _, dir := range p.Workspaces {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// Network returns the settings n with the endpoints of the profiles before those of n, the last profile first. If an
// endpoint is listed several times, the flags of its first entry apply.
func (s Stack) Network(n Network) Network {
	var list []Reach
	for _, p := range slices.Backward(s.Profiles) {
		list = append(list, p.Endpoints...)
	}
	n.Endpoints = append(list, n.Endpoints...)
	return n
}

// Credential returns the broker's name for a credential that a capability needs.
func (s Stack) Credential(id bailey.CapabilityID, name string) string {
	for _, p := range slices.Backward(s.Profiles) {
		for _, b := range p.Secrets {
			if b.Name == name && (len(b.For) == 0 || anyMeans(b.For, id)) {
				return b.From
			}
		}
	}
	return name
}

// Folder returns the value for a path input that a call omits, or "" if no profile has one.
func (s Stack) Folder(id bailey.CapabilityID, input string) string {
	for _, p := range slices.Backward(s.Profiles) {
		for _, b := range p.Folders {
			if b.Input == input && (len(b.For) == 0 || anyMeans(b.For, id)) {
				return b.Path
			}
		}
	}
	return ""
}
