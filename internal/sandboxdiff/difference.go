package sandboxdiff

// Kind is the kind of a change, in the terms of an administrator.
type Kind string

// The kinds of changes.
const (
	KindPackage    Kind = "package"
	KindService    Kind = "service"
	KindUser       Kind = "user"
	KindGroup      Kind = "group"
	KindFile       Kind = "file"       // a new file, directory or link, or another content that is not a configuration
	KindConfig     Kind = "config"     // an existing configuration file with another content
	KindPermission Kind = "permission" // mode, owner or group of a file whose content is the same
	KindCron       Kind = "cron"       // a file of cron
	KindSysctl     Kind = "sysctl"     // a file with kernel parameters
	KindHosts      Kind = "hosts"      // entries of /etc/hosts
	KindDeleted    Kind = "deleted"    // a file that exists no more
)

// The actions of a change.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Change is one change. Its JSON has no content of files but Diff.
type Change struct {
	Kind    Kind   `json:"kind"`
	Action  string `json:"action"`
	Name    string `json:"name"`           // of a package, service, user or group, or a path; quoted if it has control characters
	Summary string `json:"summary"`        // one line
	Diff    string `json:"diff,omitempty"` // unified, at most maxDiff bytes

	file    pair[File]
	packet  pair[Package]
	service pair[Service]
	user    pair[User]
	group   pair[Group]
	silent  bool // another change explains it

	keepsConfig bool // a removed package whose configuration stays
	skeleton    bool // a copy of a file of /etc/skel, which useradd(8) makes with the home directory
}

// pair has both states of one thing. Before is nil if it is new, after if it exists no more.
type pair[T any] struct{ before, after *T }

// Difference is everything that changed between two inventories, packages first, in the order in which an export
// applies it. Its texts come from the sandbox: pass them through [Difference.Redact] before they are shown.
type Difference struct {
	OS      string    `json:"os"`
	Release string    `json:"release"`
	Changes []Change  `json:"changes"`
	Notes   []string  `json:"notes"`   // parts of the changes that an export cannot reproduce, with the reason
	Omitted []Omitted `json:"omitted"` // paths that were not compared

	silent []Change // what the changes explain, for the export
}

// Empty says whether nothing changed. Omitted paths may still differ.
func (d *Difference) Empty() bool { return len(d.Changes)+len(d.silent) == 0 }

// Redact passes every text that the sandbox chose through text, for display. Exports are not changed by it.
func (d *Difference) Redact(text func(string) string) {
	for i := range d.Changes {
		c := &d.Changes[i]
		c.Name, c.Summary, c.Diff = text(c.Name), text(c.Summary), text(c.Diff)
	}
	for i := range d.Notes {
		d.Notes[i] = text(d.Notes[i])
	}
	for i := range d.Omitted {
		d.Omitted[i].Path = Text(text(string(d.Omitted[i].Path)))
	}
}
