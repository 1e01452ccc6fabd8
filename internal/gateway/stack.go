package gateway

import (
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// Stack is what the profiles in use say together. Lists add up; of single values and bindings a later profile's holds. A
// capability is active that one of those admits which name packs or capabilities, and any where none does. It is immutable.
type Stack struct {
	InUse
	fault error // why nothing can be called
}

// Fault says why nothing can be called, nil when that is not so.
func (s Stack) Fault() error { return s.fault }

// Name is context.profile: all names, in their order.
func (s Stack) Name() string { return strings.Join(s.Names(), "+") }

// Environment is context.environment.
func (s Stack) Environment() (env string) {
	for _, p := range s.Profiles {
		if p.Environment != "" {
			env = p.Environment
		}
	}
	return env
}

// Edition is another when anything in the profiles is.
func (s Stack) Edition() string { return strings.Join(s.digests(), " ") }

// Admit says why a capability of a pack cannot be called, nil when it can.
func (s Stack) Admit(id bailey.CapabilityID, pack string) error {
	if s.fault != nil {
		return s.fault
	}
	silent := true // none names any
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

func (s Stack) workspaces() (dirs []string) {
	for _, p := range s.Profiles {
		for _, dir := range p.Workspaces {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// Network is what settings say, and before that what the profiles do, the last one first: of a place that several name, the
// first flags hold.
func (s Stack) Network(n Network) Network {
	var list []Reach
	for _, p := range slices.Backward(s.Profiles) {
		list = append(list, p.Endpoints...)
	}
	n.Endpoints = append(list, n.Endpoints...)
	return n
}

// Credential is what the broker calls a credential that a capability wants.
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

// Folder is the value of a path input that a call leaves out; "" where no profile says.
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
