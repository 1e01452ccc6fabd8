//go:build linux

package wrap

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey"
)

// State is the directory that runs keep things in, outside of Bailey's home:
//
//	<digest>/home   the home of a project's agents, where it is kept
//	fresh/<id>      one that is not
//	runs/<id>.json  a run under way, or one that was killed: a [Run]
//	quarantine/     what appeared in projects; see [Run.Settle]
type State string

// FindState is below the user's home directory, where it is masked in every cage.
func FindState() (State, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: "no home directory is known", Hint: "set HOME", Err: err}
	}
	return State(filepath.Join(home, ".local", "state", "bailey-wrap")), nil
}

// Run is a run of an agent as it is written down before it starts: what was guarded then, so that whatever appears is known,
// by whoever comes after a run that was killed too.
type Run struct {
	ID      string            `json:"id"`
	Agent   string            `json:"agent"`
	Project string            `json:"project"`
	Started time.Time         `json:"started"`
	Before  []string          `json:"before"`           // of the project, relative
	Linked  bool              `json:"linked,omitempty"` // Links was looked for: a run of an older version did not
	Links   map[string]string `json:"links,omitempty"`  // links that led out of it, with their targets
	Stamps  map[string]string `json:"stamps,omitempty"` // what each of those was
	Fresh   string            `json:"fresh,omitempty"`  // its home, where that is not kept

	state  State
	lock   *os.File
	git    []string // directories that are git's own
	away   []string // links that [Run.Watch] removed, and their words
	awayTo map[string]string
}

// MarshalJSON and UnmarshalJSON have names in a form that JSON keeps: one need not be UTF-8, and who comes after a run that was
// killed would take it for another.
func (r *Run) MarshalJSON() ([]byte, error) {
	return json.Marshal((*record)(r.renamed(func(s string) (string, error) { return url.PathEscape(s), nil })))
}

func (r *Run) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*record)(r)); err != nil {
		return err
	}
	var bad error
	*r = *r.renamed(func(s string) (string, error) {
		name, err := url.PathUnescape(s)
		bad = cmp.Or(bad, err)
		return name, err
	})
	return bad
}

type record Run // without the methods

func (r *Run) renamed(by func(string) (string, error)) *Run {
	to := *r
	to.Project, _ = by(r.Project)
	to.Before, to.Stamps, to.Links = nil, map[string]string{}, map[string]string{}
	for name, words := range r.Links {
		name, _ = by(name)
		words, _ = by(words)
		to.Links[name] = words
	}
	for _, name := range r.Before {
		name, _ = by(name)
		to.Before = append(to.Before, name)
	}
	for name, stamp := range r.Stamps {
		name, _ = by(name)
		to.Stamps[name] = stamp
	}
	return &to
}

// Begin writes a run down and holds it until Settle.
func (s State) Begin(agent, project string, before Found, keepHome bool) (r *Run, home string, err error) {
	r = &Run{ID: newID(), Agent: agent, Project: project, Started: time.Now().UTC(), Before: before.Paths, Linked: true, Links: before.Links, state: s, git: before.Git}
	if r.Stamps, err = stamps(project, before.Paths); err != nil {
		return nil, "", err
	}
	home = s.in(named(project), "home")
	if !keepHome {
		home = s.in("fresh", r.ID)
		r.Fresh = home
	}
	if info, err := os.Lstat(home); err == nil && info.IsDir() {
		os.Chmod(home, 0o700) // an agent can change the mode of its own; own looks whose it is
	}
	for _, dir := range []string{s.in(), s.in("runs"), s.in("quarantine"), filepath.Dir(home), home} {
		if err := own(dir); err != nil {
			return nil, "", err
		}
	}
	// It has its name once it is whole and held: whoever looks meanwhile would take it for that of a run that was killed.
	unnamed := s.record(r.ID) + ".new"
	if r.lock, err = os.OpenFile(unnamed, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600); err != nil {
		return nil, "", unwritten(s, err)
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		_, err = r.lock.Write(b)
	}
	if err == nil {
		err = r.lock.Sync()
	}
	if err == nil {
		err = os.Rename(unnamed, s.record(r.ID))
	}
	if err != nil {
		os.Remove(unnamed)
		r.lock.Close()
		return nil, "", unwritten(s, err)
	}
	return r, home, nil
}

// named is what a project's directory is called.
func named(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:12])
}

func unwritten(s State, err error) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "the run could not be written down, so it is not begun", Hint: "see that " + string(s) + " can be written", Err: err}
}

func (s State) in(names ...string) string {
	return filepath.Join(append([]string{string(s)}, names...)...)
}

func (s State) record(id string) string { return s.in("runs", id+".json") }

// own makes a directory that is the user's alone, or refuses one that is not.
func own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: dir + " cannot be made", Err: err}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || st == nil || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return &bailey.Error{Kind: bailey.Denied, Message: dir + " is not a directory of yours alone", Hint: "make it yours, with mode 0700, or move it away"}
	}
	return nil
}

func newID() string {
	var b [10]byte
	rand.Read(b[:])
	return "w-" + hex.EncodeToString(b[:])
}

// Abandon gives a run up as it stands, as a kill does.
func (r *Run) Abandon() { r.lock.Close() }

// Left are runs of a project that were killed, of one above or below it too, each held until Settle; of every project where that is "".
func (s State) Left(project string) (list []*Run, err error) {
	names, bad := filepath.Glob(s.in("runs", "w-*.json"))
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			f.Close() // it is under way
			continue
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			f.Close() // it was settled since it was opened
			continue
		}
		r := &Run{state: s, lock: f}
		if err := json.NewDecoder(f).Decode(r); err != nil || s.record(r.ID) != name {
			f.Close()
			bad = errors.Join(bad, &bailey.Error{Kind: bailey.Invalid, Message: name + " is no record of a run", Err: err,
				Hint: "look through the project for what its name says was left, then remove the file"})
			continue // which is no reason to leave the others
		}
		if project != "" && !within(project, r.Project) && !within(r.Project, project) {
			f.Close()
			continue
		}
		list = append(list, r)
	}
	return list, bad
}

// Settled is what a run left in its project.
type Settled struct {
	Dir     string            `json:"quarantine,omitempty"` // holds new files, by their paths in the project
	Moved   []string          `json:"moved,omitempty"`
	Links   map[string]string `json:"links,omitempty"`   // those of Moved that are links out of the project, with their targets
	Unseen  []string          `json:"unseen,omitempty"`  // directories that could not be looked into
	Changed []string          `json:"changed,omitempty"` // guarded files that are not as they were
}

// maxWords bounds how many things of a kind are named to a person: an agent can leave millions.
const maxWords = 20

// Words say it to a person.
func (s Settled) Words(project string) (lines []string) {
	for i, path := range s.Moved {
		words, link := s.Links[path]
		switch {
		case i == maxWords:
			lines = append(lines, fmt.Sprintf("%d more appeared and were taken out of the project", len(s.Moved)-i)+s.list())
		case i > maxWords:
		case link:
			lines = append(lines, fmt.Sprintf("%s appeared, a symbolic link to %s: it was taken out, since git or another program outside of the wall would write through it", path, words))
		default:
			lines = append(lines, fmt.Sprintf("%s appeared, and programs outside of the wall would act on it: it is in quarantine; to have it back: mv -n %s %s",
				path, quoted(filepath.Join(s.Dir, path)), quoted(filepath.Join(project, path))))
		}
	}
	for _, path := range s.Changed {
		lines = append(lines, fmt.Sprintf("%s is not what it was when the agent began: it was replaced from outside of the wall, and from then on the agent could write it; read it before a program acts on it",
			filepath.Join(project, path)))
	}
	for i, path := range s.Unseen {
		if i == maxWords {
			lines = append(lines, fmt.Sprintf("%d more directories could not be looked into", len(s.Unseen)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s could not be looked into: see what is there before a program outside of the wall does", filepath.Join(project, path)))
	}
	return lines
}

// list says where all of them are named.
func (s Settled) list() string {
	if s.Dir == "" {
		return "" // of links that were removed nothing is kept
	}
	return ": " + s.Dir + ".json names those that are in quarantine"
}

// moved notes a path that was taken out of the project. An agent can make a link again where one was removed, and a file as well.
func (s *Settled) moved(path string, links map[string]string) {
	if s.Links[path] == "" {
		s.Moved = append(s.Moved, path)
	}
	words, link := links[path]
	if !link {
		delete(s.Links, path)
		return
	}
	if s.Links == nil {
		s.Links = map[string]string{}
	}
	s.Links[path] = words
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Settle moves what appeared out of the project, drops a home that is not kept, and forgets the run: in this order, so that one
// that does not get so far is found again. Nothing of the cage may be alive.
func (r *Run) Settle() (s Settled, err error) {
	defer r.lock.Close()
	now, err := search(r.Project, -1, []string{string(r.state)})
	switch {
	case errors.Is(err, fs.ErrNotExist): // gone, or moved away with all that is in it
		s.Unseen = []string{"."}
	case err != nil:
		return s, err
	default:
		s.Unseen = now.Unseen
		is, err := stamps(r.Project, r.Before)
		if err != nil {
			return s, err
		}
		s.Changed = changed(r.Stamps, is)
		s.Moved, s.Links = r.away, r.awayTo
		var links []string
		if r.Linked {
			links = newLinks(r.Links, now.Links)
		}
		fresh := slices.Sorted(slices.Values(slices.Concat(New(r.Before, now.Paths), links)))
		if len(fresh) > 0 {
			if s.Dir, err = r.quarantine(fresh); err != nil {
				return s, err
			}
		}
		var stuck []error // one that cannot be moved is no reason to leave the others
		for _, path := range fresh {
			if err := move(r.Project, path, s.Dir); err == nil {
				s.moved(path, now.Links)
			} else if !errors.Is(err, fs.ErrNotExist) && len(stuck) < maxWords {
				stuck = append(stuck, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%q appeared in %s and could not be moved to %s", path, r.Project, s.Dir), Err: err,
					Hint: "move it away yourself, before you open the project"})
			}
		}
		if len(stuck) > 0 {
			return s, errors.Join(stuck...)
		}
	}
	if r.Fresh != "" && filepath.Dir(r.Fresh) == r.state.in("fresh") {
		if err := discard(r.Fresh); err != nil {
			return s, err
		}
	}
	return s, os.Remove(r.state.record(r.ID))
}

// quarantine makes a directory that nothing was put in yet, however often the run was settled, and beside it says where each
// thing comes from.
func (r *Run) quarantine(paths []string) (dir string, err error) {
	b, err := json.MarshalIndent(map[string]any{"run": r.ID, "agent": r.Agent, "project": r.Project, "started": r.Started, "moved": paths}, "", "  ")
	if err != nil {
		return "", err
	}
	dir = r.state.in("quarantine", r.Started.Format("20060102T150405Z")+"-"+r.ID)
	for n := 2; ; n++ {
		err = os.Mkdir(dir, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		dir = fmt.Sprintf("%s-%s-%d", r.state.in("quarantine", r.Started.Format("20060102T150405Z")), r.ID, n)
	}
	if err == nil {
		err = own(dir)
	}
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(dir+".json", append(b, '\n'), 0o600)
}
