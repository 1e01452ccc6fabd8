package sandboxdiff

import (
	"encoding/base64"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// readPackages reads the records of dpkg or of apk.
func (c *collector) readPackages() {
	c.readDpkg()
	c.readApk()
}

// rootLinks returns the links of the root directory to directories of /usr. Packages may ship /bin/ls, which is
// /usr/bin/ls on a merged system.
func (c *collector) rootLinks() map[string]string {
	links := map[string]string{}
	for _, base := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if target, err := c.root.Readlink(base); err == nil {
			links[base] = strings.TrimPrefix(target, "/")
		}
	}
	return links
}

// resolvePath returns the path of a package's file on this system.
func resolvePath(links map[string]string, name string) string {
	name = path.Clean("/" + strings.TrimPrefix(name, "/"))
	first, rest, ok := strings.Cut(name[1:], "/")
	if to, isLink := links[first]; ok && isLink {
		return path.Join("/", to, rest)
	}
	return name
}

const dpkgInfo = "/var/lib/dpkg/info/"

// stanza is one package of dpkg's status file.
type stanza struct {
	name, version, arch, multi, status string
	conffiles                          []string // "PATH MD5"
}

// readStanzas reads deb822(5) as dpkg writes its status file.
func readStanzas(text string, each func(stanza)) {
	var s stanza
	field := ""
	for line := range strings.Lines(text + "\n\n") {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			if s.name != "" {
				each(s)
			}
			s, field = stanza{}, ""
			continue
		case line[0] == ' ' || line[0] == '\t':
			if field == "Conffiles" {
				s.conffiles = append(s.conffiles, strings.TrimSpace(line))
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch field = name; name {
		case "Package":
			s.name = value
		case "Version":
			s.version = value
		case "Architecture":
			s.arch = value
		case "Multi-Arch":
			s.multi = value
		case "Status":
			s.status = value
		}
	}
}

func (c *collector) readDpkg() {
	status := c.readText("/var/lib/dpkg/status", maxDatabase)
	if status == "" {
		return
	}
	native, links := "", c.rootLinks()
	readStanzas(status, func(s stanza) {
		if s.name == "dpkg" {
			native = s.arch
		}
	})
	auto := c.automatic(native)
	accounts := c.systemAccounts()
	readStanzas(status, func(s stanza) {
		if !strings.HasSuffix(s.status, " installed") {
			return
		}
		name, file := s.name, s.name
		if s.arch != native && s.arch != "all" {
			name += ":" + s.arch
		}
		if s.multi == "same" {
			file += ":" + s.arch
		}
		p := Package{Name: name, Version: s.version, Auto: auto[name]}
		if p.findFault() != nil || len(c.v.Packages) >= maxOthers {
			c.omitPath("/var/lib/dpkg/status", "a package is not valid")
			return
		}
		var sysusers []string
		c.addShipped(name, file, s.conffiles, links, &sysusers)
		p.Accounts = c.accountsIn(accounts, file, sysusers)
		c.v.Packages = append(c.v.Packages, p)
	})
}

// addShipped adds the files of one package of dpkg, with the digests of its md5sums and conffiles.
func (c *collector) addShipped(name, file string, conffiles []string, links map[string]string, sysusers *[]string) {
	for line := range strings.Lines(c.readText(dpkgInfo+file+".list", maxDatabase)) {
		at := resolvePath(links, strings.TrimSuffix(line, "\n"))
		if _, ok := c.shipped[at]; !ok {
			c.shipped[at] = shippedFile{pack: name}
		}
		if strings.HasPrefix(at, "/usr/lib/sysusers.d/") {
			*sysusers = append(*sysusers, at)
		}
	}
	add := func(sum, at string) {
		if b, err := hex.DecodeString(sum); err == nil && len(b) == 16 {
			c.shipped[resolvePath(links, at)] = shippedFile{name, sum}
		}
	}
	for line := range strings.Lines(c.readText(dpkgInfo+file+".md5sums", maxDatabase)) {
		sum, at, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		add(sum, at)
	}
	for _, line := range conffiles {
		line = strings.TrimSuffix(line, " obsolete")
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			add(line[i+1:], line[:i])
		}
	}
}

// automatic returns the packages that apt installed as dependencies.
func (c *collector) automatic(native string) map[string]bool {
	auto := map[string]bool{}
	name, arch := "", ""
	for line := range strings.Lines(c.readText("/var/lib/apt/extended_states", maxDatabase)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Package":
			name = value
		case "Architecture":
			arch = value
		case "Auto-Installed":
			if arch != native && arch != "all" {
				name += ":" + arch
			}
			auto[name] = value == "1"
		}
	}
	return auto
}

// systemAccounts returns the users and groups that packages create.
func (c *collector) systemAccounts() map[string]bool {
	const firstPerson = 1000
	names := map[string]bool{}
	for _, u := range c.v.Users {
		if u.UID > 0 && u.UID < firstPerson {
			names[u.Name] = true
		}
	}
	for _, g := range c.v.Groups {
		if g.GID > 0 && g.GID < firstPerson {
			names[g.Name] = true
		}
	}
	return names
}

// accountsIn returns the accounts that the installation scripts of a package name.
func (c *collector) accountsIn(accounts map[string]bool, file string, sysusers []string) []string {
	var found []string
	texts := []string{dpkgInfo + file + ".preinst", dpkgInfo + file + ".postinst"}
	for _, name := range append(texts, sysusers...) {
		for _, w := range strings.FieldsFunc(c.readText(name, 1<<20), func(r rune) bool { return !isNameRune(r) }) {
			if accounts[w] {
				found = append(found, w)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.$", r)
}

// readApk reads the database of apk: lines "P:NAME", "V:VERSION", "F:DIRECTORY", "R:FILE", "Z:Q1" and SHA-1 in base64.
func (c *collector) readApk() {
	text := c.readText("/lib/apk/db/installed", maxDatabase)
	if text == "" {
		text = c.readText("/usr/lib/apk/db/installed", maxDatabase)
	}
	wanted := map[string]bool{}
	for w := range strings.FieldsSeq(c.readText("/etc/apk/world", 1<<20)) {
		if i := strings.IndexAny(w, "=<>~@"); i > 0 {
			w = w[:i]
		}
		wanted[w] = true
	}
	links := c.rootLinks()
	var p Package
	dir, at := "", ""
	for line := range strings.Lines(text + "\n\n") {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch key {
		case "":
			if p.Name == "" {
				break
			}
			if p.findFault() == nil && len(c.v.Packages) < maxOthers {
				c.v.Packages = append(c.v.Packages, p)
			} else {
				c.omitPath("/lib/apk/db/installed", "a package is not valid")
			}
			p = Package{}
		case "P":
			p.Name, p.Auto = value, !wanted[value]
		case "V":
			p.Version = value
		case "F":
			dir = value
			c.shipped[resolvePath(links, dir)] = shippedFile{pack: p.Name}
		case "R":
			at = resolvePath(links, dir+"/"+value)
			c.shipped[at] = shippedFile{pack: p.Name}
		case "Z":
			if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(value, "Q1")); err == nil &&
				len(sum) == 20 {
				c.shipped[at] = shippedFile{p.Name, hex.EncodeToString(sum)}
			}
		}
	}
}
