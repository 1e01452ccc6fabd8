package sandboxdiff

import (
	"path"
	"slices"
	"strings"
)

// unitDirs are the directories of systemd's units, by precedence (systemd.unit(5)).
var unitDirs = []string{unitDir, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

const (
	helperDir  = "/var/lib/systemd/deb-systemd-helper-enabled"
	openrcDir  = "/etc/init.d"
	unitSuffix = ".service .socket .timer .path .mount .automount .swap .target"
)

// readServices reads which units of systemd, or which services of OpenRC, start by themselves.
func (c *collector) readServices() {
	c.services, c.units = map[string]*Service{}, map[string]bool{}
	for _, dir := range unitDirs {
		if dir == "/lib/systemd/system" && resolvePath(c.rootLinks(), dir) != dir {
			continue
		}
		names, err := c.listNames(dir)
		if err != nil {
			continue
		}
		c.hasSystemd = c.hasSystemd || dir != unitDir
		for _, base := range names {
			c.readUnit(dir, base)
		}
	}
	defaults := c.enabledByPackages()
	for _, s := range c.services {
		switch {
		case s.Package == "" || s.State == Static:
		case defaults[s.Name]:
			s.Default = Enabled
		default:
			s.Default = Disabled
		}
	}
	if c.hasSystemd {
		c.omitRunlevels()
	} else {
		c.readOpenrc()
	}
}

func isUnit(name string) bool {
	return serviceName().MatchString(name) && slices.Contains(strings.Fields(unitSuffix), path.Ext(name))
}

// serviceNamed returns the service, which it adds if it is new, or nil if there are too many.
func (c *collector) serviceNamed(name string) *Service {
	s := c.services[name]
	if s == nil && len(c.services) < maxOthers {
		s = &Service{Name: name, State: Static}
		c.services[name] = s
	}
	return s
}

// readUnit reads one entry of a directory of units: a unit, a link that enables or masks one, or a directory of links.
func (c *collector) readUnit(dir, base string) {
	at := path.Join(dir, base)
	if ext := path.Ext(base); dir == unitDir && (ext == ".wants" || ext == ".requires") {
		c.readWants(at, strings.TrimSuffix(base, ext))
		return
	}
	if !isUnit(base) {
		return
	}
	target, err := c.root.Readlink(inRoot(at))
	switch {
	case err != nil:
		c.addUnit(at, base)
	case dir != unitDir:
		// An alias that its package ships changes with the package.
	case target == "/dev/null":
		if s := c.serviceNamed(base); s != nil {
			s.State = Masked
			c.units[at] = true
		}
	case path.Base(target) != base && isUnit(path.Base(target)) && isUnitPath(dir, target):
		c.addWanted(path.Base(target), "alias:"+base, at)
	}
}

// isUnitPath says whether the target of a link in dir is a file in a directory of units.
func isUnitPath(dir, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join(dir, target)
	}
	return slices.Contains(unitDirs, path.Dir(target))
}

// addUnit adds a unit that is a file.
func (c *collector) addUnit(at, base string) {
	_, known := c.services[base]
	s := c.serviceNamed(base)
	if s == nil {
		return
	}
	if !known || s.Package == "" {
		s.Package = c.shipped[at].pack
	}
	if s.State == Static && strings.Contains("\n"+c.readText(at, 1<<20), "\n[Install]") {
		s.State = Disabled
	}
}

// readWants reads a directory of links to the units that another unit starts.
func (c *collector) readWants(dir, by string) {
	names, err := c.listNames(dir)
	if err != nil {
		return
	}
	for _, base := range names {
		at := path.Join(dir, base)
		target, err := c.root.Readlink(inRoot(at))
		if err != nil || !isUnit(base) || !isUnitFor(path.Base(target), base) || !isUnitPath(dir, target) {
			continue // it is listed as a file
		}
		c.addWanted(base, by, at)
	}
	c.hideEmpty(dir, names)
}

// hideEmpty lists a directory of links as a file only if it has another file.
func (c *collector) hideEmpty(dir string, names []string) {
	for _, base := range names {
		if !c.units[path.Join(dir, base)] {
			return
		}
	}
	c.units[dir] = true
}

// isUnitFor says whether a unit file is that of a unit, for example getty@.service of getty@tty1.service.
func isUnitFor(file, unit string) bool {
	if file == unit {
		return true
	}
	template, _, ok := strings.Cut(unit, "@")
	return ok && file == template+"@"+path.Ext(unit)
}

func (c *collector) addWanted(name, by, at string) {
	s := c.serviceNamed(name)
	if s == nil || !serviceName().MatchString(by) || len(s.Wanted) >= maxWords {
		return
	}
	c.units[at] = true
	if s.Wanted = append(s.Wanted, by); s.State != Masked {
		s.State = Enabled
	}
}

// enabledByPackages returns the units that the installation of their package enabled: deb-systemd-helper(1p) keeps a
// file for each link that it made.
func (c *collector) enabledByPackages() map[string]bool {
	units := map[string]bool{}
	dirs, _ := c.listNames(helperDir)
	for _, dir := range dirs {
		if ext := path.Ext(dir); ext == ".wants" || ext == ".requires" {
			names, _ := c.listNames(path.Join(helperDir, dir))
			for _, name := range names {
				units[name] = true
			}
		}
	}
	return units
}

// omitRunlevels omits the links of System V's runlevels: systemd's tools keep them like its own.
func (c *collector) omitRunlevels() {
	for _, level := range []string{"0", "1", "2", "3", "4", "5", "6", "S"} {
		dir := "/etc/rc" + level + ".d"
		names, err := c.listNames(dir)
		if err != nil {
			continue
		}
		for _, base := range names {
			target, err := c.root.Readlink(inRoot(path.Join(dir, base)))
			if err == nil && strings.HasPrefix(target, "../init.d/") {
				c.units[path.Join(dir, base)] = true
			}
		}
	}
}

// readOpenrc reads the runlevels of OpenRC.
func (c *collector) readOpenrc() {
	levels, err := c.listNames(runlevels)
	if err != nil {
		return
	}
	scripts, _ := c.listNames(openrcDir)
	for _, base := range scripts {
		if !serviceName().MatchString(base) {
			continue
		}
		if s := c.serviceNamed(base); s != nil {
			s.State, s.Package = Disabled, c.shipped[path.Join(openrcDir, base)].pack
			if s.Package != "" {
				s.Default = Disabled
			}
		}
	}
	for _, level := range levels {
		names, _ := c.listNames(path.Join(runlevels, level))
		for _, base := range names {
			at := path.Join(runlevels, level, base)
			target, err := c.root.Readlink(inRoot(at))
			if err == nil && path.Dir(target) == openrcDir && path.Base(target) == base &&
				serviceName().MatchString(base) {
				c.addWanted(base, level, at)
			}
		}
	}
}
