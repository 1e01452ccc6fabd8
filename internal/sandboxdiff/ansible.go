package sandboxdiff

import (
	"fmt"
	"strconv"
	"strings"
)

// Ansible returns a playbook that makes the changes on the hosts that it is run for, as root. It uses built-in modules
// alone. Texts of the sandbox have the tag !unsafe, so that Ansible does not evaluate them as templates.
func (d *Difference) Ansible() []byte {
	p := &playbook{os: d.OS}
	p.b.WriteString("---\n# Changes of a sandbox, exported by Bailey. Run this as root.\n")
	for _, n := range d.Notes {
		p.b.WriteString("# Not in this playbook: " + strings.ReplaceAll(escapeControls(n), "\n", " ") + "\n")
	}
	p.b.WriteString("- name: Changes of a sandbox\n  hosts: all\n  gather_facts: false\n")
	steps := d.exportSteps()
	if len(steps) == 0 {
		p.b.WriteString("  tasks: []\n")
		return []byte(p.b.String())
	}
	p.b.WriteString("  tasks:\n")
	for _, s := range steps {
		p.addStep(s)
	}
	return []byte(p.b.String())
}

type playbook struct {
	b      strings.Builder
	os     string
	refers bool // a task has asked whether systemd runs
}

// field is one argument of a module. Its value is YAML.
type field struct{ name, value string }

// addTask writes one task. after are its keywords, for example "when: …".
func (p *playbook) addTask(name, module string, fields []field, after ...string) {
	p.b.WriteString("    - name: " + quoteYAML(name) + "\n      ansible.builtin." + module + ":\n")
	for _, f := range fields {
		p.b.WriteString("        " + f.name + ": " + f.value + "\n")
	}
	for _, line := range after {
		p.b.WriteString("      " + line + "\n")
	}
}

// taskName returns a name without the marks of a template, which Ansible evaluates in names, too.
func taskName(verb, subject string, position int) string {
	if subject = cutText(showPath(subject), 200); strings.ContainsAny(subject, "{}") {
		return fmt.Sprintf("%s %d", verb, position)
	}
	return verb + " " + subject
}

func (p *playbook) addStep(s step) {
	switch {
	case s.filePath() != "":
		p.addFile(s)
	case s.install != nil || s.remove != nil || s.refresh:
		p.addPackages(s)
	case s.group.after != nil:
		g := s.group.after
		p.addTask("group "+g.Name, "group", []field{{"name", quoteYAML(g.Name)}, {"gid", formatID(g.GID)}})
	case s.group.before != nil:
		p.addTask("no group "+s.group.before.Name, "group", []field{{"name", quoteYAML(s.group.before.Name)},
			{"state", "absent"}})
	case s.user.after != nil:
		p.addUser(s)
	case s.user.before != nil:
		p.addTask("no user "+s.user.before.Name, "user", []field{{"name", quoteYAML(s.user.before.Name)},
			{"state", "absent"}})
	case s.service.before != nil || s.service.after != nil:
		p.addService(s)
	default:
		p.addRunning(s)
	}
}

func (p *playbook) addPackages(s step) {
	list := func(words []string) string {
		for i, w := range words {
			words[i] = quoteYAML(w)
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	if p.os == alpine {
		switch {
		case s.install != nil:
			p.addCommand("install packages", append([]string{"apk", "add"}, withVersions(s.install)...))
		case s.remove != nil:
			p.addCommand("remove packages", append([]string{"apk", "del"}, namesOf(s.remove)...))
		default:
			p.addCommand("lists of packages", []string{"apk", "update"})
		}
		return
	}
	switch {
	case s.install != nil:
		p.addTask("install packages", "apt", []field{{"name", list(withVersions(s.install))}, {"state", "present"},
			{"allow_downgrade", "true"}, {"install_recommends", "false"}, {"dpkg_options", "force-confold"}})
	case s.remove != nil:
		p.addTask("remove packages", "apt", []field{{"name", list(namesOf(s.remove))}, {"state", "absent"},
			{"purge", strconv.FormatBool(s.purge)}})
	default:
		p.addTask("lists of packages", "apt", []field{{"update_cache", "true"}}, "changed_when: false")
	}
}

func (p *playbook) addCommand(name string, argv []string, after ...string) {
	for i, w := range argv {
		argv[i] = textYAML(w)
	}
	p.addTask(name, "command", []field{{"argv", "[" + strings.Join(argv, ", ") + "]"}}, after...)
}

func (p *playbook) addUser(s step) {
	u, was := s.user.after, s.user.before
	groups := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = quoteYAML(g)
	}
	fields := []field{{"name", quoteYAML(u.Name)}, {"uid", formatID(u.UID)}, {"group", quoteYAML(u.Group)},
		{"groups", "[" + strings.Join(groups, ", ") + "]"}, {"home", textYAML(u.Home)}, {"shell", textYAML(u.Shell)},
		{"comment", textYAML(u.Comment)}, {"create_home", strconv.FormatBool(s.home)}}
	switch {
	case u.Password == PasswordNone && (was == nil || was.Password != PasswordNone):
		fields = append(fields, field{"password", `""`})
	case u.Password == PasswordLocked && was != nil && was.Password != PasswordLocked:
		fields = append(fields, field{"password_lock", "true"})
	}
	switch day, err := strconv.ParseInt(u.Expires, 10, 64); {
	case err == nil && (was == nil || was.Expires != u.Expires):
		fields = append(fields, field{"expires", strconv.FormatInt(day*24*60*60, 10)})
	case u.Expires == "" && was != nil && was.Expires != "":
		fields = append(fields, field{"expires", "-1"})
	}
	p.addTask("user "+u.Name, "user", fields)
}

// addFile writes a file, a directory or a link. Ansible expands variables such as $HOME in paths, and modules take
// printable text only: other names and contents are written by the functions of the shell's export.
func (p *playbook) addFile(s step) {
	name := s.filePath()
	switch {
	case !isPlainFile(s):
		p.addTask(taskName("file", name, s.position), "command", []field{{"argv", "[/bin/sh, -s]"},
			{"stdin", textYAML(shellHead + shellFile(s))}})
	case s.gone != nil:
		p.addTask(taskName("delete", name, s.position), "file", []field{{"path", textYAML(name)}, {"state", "absent"}})
	case s.access != nil:
		p.addAccess(s)
	case s.file.Type == Directory:
		p.addTask(taskName("directory", name, s.position), "file",
			append([]field{{"path", textYAML(name)}, {"state", "directory"}}, accessFields(s.file)...))
	case s.file.Type == Link:
		p.addTask(taskName("link", name, s.position), "file", append([]field{{"path", textYAML(name)},
			{"src", textYAML(string(s.file.Target))}, {"state", "link"}, {"force", "true"}, {"follow",
				"false"}}, accessFields(s.file)...))
	default:
		p.addTask(taskName("file", name, s.position), "copy", append([]field{{"dest", textYAML(name)},
			{"content", blockYAML(string(*s.file.Content), 10)}}, accessFields(s.file)...))
	}
}

func isPlainFile(s step) bool {
	if name := s.filePath(); !isPrintable(name) || strings.ContainsAny(name, "$\n\t") {
		return false
	}
	if f := s.file; f != nil && f.Type == Regular {
		return isPrintable(string(*f.Content))
	}
	for _, f := range []*File{s.file, s.access} {
		if f != nil && (!isPrintable(string(f.Target)) || strings.ContainsAny(string(f.Target), "$\n\t~")) {
			return false
		}
	}
	return true
}

func accessFields(f *File) []field {
	fields := []field{{"owner", quoteYAML(f.Owner)}, {"group", quoteYAML(f.Group)}}
	if f.Type != Link {
		fields = append(fields, field{"mode", quoteYAML(octalMode(f.Mode))})
	}
	return fields
}

func (p *playbook) addAccess(s step) {
	f, state := s.access, "file"
	if f.Type != Regular {
		state = f.Type
	}
	fields := []field{{"path", textYAML(s.filePath())}, {"state", state}, {"follow", "false"}}
	if f.Type == Link {
		fields = append(fields, field{"src", textYAML(string(f.Target))})
	}
	p.addTask(taskName("permissions of", s.filePath(), s.position), "file", append(fields, accessFields(f)...))
}

func (p *playbook) addService(s step) {
	was, now := s.service.before, s.service.after
	if p.os == alpine {
		p.addTask("service", "command", []field{{"argv", "[/bin/sh, -s]"}, {"stdin",
			textYAML("set -eu\n" + openrcService(was, now))}})
		return
	}
	name, fields := "", []field(nil)
	switch {
	case now == nil:
		name, fields = was.Name, []field{{"enabled", "false"}}
	case now.State == Masked:
		name, fields = now.Name, []field{{"masked", "true"}}
	case now.State == Enabled:
		name, fields = now.Name, []field{{"masked", "false"}, {"enabled", "true"}}
	case was != nil && was.State == Masked:
		name, fields = now.Name, []field{{"masked", "false"}}
	default:
		name, fields = now.Name, []field{{"enabled", "false"}}
	}
	p.addTask("service "+name, "systemd", append([]field{{"name", quoteYAML(name)}}, fields...))
}

// addRunning adds the steps that only a running system needs.
func (p *playbook) addRunning(s step) {
	if s.sysctl != "" { // a value that this kernel refuses stays in its file
		p.addCommand(taskName("read", s.sysctl, s.position), []string{"sysctl", "-e", "-q", "-p", s.sysctl},
			"ignore_errors: true")
		return
	}
	if !p.refers {
		p.refers = true
		state := "/run/systemd/system"
		if p.os == alpine {
			state = "/run/openrc"
		}
		p.addTask("whether services run", "stat", []field{{"path", state}}, "register: bailey_running")
	}
	const when = "when: bailey_running.stat.exists"
	switch {
	case s.reload:
		p.addTask("read units anew", "systemd", []field{{"daemon_reload", "true"}}, when)
	case p.os == alpine:
		p.addCommand("start "+s.start, []string{"rc-service", s.start, "start"}, when)
	default:
		p.addTask("start "+s.start, "systemd", []field{{"name", quoteYAML(s.start)}, {"state", "started"}}, when)
	}
}

// textYAML returns a text of the sandbox as YAML that Ansible does not evaluate as a template.
func textYAML(s string) string { return "!unsafe " + quoteYAML(s) }

// quoteYAML returns a double-quoted scalar (YAML 1.1, 5.7). Only printable characters stand for themselves.
func quoteYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case isControl(r) && r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case isControl(r) && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		case isControl(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// blockYAML returns a text as a literal block, which a person can read, if YAML keeps it unchanged; otherwise as a
// double-quoted scalar.
func blockYAML(s string, indent int) string {
	first, _, _ := strings.Cut(s, "\n")
	if !isPrintable(s) || first == "" || first[0] == ' ' || first[0] == '\t' || !strings.HasSuffix(s, "\n") ||
		strings.HasSuffix(s, "\n\n") {
		return textYAML(s)
	}
	var b strings.Builder
	b.WriteString("!unsafe |\n")
	for line := range strings.Lines(s) {
		if line != "\n" {
			b.WriteString(strings.Repeat(" ", indent))
		}
		b.WriteString(line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
