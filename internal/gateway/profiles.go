package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/applied"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/workspace"
)

// profilesDir is the directory in the home with a file NAME.yaml for each profile.
const profilesDir = "profiles"

// Limits of profiles. One ledger entry (64 KiB) must hold all profiles in use.
const (
	maxStack   = 8
	maxProfile = 16 << 10 // bytes of a file
	maxInUse   = 48 << 10 // bytes of JSON
)

// Profiles manages the profiles of a home. They are read when an operator selects them, never because a file changed.
type Profiles struct {
	home       localapi.Home
	workspaces *workspace.Workspaces
	note       func(ctx context.Context, kind string, data any) error
	now        applied.Store[settings.Stack]
}

// OpenProfiles applies the profiles that were in use last. If the file of one is missing or one of its workspaces is no
// longer valid, no capability can be called until an operator selects profiles again.
func OpenProfiles(home localapi.Home, w *workspace.Workspaces, last settings.InUse,
	note func(context.Context, string, any) error, log *slog.Logger) *Profiles {
	p := &Profiles{home: home, workspaces: w, note: note}
	p.now.Use = func(s settings.Stack) { w.UseProfiles(s.Workspaces()) }
	s := settings.Stack{InUse: last}
	for _, u := range last.Profiles {
		_, err := p.readProfile(u.Name)
		if err == nil {
			err = p.workspaces.CheckCanonical(u.Workspaces)
		}
		if err != nil && s.Failed == nil {
			s.Failed = bailey.Blocked.Errorf("correct it, then run bailey profile use "+strings.Join(s.Names(), " ")+
				"; or run bailey profile use --none",
				"the profile %s, which is in use, is faulty: %v", u.Name, err)
			log.Error("the profiles cannot be used", "why", s.Failed)
		}
	}
	p.now.Restore(s)
	return p
}

// InForce returns the profiles that apply to a call that begins now.
func (p *Profiles) InForce() settings.Stack { return p.now.Load() }

// profileName is also the name of the file without ".yaml".
var profileName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`) })

// readProfile returns a profile from its current file.
func (p *Profiles) readProfile(name string) (u settings.UsedProfile, err error) {
	if !profileName().MatchString(name) {
		return u, bailey.Invalid.Errorf("use at most 32 lower case letters, digits and dashes",
			"%q is not a name of a profile", name)
	}
	file := filepath.Join(profilesDir, name+".yaml")
	text, err := safefile.Read(p.home.Path(file), maxProfile)
	switch {
	case err == nil && text == nil:
		return u, bailey.NotFound.New(file+" does not exist", "run bailey profile list to show the profiles")
	case err != nil:
		return u, bailey.Invalid.Wrap(err, file+" cannot be read",
			fmt.Sprintf("it must be a regular file that you own, of at most %d bytes", maxProfile))
	}
	u = settings.UsedProfile{Name: name, Digest: apitype.FileDigest(text)}
	u.Profile, err = settings.ParseProfile(file, text)
	return u, err
}

// States returns all profiles of the home, sorted by name, and those in use whose file is missing.
func (p *Profiles) States() ([]apitype.ProfileState, error) {
	entries, err := os.ReadDir(p.home.Path(profilesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, bailey.Unavailable.Wrap(err, "cannot list the profiles", "")
	}
	var names []string
	for _, e := range entries {
		if name, yaml := strings.CutSuffix(e.Name(), ".yaml"); yaml && profileName().MatchString(name) {
			names = append(names, name)
		}
	}
	stack := p.InForce()
	names = append(names, stack.Names()...)
	slices.Sort(names)
	list := []apitype.ProfileState{}
	for _, name := range slices.Compact(names) {
		list = append(list, p.profileState(name, stack))
	}
	return list, nil
}

func (p *Profiles) profileState(name string, stack settings.Stack) apitype.ProfileState {
	st := apitype.ProfileState{Name: name, File: p.home.Path(filepath.Join(profilesDir, name+".yaml"))}
	u, err := p.readProfile(name)
	if err != nil {
		st.Fault, st.Cure = err.Error(), bailey.HintOf(err)
	} else {
		st.Digest, st.Profile = u.Digest, &u.Profile
	}
	for _, used := range stack.Profiles {
		if used.Name == name {
			st.InUse, st.Changed = true, used.Digest != u.Digest
		}
	}
	return st
}

// Propose reads the profiles that Use would select for these names.
func (p *Profiles) Propose(names []string) (u settings.InUse, err error) {
	if len(names) > maxStack {
		return u, bailey.Invalid.Errorf("", "at most %d profiles can be in use at once", maxStack)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return u, bailey.Invalid.New("profile "+name+" is named twice", "")
		}
		one, err := p.readProfile(name)
		if err == nil {
			err = p.workspaces.CheckCanonical(one.Workspaces)
		}
		if err != nil {
			return u, err
		}
		u.Profiles = append(u.Profiles, one)
	}
	if text, err := json.Marshal(u); err != nil || len(text) > maxInUse {
		return u, bailey.Invalid.Wrapf(err, "",
			"these profiles together exceed the %d bytes that a ledger entry can hold", maxInUse)
	}
	return u, nil
}

// Use durably selects profiles from the next call on. digests are those that the operator was shown, in the same order.
// If a file has changed since, the error is a Conflict.
func (p *Profiles) Use(ctx context.Context, names, digests []string, by settings.InUse) (u settings.InUse, err error) {
	err = p.now.Apply(func(settings.Stack) (next settings.Stack, record func() error, err error) {
		if u, err = p.Propose(names); err == nil && !slices.Equal(u.Digests(), digests) {
			err = bailey.Conflict.New("a profile was changed meanwhile", "check it again: bailey profile use")
		}
		u.At, u.Operator, u.Person = time.Now().UTC().Truncate(time.Second), by.Operator, by.Person
		return settings.Stack{InUse: u}, func() error { return p.note(ctx, apitype.ProfileEvent, u) }, err
	})
	return u, err
}
