package sandboxdiff

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// shellHead are the functions of a script. A file is written beside its path and renamed, so that no other process sees
// half of it. No function follows a link at the path itself.
const shellHead = `set -eu
umask 077
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
DEBIAN_FRONTEND=noninteractive
export LC_ALL PATH DEBIAN_FRONTEND

fail() { printf '%s\n' "$1" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
# parent PATH creates the directory above a path.
parent() { [ -z "${1%/*}" ] || [ -d "${1%/*}" ] || (umask 022 && mkdir -p "${1%/*}"); }
# put PATH MODE OWNER GROUP [base64] writes standard input to a file.
put() {
  parent "$1"
  if [ -d "$1" ] && [ ! -L "$1" ]; then fail "$1 is a directory, not a file. Move it away."; fi
  made=$(mktemp "${1%/*}/.bailey.XXXXXX")
  if [ "${5-}" = base64 ]; then base64 -d >"$made"; else cat >"$made"; fi
  chown "$3:$4" "$made"
  chmod "$2" "$made"
  if [ -L "$1" ]; then rm -f "$1"; fi
  mv -f "$made" "$1"
}
# directory PATH MODE OWNER GROUP
directory() {
  parent "$1"
  if [ -L "$1" ] || [ ! -d "$1" ]; then mkdir "$1"; fi
  access "$@"
}
# access PATH MODE OWNER GROUP; chown(2) clears setuid, so that chmod follows.
access() {
  chown -h "$3:$4" "$1"
  if [ ! -L "$1" ]; then chmod "$2" "$1"; fi
}
# link PATH TARGET OWNER GROUP
link() {
  parent "$1"
  if [ -d "$1" ] && [ ! -L "$1" ]; then fail "$1 is a directory, not a link. Move it away."; fi
  rm -f "$1"
  ln -s -- "$2" "$1"
  chown -h "$3:$4" "$1"
}
`

// shellTools are the functions of a script for packages, accounts and services.
const shellTools = `# step NUMBER TOTAL NAME reports a step to the file that BAILEY_STEPS names, if it does.
step() { if [ -n "${BAILEY_STEPS-}" ]; then printf '%s %s %s\n' "$@" >>"$BAILEY_STEPS"; fi; }
# remove_packages remove|purge NAME…
remove_packages() {
  how=$1
  shift
  for name; do
    shift
    state=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
    if [ "$state" = installed ] || [ "$how-$state" = purge-config-files ]; then set -- "$@" "$name"; fi
  done
  if [ $# -gt 0 ]; then apt-get -q -y "$how" "$@" </dev/null; fi
}
# group_is NAME NUMBER
group_is() {
  if ! getent group "$1" >/dev/null; then
    if has groupadd; then groupadd -g "$2" "$1"; else addgroup -g "$2" "$1"; fi
  elif [ "$(getent group "$1" | cut -d: -f3)" != "$2" ]; then
    groupmod -g "$2" "$1"
  fi
}
# user_is NAME NUMBER GROUP GROUPS HOME SHELL COMMENT -m|-M
user_is() {
  if getent passwd "$1" >/dev/null; then
    usermod -u "$2" -g "$3" -G "$4" -d "$5" -s "$6" -c "$7" "$1"
  elif has useradd; then
    useradd -u "$2" -g "$3" -G "$4" -d "$5" -s "$6" -c "$7" "$8" "$1"
  else
    if [ "$8" = -m ]; then adduser -D -u "$2" -G "$3" -h "$5" -s "$6" -g "$7" "$1"
    else adduser -D -H -u "$2" -G "$3" -h "$5" -s "$6" -g "$7" "$1"; fi
    for name in $(printf %s "$4" | tr , ' '); do addgroup "$1" "$name"; done
  fi
}
user_gone() { if getent passwd "$1" >/dev/null; then if has userdel; then userdel "$1"; else deluser "$1"; fi; fi; }
group_gone() { if getent group "$1" >/dev/null; then if has groupdel; then groupdel "$1"; else delgroup "$1"; fi; fi; }
`

// Shell returns a POSIX shell script, for root, that makes the changes. It can be run twice. If a command fails, it
// ends
// there.
func (d *Difference) Shell() []byte {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# Changes of a sandbox, exported by Bailey. Run this as root.\n")
	for _, n := range d.Notes {
		b.WriteString("# Not in this script: " + strings.ReplaceAll(escapeControls(n), "\n", " ") + "\n")
	}
	b.WriteString(shellHead + shellTools)
	b.WriteString("\n[ \"$(id -u)\" = 0 ] || fail 'This script changes the system. Run it as root.'\n")
	steps := d.exportSteps()
	for _, s := range steps {
		b.WriteString(fmt.Sprintf("step %d %d ", s.position,
			len(steps)) + shellWord(s.stepName()) + "\n" + d.shellStep(s))
	}
	return []byte(b.String())
}

// stepName returns the name of a step for a report, in one line.
func (s step) stepName() string {
	switch {
	case s.file != nil:
		return cutText(s.file.Type+" "+showPath(s.filePath()), 250)
	case s.access != nil:
		return cutText("permissions of "+showPath(s.filePath()), 250)
	case s.gone != nil:
		return cutText("delete "+showPath(s.filePath()), 250)
	case s.install != nil:
		return "install packages"
	case s.remove != nil:
		return "remove packages"
	case s.refresh:
		return "lists of packages"
	case s.group.after != nil:
		return "group " + s.group.after.Name
	case s.group.before != nil:
		return "no group " + s.group.before.Name
	case s.user.after != nil:
		return "user " + s.user.after.Name
	case s.user.before != nil:
		return "no user " + s.user.before.Name
	case s.service.after != nil:
		return "service " + s.service.after.Name
	case s.service.before != nil:
		return "service " + s.service.before.Name
	case s.sysctl != "":
		return cutText("read "+showPath(s.sysctl), 250)
	case s.start != "":
		return "start " + s.start
	}
	return "read units anew"
}

// shellWord quotes a word for a POSIX shell.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func shellWords(words ...string) string {
	for i, w := range words {
		words[i] = shellWord(w)
	}
	return strings.Join(words, " ")
}

func octalMode(mode uint32) string { return fmt.Sprintf("%04o", mode) }

func (d *Difference) shellStep(s step) string {
	switch {
	case s.filePath() != "":
		return shellFile(s)
	case s.refresh && d.OS == alpine:
		return "apk update\n"
	case s.refresh:
		return "apt-get -q update </dev/null\n"
	case s.install != nil && d.OS == alpine:
		return "apk add " + shellWords(withVersions(s.install)...) + "\n"
	case s.install != nil:
		return "apt-get -q -y -o Dpkg::Options::=--force-confold --allow-downgrades --no-install-recommends install " +
			shellWords(withVersions(s.install)...) + " </dev/null\n"
	case s.remove != nil && d.OS == alpine:
		return "apk del " + shellWords(namesOf(s.remove)...) + "\n"
	case s.remove != nil && s.purge:
		return "remove_packages purge " + shellWords(namesOf(s.remove)...) + "\n"
	case s.remove != nil:
		return "remove_packages remove " + shellWords(namesOf(s.remove)...) + "\n"
	case s.group.after != nil:
		return "group_is " + shellWords(s.group.after.Name, formatID(s.group.after.GID)) + "\n"
	case s.group.before != nil:
		return "group_gone " + shellWord(s.group.before.Name) + "\n"
	case s.user.after != nil:
		return shellUser(s)
	case s.user.before != nil:
		return "user_gone " + shellWord(s.user.before.Name) + "\n"
	}
	return d.shellService(s)
}

func shellUser(s step) string {
	u, home := s.user.after, "-M"
	if s.home {
		home = "-m"
	}
	out := "user_is " + shellWords(u.Name, formatID(u.UID), u.Group, strings.Join(u.Groups, ","), u.Home,
		u.Shell, u.Comment, home) + "\n"
	was := s.user.before
	switch {
	case u.Password == PasswordNone && (was == nil || was.Password != PasswordNone):
		out += "passwd -d " + shellWord(u.Name) + "\n"
	case u.Password == PasswordLocked && was != nil && was.Password != PasswordLocked:
		out += "passwd -l " + shellWord(u.Name) + "\n"
	}
	switch {
	case u.Expires != "" && (was == nil || was.Expires != u.Expires):
		out += "chage -E " + shellWords(u.Expires, u.Name) + "\n"
	case u.Expires == "" && was != nil && was.Expires != "":
		out += "chage -E -1 " + shellWord(u.Name) + "\n"
	}
	return out
}

func (d *Difference) shellService(s step) string {
	running := "if [ -d /run/systemd/system ]; then "
	switch {
	case s.reload:
		return running + "systemctl daemon-reload; fi\n"
	case s.sysctl != "": // a value that this kernel refuses stays in its file
		return "sysctl -e -q -p " + shellWord(s.sysctl) + " || printf 'not all of %s is in effect\\n' " + shellWord(s.sysctl) + " >&2\n"
	case s.start != "" && d.OS == alpine:
		return "if [ -d /run/openrc ]; then rc-service " + shellWord(s.start) + " start; fi\n"
	case s.start != "":
		return running + "systemctl start " + shellWord(s.start) + "; fi\n"
	}
	was, now := s.service.before, s.service.after
	if d.OS == alpine {
		return openrcService(was, now)
	}
	switch {
	case now == nil:
		return "if systemctl cat " + shellWord(was.Name) + " >/dev/null 2>&1; then systemctl disable " + shellWord(was.Name) + "; fi\n"
	case now.State == Masked:
		return "systemctl mask " + shellWord(now.Name) + "\n"
	case now.State == Enabled:
		return "systemctl unmask " + shellWord(now.Name) + "\nsystemctl enable " + shellWord(now.Name) + "\n"
	case was != nil && was.State == Masked:
		return "systemctl unmask " + shellWord(now.Name) + "\n"
	}
	return "systemctl disable " + shellWord(now.Name) + "\n"
}

func openrcService(was, now *Service) string {
	var b strings.Builder
	if was != nil {
		for _, level := range was.Wanted {
			b.WriteString("rm -f " + shellWord(runlevels+"/"+level+"/"+was.Name) + "\n")
		}
	}
	if now != nil {
		for _, level := range now.Wanted {
			b.WriteString("rc-update add " + shellWords(now.Name, level) + "\n")
		}
	}
	return b.String()
}

func shellFile(s step) string {
	switch {
	case s.gone != nil && s.gone.Type == Directory:
		return "rm -rf " + shellWord(s.filePath()) + "\n"
	case s.gone != nil:
		return "rm -f " + shellWord(s.filePath()) + "\n"
	case s.access != nil:
		return "access " + shellAccess(s.access) + "\n"
	case s.file.Type == Directory:
		return "directory " + shellAccess(s.file) + "\n"
	case s.file.Type == Link:
		return "link " + shellWords(s.filePath(), string(s.file.Target), s.file.Owner, s.file.Group) + "\n"
	}
	content := string(*s.file.Content)
	if content == "" {
		return "put " + shellAccess(s.file) + " </dev/null\n"
	}
	if !isPrintable(content) || !strings.HasSuffix(content, "\n") {
		return "put " + shellAccess(s.file) + " base64 <<'BAILEY'\n" + foldBase64(content) + "BAILEY\n"
	}
	end := hereEnd(content)
	return "put " + shellAccess(s.file) + " <<'" + end + "'\n" + content + end + "\n"
}

func shellAccess(f *File) string {
	return shellWords(string(f.Path), octalMode(f.Mode), f.Owner, f.Group)
}

// hereEnd returns a delimiter that is no line of a text.
func hereEnd(content string) string {
	end := "BAILEY"
	for n := 2; strings.Contains("\n"+content, "\n"+end+"\n"); n++ {
		end = "BAILEY_" + strconv.Itoa(n)
	}
	return end
}

// foldBase64 returns base64 in lines of 76 characters (RFC 2045).
func foldBase64(content string) string {
	var b strings.Builder
	text := base64.StdEncoding.EncodeToString([]byte(content))
	for len(text) > 76 {
		b.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	return b.String() + text + "\n"
}
