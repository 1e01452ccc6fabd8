package sandboxdiff

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// step is one step of an export. Exactly one of its fields is set.
type step struct {
	refresh  bool // fetch the lists of packages
	install  []Package
	remove   []Package // without their configuration if purge is set
	purge    bool
	group    pair[Group]
	user     pair[User]
	home     bool // of user: create the home directory
	file     *File
	access   *File // only mode and owner
	gone     *File
	service  pair[Service]
	reload   bool   // systemd reads its units anew
	sysctl   string // a file to read
	start    string // a service to start, if services run
	position int    // among the steps, for a name
}

// exportSteps returns the steps in their order. Sources of packages precede packages, because they are read from them;
// packages precede users and files, because they create users and write files of their own.
func (d *Difference) exportSteps() []step {
	all := append(slices.Clone(d.Changes), d.silent...)
	var early, late []step
	for _, f := range fileSteps(all) {
		if f.filePath() == "/etc/apt" || strings.HasPrefix(f.filePath(), "/etc/apt/") ||
			strings.HasPrefix(f.filePath(), "/etc/apk/") {
			early = append(early, f)
		} else {
			late = append(late, f)
		}
	}
	steps := append(stopSteps(all), early...)
	steps = append(steps, d.packageSteps(all)...)
	steps = append(steps, accountSteps(all)...)
	steps = append(steps, late...)
	steps = append(steps, d.serviceSteps(all)...)
	for i := range steps {
		steps[i].position = i + 1
	}
	return steps
}

func (s step) filePath() string {
	for _, f := range []*File{s.file, s.access, s.gone} {
		if f != nil {
			return string(f.Path)
		}
	}
	return ""
}

// stopSteps disables services whose units exist no more, while systemd still finds the units.
func stopSteps(all []Change) (steps []step) {
	for _, c := range all {
		if s := c.service.before; s != nil && c.service.after == nil && s.State == Enabled {
			steps = append(steps, step{service: c.service})
		}
	}
	return steps
}

func (d *Difference) packageSteps(all []Change) (steps []step) {
	var install, remove, purge []Package
	for _, c := range all {
		switch {
		case c.packet.after != nil:
			install = append(install, *c.packet.after)
		case c.packet.before != nil && c.keepsConfig:
			remove = append(remove, *c.packet.before)
		case c.packet.before != nil:
			purge = append(purge, *c.packet.before)
		}
	}
	byName := func(a, b Package) int { return strings.Compare(a.Name, b.Name) }
	for _, list := range [][]Package{install, remove, purge} {
		slices.SortFunc(list, byName)
	}
	if len(remove) > 0 {
		steps = append(steps, step{remove: remove})
	}
	if len(purge) > 0 {
		steps = append(steps, step{remove: purge, purge: true})
	}
	if len(install) > 0 {
		steps = append(steps, step{refresh: true}, step{install: install})
	}
	return steps
}

// accountSteps removes accounts before it adds others, which may have their numbers, and adds groups before users.
func accountSteps(all []Change) []step {
	homes := map[string]bool{}
	for _, c := range all {
		if f := c.file.after; f != nil && f.Type == Directory {
			homes[string(f.Path)] = true
		}
	}
	var gone, groups, users []step
	for _, c := range all {
		switch u, g := c.user, c.group; {
		case u.after != nil:
			users = append(users, step{user: u, home: c.skeleton && u.before == nil && homes[u.after.Home]})
		case u.before != nil:
			gone = append([]step{{user: u}}, gone...)
		case g.after != nil:
			groups = append(groups, step{group: g})
		case g.before != nil:
			gone = append(gone, step{group: g})
		}
	}
	return append(append(gone, groups...), users...)
}

// fileSteps deletes files before it writes others, which may have their paths, and writes parents before children.
func fileSteps(all []Change) []step {
	var gone, written []step
	for _, c := range all {
		if c.Kind == KindService || c.file.before == nil && c.file.after == nil || !canExport(c.file) || c.skeleton {
			continue
		}
		f := c.file
		switch {
		case f.after == nil:
			gone = append(gone, step{gone: f.before})
			continue
		case f.before != nil && f.before.Type != f.after.Type:
			gone = append(gone, step{gone: f.before})
		case f.before != nil && equalContent(f.before, f.after):
			written = append(written, step{access: f.after})
			continue
		}
		written = append(written, step{file: f.after})
	}
	byPath := func(a, b step) int { return strings.Compare(a.filePath(), b.filePath()) }
	slices.SortFunc(written, byPath)
	slices.SortFunc(gone, byPath)
	top := "\x00"
	gone = slices.DeleteFunc(gone, func(s step) bool { // a directory is deleted with everything in it
		if strings.HasPrefix(s.filePath(), top+"/") {
			return true
		}
		if s.gone.Type == Directory {
			top = s.filePath()
		}
		return false
	})
	return append(gone, written...)
}

// canExport says whether an export can make a change; noteFile says why it cannot.
func canExport(p pair[File]) bool {
	f := p.after
	switch {
	case f == nil:
		return utf8.ValidString(string(p.before.Path))
	case !utf8.ValidString(string(f.Path)) || !utf8.ValidString(string(f.Target)) || f.Type == Special:
		return false
	}
	return f.Type != Regular || f.Content != nil || p.before != nil && equalContent(p.before, f)
}

// serviceSteps enables, disables and masks services, and lets running systems read what changed.
func (d *Difference) serviceSteps(all []Change) (steps []step) {
	if d.OS != alpine && slices.ContainsFunc(all, func(c Change) bool {
		return c.Kind == KindService || (c.file.before != nil || c.file.after != nil) && isBelow(c.filePath(), unitDir)
	}) {
		steps = append(steps, step{reload: true})
	}
	var starts []step
	for _, c := range all {
		if s := c.service.after; s != nil && (s.State != Static || c.service.before != nil) {
			steps = append(steps, step{service: c.service})
			if s.State == Enabled && slices.Contains([]string{".service", ".socket", ".timer", ".path", ""},
				path.Ext(s.Name)) {
				starts = append(starts, step{start: s.Name})
			}
		}
	}
	for _, c := range all {
		if c.Kind == KindSysctl && c.file.after != nil && canExport(c.file) {
			steps = append(steps, step{sysctl: c.filePath()})
		}
	}
	return append(steps, starts...)
}

// alpine is the ID of the system with apk and OpenRC; the others have apt and systemd.
const alpine = "alpine"

// withVersions returns the packages with their versions, as apt-get(8) and apk(8) take them.
func withVersions(list []Package) (words []string) {
	for _, p := range list {
		words = append(words, p.Name+"="+p.Version)
	}
	return words
}

func namesOf(list []Package) (words []string) {
	for _, p := range list {
		words = append(words, p.Name)
	}
	return words
}
