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
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey"
)

// State is the directory for the data of runs, outside Bailey's home:
//
//	<digest>/home   the home of a project's agents, if it is kept
//	fresh/<id>      a home that is not kept
//	runs/<id>.json  a current run, or one that was killed: a [Run]
//	quarantine/     files that appeared in projects; see [Run.Settle]
type State string

// FindState returns a directory below the user's home directory, where every cage masks it.
func FindState() (State, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", bailey.Invalid.Wrap(err, "the home directory is unknown", "set HOME")
	}
	return State(filepath.Join(home, ".local", "state", "bailey-wrap")), nil
}

// Run is the record of an agent's run, written before the agent starts. It lists the files that were guarded then, so
// that new ones can be found, even by a later process after the run was killed.
type Run struct {
	ID      string            `json:"id"`
	Agent   string            `json:"agent"`
	Project string            `json:"project"`
	Started time.Time         `json:"started"`
	Before  []string          `json:"before"`           // guarded paths of the project, relative
	Linked  bool              `json:"linked,omitempty"` // Links was recorded: a run of an older version did not
	Links   map[string]string `json:"links,omitempty"`  // links out of the project, with their targets
	Stamps  map[string]string `json:"stamps,omitempty"` // digest of each guarded path
	Fresh   string            `json:"fresh,omitempty"`  // its home, if it is not kept

	state  State
	lock   *os.File
	git    []string // git's own directories
	away   []string // links that [Run.Watch] removed; awayTo has their targets
	awayTo map[string]string
}

// MarshalJSON and UnmarshalJSON escape names. A name need not be UTF-8, and JSON would change it, so that a later
// process would take it for another file.
func (r *Run) MarshalJSON() ([]byte, error) {
	return json.Marshal((*runJSON)(r.mapNames(func(s string) (string, error) { return url.PathEscape(s), nil })))
}

func (r *Run) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*runJSON)(r)); err != nil {
		return err
	}
	var bad error
	*r = *r.mapNames(func(s string) (string, error) {
		name, err := url.PathUnescape(s)
		bad = cmp.Or(bad, err)
		return name, err
	})
	return bad
}

type runJSON Run // without the methods

func (r *Run) mapNames(by func(string) (string, error)) *Run {
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

// Begin writes the record of a run and locks it until Settle.
func (s State) Begin(agent, project string, before Found, keepHome bool) (r *Run, home string, err error) {
	r = &Run{ID: newID(), Agent: agent, Project: project, Started: time.Now().UTC(), Before: before.Paths, Linked: true,
		Links: before.Links, state: s, git: before.Git}
	if r.Stamps, err = stampPaths(project, before.Paths); err != nil {
		return nil, "", err
	}
	home = s.joinPath(projectDirName(project), "home")
	if !keepHome {
		home = s.joinPath("fresh", r.ID)
		r.Fresh = home
	}
	if err := makeHome(home, s.joinPath(), s.joinPath("runs"), s.joinPath("quarantine")); err != nil {
		return nil, "", err
	}
	// The record must be complete and locked before it gets its name. Otherwise another process could take it for that
	// of a killed run.
	unnamed := s.recordPath(r.ID) + ".new"
	if r.lock, err = os.OpenFile(unnamed, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600); err != nil {
		return nil, "", runRecordError(s, err)
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
		err = os.Rename(unnamed, s.recordPath(r.ID))
	}
	if err != nil {
		os.Remove(unnamed)
		r.lock.Close()
		return nil, "", runRecordError(s, err)
	}
	return r, home, nil
}

// projectDirName returns the name of a project's directory.
func projectDirName(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:12])
}

func runRecordError(s State, err error) error {
	return bailey.Unavailable.Wrap(err, "cannot record the run, so it was not started",
		"make sure that "+string(s)+" can be written")
}

func (s State) joinPath(names ...string) string {
	return filepath.Join(append([]string{string(s)}, names...)...)
}

func (s State) recordPath(id string) string { return s.joinPath("runs", id+".json") }

// makeHome makes the given directories, the parent of a home, and the home.
func makeHome(home string, dirs ...string) error {
	if info, err := os.Lstat(home); err == nil && info.IsDir() {
		os.Chmod(home, 0o700) // an agent can change the mode of its home; makePrivateDir checks the owner
	}
	for _, dir := range append(dirs, filepath.Dir(home), home) {
		if err := makePrivateDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// makePrivateDir makes a directory that only this user can access. It refuses one that others can access.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return bailey.Unavailable.Wrap(err, dir+" cannot be created", "")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || st == nil || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return bailey.Denied.New(dir+" is not a directory that only you can access",
			"change its owner to you and its mode to 0700, or move it away")
	}
	return nil
}

func newID() string {
	var b [10]byte
	rand.Read(b[:])
	return "w-" + hex.EncodeToString(b[:])
}

// Abandon leaves a run unsettled, as if it had been killed.
func (r *Run) Abandon() { r.lock.Close() }

// Left returns the killed runs of a project, or of a directory above or below it, each locked until Settle. If project
// is "", it returns those of every project.
func (s State) Left(project string) (list []*Run, err error) {
	names, bad := filepath.Glob(s.joinPath("runs", "w-*.json"))
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
			f.Close() // still running
			continue
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			f.Close() // settled after it was opened
			continue
		}
		r := &Run{state: s, lock: f}
		if err := json.NewDecoder(f).Decode(r); err != nil || s.recordPath(r.ID) != name {
			f.Close()
			bad = errors.Join(bad, bailey.Invalid.Wrap(err, name+" is not a record of a run",
				"search the project for the files that its name refers to, then remove it"))
			continue // the others must still be returned
		}
		if project != "" && !isWithin(project, r.Project) && !isWithin(r.Project, project) {
			f.Close()
			continue
		}
		list = append(list, r)
	}
	return list, bad
}

// Settled describes the effects of a run on its project.
type Settled struct {
	Dir   string   `json:"quarantine,omitempty"` // contains the new files, at their paths in the project
	Moved []string `json:"moved,omitempty"`
	// those of Moved that are links out of the project, with their targets
	Links   map[string]string `json:"links,omitempty"`
	Unseen  []string          `json:"unseen,omitempty"`  // directories that could not be read
	Changed []string          `json:"changed,omitempty"` // guarded files that have changed
}

// maxWords limits how many items of a kind are named to a person: an agent can leave millions.
const maxWords = 20

// Words describes the effects to a person, one line each.
func (s Settled) Words(project string) (lines []string) {
	for i, path := range s.Moved {
		words, link := s.Links[path]
		switch {
		case i == maxWords:
			lines = append(lines,
				fmt.Sprintf("%d more were created and removed from the project", len(s.Moved)-i)+s.quarantineNote())
		case i > maxWords:
		case link:
			lines = append(lines,
				fmt.Sprintf("%s was created, a symbolic link to %s: it was removed, because git or another program outside of the agent jail would write through it", path, words))
		default:
			lines = append(lines,
				fmt.Sprintf("%s was created, and programs outside of the agent jail would use it: it is in quarantine; to restore it: mv -n %s %s",
					path, shellQuote(filepath.Join(s.Dir, path)), shellQuote(filepath.Join(project, path))))
		}
	}
	for _, path := range s.Changed {
		lines = append(lines, fmt.Sprintf("%s was replaced from outside of the agent jail while the agent ran, and from then on the agent could write it; check it before a program uses it",
			filepath.Join(project, path)))
	}
	for i, path := range s.Unseen {
		if i == maxWords {
			lines = append(lines, fmt.Sprintf("%d more directories could not be read", len(s.Unseen)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s could not be read: check its contents before a program outside of the agent jail does", filepath.Join(project, path)))
	}
	return lines
}

// quarantineNote says where all moved files are named.
func (s Settled) quarantineNote() string {
	if s.Dir == "" {
		return "" // removed links are not kept
	}
	return ": " + s.Dir + ".json lists those that are in quarantine"
}

// recordMoved records a path that was removed from the project. After a link was removed, an agent can make it again, or a
// file in its place.
func (s *Settled) recordMoved(path string, links map[string]string) {
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

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Settle moves new files out of the project, deletes a home that is not kept, and deletes the record. The order ensures
// that an interrupted run is found again. All processes of the cage must have ended.
func (r *Run) Settle() (s Settled, err error) {
	defer r.lock.Close()
	now, err := searchProject(r.Project, -1, []string{string(r.state)})
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed, or moved away with its contents
		s.Unseen = []string{"."}
	case err != nil:
		return s, err
	default:
		s.Unseen = now.Unseen
		is, err := stampPaths(r.Project, r.Before)
		if err != nil {
			return s, err
		}
		s.Changed = changedPaths(r.Stamps, is)
		s.Moved, s.Links = r.away, r.awayTo
		var links []string
		if r.Linked {
			links = changedPaths(now.Links, r.Links) // new, or with a new target
		}
		fresh := slices.Sorted(slices.Values(slices.Concat(New(r.Before, now.Paths), links)))
		if len(fresh) > 0 {
			if s.Dir, err = r.makeQuarantine(fresh); err != nil {
				return s, err
			}
		}
		var stuck []error // if one cannot be moved, the others still must be
		for _, path := range fresh {
			if err := moveFile(r.Project, path, s.Dir); err == nil {
				s.recordMoved(path, now.Links)
			} else if !errors.Is(err, fs.ErrNotExist) && len(stuck) < maxWords {
				stuck = append(stuck,
					bailey.Unavailable.Wrapf(err, "move it away yourself before you open the project",
						"%q was created in %s and could not be moved to %s", path, r.Project, s.Dir))
			}
		}
		if len(stuck) > 0 {
			return s, errors.Join(stuck...)
		}
	}
	if r.Fresh != "" && filepath.Dir(r.Fresh) == r.state.joinPath("fresh") {
		if err := removeTree(r.Fresh); err != nil {
			return s, err
		}
	}
	return s, os.Remove(r.state.recordPath(r.ID))
}

// makeQuarantine makes a new directory, even if the run was settled before. A file beside it lists where each item comes
// from.
func (r *Run) makeQuarantine(paths []string) (dir string, err error) {
	b, err := json.MarshalIndent(map[string]any{"run": r.ID, "agent": r.Agent, "project": r.Project,
		"started": r.Started, "moved": paths}, "", "  ")
	if err != nil {
		return "", err
	}
	dir = r.state.joinPath("quarantine", r.Started.Format("20060102T150405Z")+"-"+r.ID)
	for n := 2; ; n++ {
		err = os.Mkdir(dir, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		dir = fmt.Sprintf("%s-%s-%d", r.state.joinPath("quarantine", r.Started.Format("20060102T150405Z")), r.ID, n)
	}
	if err == nil {
		err = makePrivateDir(dir)
	}
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(dir+".json", append(b, '\n'), 0o600)
}

// Limits on kept homes of tools: each cache keeps those of the most recent projects, for a limited time.
const (
	maxKept = 32
	keptFor = 30 * 24 * time.Hour
)

// Sweep settles killed runs of tools below dir, reports their effects, and then deletes homes beyond the limits. A
// gateway calls it at its start, when no tool runs. If something cannot be settled, Sweep reports that too, and the
// next start tries again: a tool's effect on one project must not stop the gateway.
func Sweep(dir string) (words []string, err error) {
	caches, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, c := range caches {
		if !c.IsDir() {
			continue
		}
		s := State(filepath.Join(dir, c.Name()))
		left, lerr := s.Left("")
		words = append(words, describeUnsettled(lerr)...)
		for _, r := range left {
			settled, serr := r.Settle()
			words = append(append(words, settled.Words(r.Project)...), describeUnsettled(serr)...)
		}
		words = append(words, describeUnsettled(s.sweepHomes(time.Now()))...)
	}
	return words, err
}

// describeUnsettled describes an error and its remedy to a person.
func describeUnsettled(err error) []string {
	if err == nil {
		return nil
	}
	return []string{strings.TrimSuffix(fmt.Sprintf("failed, and will be tried again at the next start: %v: %s", err,
		bailey.HintOf(err)), ": ")}
}

// sweepHomes first moves homes that are too old or too many to another directory. If it is killed halfway, no partial cache
// is left.
func (s State) sweepHomes(now time.Time) (err error) {
	homes, err := filepath.Glob(s.joinPath("*", "home"))
	fetched, ferr := filepath.Glob(s.joinPath("*", "fetched"))
	if homes = append(homes, fetched...); err != nil || ferr != nil || len(homes) == 0 {
		return errors.Join(err, ferr)
	}
	used := map[string]time.Time{}
	for _, h := range homes {
		if info, err := os.Stat(filepath.Dir(h)); err == nil {
			used[filepath.Dir(h)] = info.ModTime()
		}
	}
	dirs := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return used[b].Compare(used[a]) })
	for i, d := range dirs {
		os.RemoveAll(filepath.Join(d, "home", ".tmp")) // of killed tools
		os.RemoveAll(filepath.Join(d, "fetched", ".tmp"))
		if i < maxKept && now.Sub(used[d]) < keptFor {
			continue
		}
		gone := s.joinPath("fresh", newID())
		if merr := errors.Join(makePrivateDir(s.joinPath("fresh")), os.Rename(d, gone)); merr != nil {
			err = errors.Join(err, merr)
		}
	}
	trash, _ := filepath.Glob(s.joinPath("fresh", "*"))
	for _, t := range trash {
		err = errors.Join(err, removeTree(t))
	}
	return err
}
