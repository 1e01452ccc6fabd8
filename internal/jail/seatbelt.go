package jail

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// A seatbeltProfile is what Seatbelt, the sandbox of macOS, allows a program, as data. text renders it in Seatbelt's
// profile language, a dialect of Scheme in which the last matching rule applies. It says which files may be read,
// written and started. It cannot bound memory, time or tasks, hide the existence of other processes, or give a program
// its own file tree: paths are judged when the program opens them, so a path that was checked earlier may be another
// file by then. Apple documents only sandbox-exec(1), and calls it deprecated; the language is known from Apple's own
// profiles. This package imports no profile of the system, since those differ between releases: the digest covers every
// rule that applies.
type seatbeltProfile struct {
	exec   []string // programs that may be started, by canonical path
	execIn []string // trees whose programs may be started
	read   []string // trees, or files
	mask   []string // trees that stay hidden even if they are in one of read
}

// The resources that every program on macOS needs to start, without any data of a user.
var (
	seatbeltTrees = []string{"/Library/Apple/System/Library", "/Library/Developer/CommandLineTools",
		"/System/Cryptexes/OS", "/System/Library",
		"/System/Volumes/Preboot/Cryptexes/OS", "/private/var/db/dyld", "/usr/lib"}
	seatbeltData    = []string{"/private/etc/localtime", "/private/var/db/timezone", "/usr/share"}
	seatbeltLinks   = []string{"/etc", "/tmp", "/var"} // to /private
	seatbeltDevices = []string{"/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"}
	seatbeltMach    = []string{"com.apple.system.notification_center", "com.apple.system.opendirectoryd.libinfo"}
	seatbeltSysctls = []string{"hw.activecpu", "hw.byteorder", "hw.cachelinesize", "hw.logicalcpu", "hw.logicalcpu_max",
		"hw.machine", "hw.memsize",
		"hw.ncpu", "hw.pagesize", "hw.physicalcpu", "hw.physicalcpu_max", "kern.argmax", "kern.hostname",
		"kern.maxfilesperproc",
		"kern.osrelease", "kern.ostype", "kern.osversion", "kern.secure_kernel", "kern.usrstack64", "kern.version", "vm.loadavg"}
)

// callProfile returns the profile of a call that writes nothing: its program and helpers, the paths it reads, no
// network.
func callProfile(program string, helpers, read, mask []string) seatbeltProfile {
	return seatbeltProfile{exec: append([]string{program}, helpers...), read: read, mask: mask}
}

// hookProfile returns the profile of a hook (docs/hooks.md): its own folder and the programs and libraries of the
// system. A bare program has no folder. It has the run's HOME instead of its own /tmp.
func hookProfile(program, folder string) seatbeltProfile {
	bin := []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}
	p := seatbeltProfile{exec: []string{program}, execIn: bin,
		read: []string{"/private/etc/resolv.conf", "/private/etc/ssl", "/private/var/run/resolv.conf"}}
	if folder != "" {
		p.execIn = append(bin, folder)
	}
	return p
}

// renderProfile returns the profile for sandbox-exec(1) -p. The run's HOME is passed with -D, so that runs of one kind share one
// text.
func (p seatbeltProfile) renderProfile() (string, error) {
	w := &sbpl{}
	w.writeLine("(version 1)")
	w.writeLine("(deny default)")
	w.writeLine("(deny file-map-executable iokit-get-properties nvram* process-info*)") // default does not cover these
	w.writeRule("allow process-exec*", literalConditions(p.exec), subpathConditions(p.execIn))
	w.writeLine("(allow process-fork)")
	w.writeLine("(allow process-info* signal (target self))")
	w.writeRule("allow sysctl-read", newConditions("sysctl-name", seatbeltSysctls))
	w.writeRule("allow mach-lookup", newConditions("global-name", seatbeltMach))
	w.writeLine(`(allow file-read* (literal "/"))`) // the names in /; no program starts without them
	w.writeRule("allow file-read-metadata", literalConditions(seatbeltLinks),
		literalConditions(pathsAbove(p.exec, p.execIn, p.read, seatbeltTrees, seatbeltData)))
	w.writeRule("allow file-read*", subpathConditions(seatbeltTrees), subpathConditions(seatbeltData),
		literalConditions(seatbeltDevices))
	w.writeRule("allow file-read*", literalConditions(p.exec), subpathConditions(p.execIn), subpathConditions(p.read))
	w.writeRule("allow file-map-executable", subpathConditions(seatbeltTrees), literalConditions(p.exec),
		subpathConditions(p.execIn))
	w.writeLine(`(allow file-write-data (literal "/dev/null"))`)
	w.writeLine(`(allow file-read* file-write* (subpath (param "HOME")))`)
	w.writeRule("deny file-read* file-write*", subpathConditions(p.mask))
	w.writeLine("(deny network*)")
	return w.String(), w.err
}

// condition is one condition of a rule.
type condition struct{ kind, text string }

func newConditions(kind string, texts []string) []condition {
	var list []condition
	for _, t := range slices.Compact(slices.Sorted(slices.Values(texts))) {
		list = append(list, condition{kind, t})
	}
	return list
}

func literalConditions(paths []string) []condition { return newConditions("literal", paths) }
func subpathConditions(paths []string) []condition { return newConditions("subpath", paths) }

// pathsAbove returns the directories above the paths, which a program traverses on its way.
func pathsAbove(lists ...[]string) []string {
	var above []string
	for _, list := range lists {
		for _, p := range list {
			for d := path.Dir(p); d != "/" && d != "."; d = path.Dir(d) {
				above = append(above, d)
			}
		}
	}
	return above
}

// sbpl writes the text of a profile and keeps its first error.
type sbpl struct {
	strings.Builder
	err error
}

func (w *sbpl) writeLine(s string) { w.WriteString(s + "\n") }

// writeRule writes a rule, but none without a condition: such a rule would match everything.
func (w *sbpl) writeRule(head string, lists ...[]condition) {
	all := slices.Concat(lists...)
	if len(all) == 0 {
		return
	}
	w.WriteString("(" + head)
	for _, f := range all {
		quoted, err := f.quoteText()
		if err != nil && w.err == nil {
			w.err = err
		}
		w.WriteString("\n  (" + f.kind + " " + quoted + ")")
	}
	w.writeLine(")")
}

// quoteText returns a string of the profile language that means exactly the text. The language needs a backslash before a
// quote and before a backslash. quote refuses text that could end a line or a string in another way, and paths that are
// not canonical.
func (f condition) quoteText() (string, error) {
	t := f.text
	isPath := f.kind == "literal" || f.kind == "subpath"
	switch {
	case t == "" || !utf8.ValidString(t) || strings.ContainsFunc(t, unicode.IsControl):
		return "", bailey.Denied.Errorf("give it a name without control characters, in UTF-8",
			"%q is not allowed in a sandbox profile", t)
	case isPath && (t[0] != '/' || t == "/" || path.Clean(t) != t):
		return "", bailey.Invalid.Errorf("name a file or directory by its absolute path",
			"%q is not a canonical absolute path below the root", t)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(t) + `"`, nil
}
