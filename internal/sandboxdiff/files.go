package sandboxdiff

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// compareFiles adds the changes of files that no package and no new user explains.
func (c *comparison) compareFiles() {
	omitted := map[string]bool{}
	for _, o := range append(slices.Clone(c.before.Omitted), c.after.Omitted...) {
		omitted[string(o.Path)] = true
	}
	for _, p := range findDiffering(c.before.Files, c.after.Files,
		func(f *File) string { return string(f.Path) }, c.equalFiles) {
		if c.isExplained(p.name, p.pair) || isBelowAny(omitted, p.name) {
			continue
		}
		change := Change{Action: p.actionOf(), Name: showPath(p.name), file: p.pair}
		change.Kind = kindOf(p.name, p.pair)
		change.Summary, change.Diff = describeFile(change.Name, p.pair)
		change.silent, change.skeleton = c.isHome(p.name, p.after)
		c.changes = append(c.changes, change)
	}
	c.keepSkeletons()
}

// keepSkeletons leaves the copies of /etc/skel to useradd(8) only if the new user has all of them.
func (c *comparison) keepSkeletons() {
	copies := map[string]int{}
	for i := range c.changes {
		if f := &c.changes[i]; f.skeleton {
			copies[f.file.after.Owner]++
		}
	}
	for i := range c.changes {
		if f := &c.changes[i]; f.skeleton && copies[f.file.after.Owner] != len(c.skeleton) {
			f.skeleton = false
		}
	}
	for i := range c.changes {
		u := &c.changes[i]
		u.skeleton = u.skeleton || u.user.after != nil && copies[u.user.after.Name] == len(c.skeleton)
	}
}

// isBelowAny says whether a path, or a directory above it, is in the set.
func isBelowAny(set map[string]bool, name string) bool {
	for ; name != "/"; name = path.Dir(name) {
		if set[name] {
			return true
		}
	}
	return false
}

func (c *comparison) equalFiles(a, b *File) bool {
	return equalContent(a, b) && a.Mode == b.Mode && (a.Owner == b.Owner || c.sameOwner[[2]string{a.Owner, b.Owner}]) &&
		(a.Group == b.Group || c.sameGroup[[2]string{a.Group, b.Group}])
}

func equalContent(a, b *File) bool {
	return a.Type == b.Type && a.SHA256 == b.SHA256 && a.Target == b.Target
}

// isExplained says whether the change of a package explains the change of a file.
func (c *comparison) isExplained(name string, p pair[File]) bool {
	switch {
	case p.after != nil && c.explained[p.after.Package]:
		return true
	case p.after == nil && c.explained[p.before.Package]:
		return true
	case len(c.explained) == 0:
		return false
	case path.Dir(name) == "/etc/alternatives":
		return true
	case p.after != nil && p.after.Type == Link && strings.HasPrefix(string(p.after.Target), "/etc/alternatives/"):
		return true
	case p.after == nil && p.before.Type == Link && strings.HasPrefix(string(p.before.Target), "/etc/alternatives/"):
		return true
	}
	if owner, ok := c.homes[name]; ok && owner == "" && p.before == nil && p.after.Type == Directory {
		return true // of a package's user
	}
	return p.before == nil && c.isState(name)
}

// isState says whether a path is below a directory in /var/lib that a changed package ships: its programs write there.
func (c *comparison) isState(name string) bool {
	for dir := path.Dir(name); strings.HasPrefix(dir, "/var/lib/"); dir = path.Dir(dir) {
		if f := findFile(c.after.Files, dir); f != nil && c.explained[f.Package] {
			return true
		}
	}
	return false
}

func findFile(files []File, name string) *File {
	i, ok := slices.BinarySearchFunc(files, name, func(f File,
		name string) int {
		return strings.Compare(string(f.Path), name)
	})
	if !ok {
		return nil
	}
	return &files[i]
}

// isHome says whether a file is the home directory of a new user, or its copy of a file of /etc/skel.
func (c *comparison) isHome(name string, f *File) (isHome, isCopy bool) {
	if f == nil {
		return false, false
	}
	for dir, below := name, ""; dir != "/"; dir, below = path.Dir(dir), path.Join(path.Base(dir), below) {
		owner, ok := c.homes[dir]
		if !ok || owner == "" || f.Owner != owner || f.Mode&0o6022 != 0 {
			continue
		}
		if below == "" {
			return f.Type == Directory, false
		}
		if was := c.skeleton[below]; was != nil && equalContent(was, f) && was.Mode == f.Mode {
			return true, true
		}
	}
	return false, false
}

func kindOf(name string, p pair[File]) Kind {
	isRegular := (p.before == nil || p.before.Type == Regular) && (p.after == nil || p.after.Type == Regular)
	switch {
	case p.before != nil && p.after != nil && equalContent(p.before, p.after):
		return KindPermission
	case isRegular && isBelow(name, "/etc/crontab", "/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily",
		"/etc/cron.weekly",
		"/etc/cron.monthly", "/etc/cron.yearly", "/var/spool/cron", "/etc/crontabs", "/etc/anacrontab"):
		return KindCron
	case isRegular && isBelow(name, "/etc/sysctl.conf", "/etc/sysctl.d", "/usr/lib/sysctl.d",
		"/usr/local/lib/sysctl.d"):
		return KindSysctl
	case isRegular && name == "/etc/hosts":
		return KindHosts
	case p.after == nil:
		return KindDeleted
	case isRegular && p.before != nil && isBelow(name, "/etc"):
		return KindConfig
	}
	return KindFile
}

// isBelow says whether a path is one of the given ones, or below it.
func isBelow(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return name == d || strings.HasPrefix(name, d+"/") })
}

// describeFile returns one line for a person, and the unified difference of a text.
func describeFile(shown string, p pair[File]) (summary, diff string) {
	switch p.actionOf() {
	case Removed:
		return typeName(p.before) + " " + shown + " was deleted", ""
	case Added:
		summary = fmt.Sprintf("%s %s was added (mode %04o, %s:%s)", typeName(p.after), shown, p.after.Mode,
			p.after.Owner, p.after.Group)
		if p.after.Type == Link {
			summary = "link " + shown + " to " + showPath(string(p.after.Target)) + " was added"
		}
		return summary, contentDiff(nil, p.after)
	}
	var parts []string
	switch {
	case p.before.Type != p.after.Type:
		parts = append(parts, "it was a "+typeName(p.before)+" and is a "+typeName(p.after))
	case p.before.Target != p.after.Target:
		parts = append(parts,
			"its target from "+showPath(string(p.before.Target))+" to "+showPath(string(p.after.Target)))
	case p.before.SHA256 != p.after.SHA256:
		parts = append(parts, fmt.Sprintf("its content, from %d to %d bytes", p.before.Size, p.after.Size))
	}
	if p.before.Mode != p.after.Mode && p.before.Type == p.after.Type {
		parts = append(parts, fmt.Sprintf("its mode from %04o to %04o", p.before.Mode, p.after.Mode))
	}
	if p.before.Owner != p.after.Owner || p.before.Group != p.after.Group {
		parts = append(parts,
			"its owner from "+p.before.Owner+":"+p.before.Group+" to "+p.after.Owner+":"+p.after.Group)
	}
	return typeName(p.after) + " " + shown + " was changed: " + strings.Join(parts, ", "), contentDiff(p.before,
		p.after)
}

func typeName(f *File) string {
	if f.Type == Special {
		return "device or pipe"
	}
	return f.Type
}

func contentDiff(before, after *File) string {
	if after.Type != Regular || after.Content == nil || before != nil && before.SHA256 == after.SHA256 {
		return ""
	}
	old := ""
	if before != nil && before.Type == Regular {
		if before.Content == nil {
			return ""
		}
		old = string(*before.Content)
	}
	return unifiedDiff(old, string(*after.Content))
}

// isPrintable says whether a text can be shown and written as text: UTF-8 without control characters but tab and
// newline, and without characters that change the direction of text.
func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' &&
			isControl(r)
	})
}

// foldChanges makes changes silent that another change explains: the directories above a new file, everything in a
// deleted
// directory, and the ordinary files in a new directory with many of them.
func (c *comparison) foldChanges() {
	byPath := map[string]*Change{}
	for i := range c.changes {
		f := &c.changes[i]
		if f.file.before != nil || f.file.after != nil {
			if f.Kind != KindService {
				byPath[f.filePath()] = f
			}
		}
	}
	children := map[*Change]int{}
	for name, f := range byPath {
		if !isDirectory(f.file.after) {
			c.foldParents(byPath, name)
		}
		if f.Action == Removed {
			for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
				if d := byPath[dir]; d != nil && d.Action == Removed {
					f.silent = true
					children[d]++
				}
			}
		}
	}
	for d, n := range children {
		d.Summary += fmt.Sprintf(", with %d files in it", n)
	}
	c.foldTrees(byPath)
}

func isDirectory(f *File) bool { return f != nil && f.Type == Directory }

// isOrdinary says whether a new file gives nobody but its owner the right to write, and nobody another identity.
func isOrdinary(f *File) bool {
	return f != nil && (f.Type == Link || f.Mode&0o6022 == 0) && f.Type != Special
}

func (c *comparison) foldParents(byPath map[string]*Change, name string) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		d := byPath[dir]
		if d != nil && d.Action == Added && isDirectory(d.file.after) && isOrdinary(d.file.after) {
			d.silent = true
		}
	}
}

// manyFiles is the number of files from which a new directory is named instead of its files.
const manyFiles = 50

func (c *comparison) foldTrees(byPath map[string]*Change) {
	count := map[string]int{}
	for name, f := range byPath {
		for dir := path.Dir(name); dir != "/" && f.Action == Added; dir = path.Dir(dir) {
			if d := byPath[dir]; d != nil && d.Action == Added && isDirectory(d.file.after) {
				count[dir]++
			}
		}
	}
	for name, f := range byPath {
		top := ""
		for dir := path.Dir(name); dir != "/" && f.Action == Added; dir = path.Dir(dir) {
			if count[dir] >= manyFiles {
				top = dir
			}
		}
		if top == "" {
			continue
		}
		if d := byPath[top]; isOrdinary(f.file.after) && f.Kind == KindFile &&
			f.file.after.Owner == d.file.after.Owner {
			f.silent, d.silent = true, false
			d.Summary = fmt.Sprintf("directory %s was added with %d files", d.Name, count[top])
		}
	}
}

// filePath returns the path of a change of a file.
func (c *Change) filePath() string {
	if c.file.after != nil {
		return string(c.file.after.Path)
	}
	return string(c.file.before.Path)
}

// noteFile notes the part of a new or changed file that an export cannot reproduce.
func (c *comparison) noteFile(f *File) {
	if f == nil {
		return
	}
	shown := showPath(string(f.Path))
	switch {
	case !utf8.ValidString(string(f.Path)) || !utf8.ValidString(string(f.Target)):
		c.addNote("the name or target of " + shown + " is not UTF-8; an export does not have it")
	case f.Type == Special:
		c.addNote(shown + " is a device or a pipe; an export does not have it")
	case f.Type == Regular && f.Content == nil:
		before := findFile(c.before.Files, string(f.Path))
		if before == nil || before.SHA256 != f.SHA256 {
			c.addNote(fmt.Sprintf("%s has %d bytes, which is more than an export holds", shown, f.Size))
		}
	}
}
