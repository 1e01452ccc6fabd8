package sandboxdiff

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bailey"
)

// The largest file that is read, and how much is read in all.
const maxFile, maxRead = 4 << 30, 32 << 30

// Collect lists the root file system under the directory root. It reads nothing outside of root, and no other file
// system that is mounted below it. A file that cannot be read, or that changes while it is read, is in Omitted. If a
// limit of an inventory is exceeded, it returns an error of kind Invalid.
func Collect(root string) (*Inventory, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, bailey.NotFound.Wrap(err, "cannot open "+root, "Name the directory of a root file system.")
	}
	defer dir.Close()
	info, err := dir.Stat(".")
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot read "+root, "Name the directory of a root file system.")
	}
	c := &collector{root: dir, device: statOf(info).Dev, shipped: map[string]shippedFile{}, buffer: make([]byte,
		256<<10),
		v: &Inventory{Version: Version, Files: []File{}, Packages: []Package{}, Services: []Service{}, Users: []User{},
			Groups: []Group{}, Omitted: []Omitted{}}}
	c.readRelease()
	c.readAccounts()
	c.readPackages()
	c.readServices()
	if err := c.walkDirectory("/"); err != nil {
		return nil, err
	}
	return c.finishList(), nil
}

// collector collects one inventory.
type collector struct {
	root          *os.Root
	device        uint64
	users, groups map[uint32]string
	shipped       map[string]shippedFile // by path
	services      map[string]*Service
	units         map[string]bool // paths that are listed as services, not as files
	hasSystemd    bool
	v             *Inventory
	buffer        []byte
	contents      int
	read          int64
	dropped       int // entries of Omitted beyond its limit
}

// shippedFile is a file of a package, with the digest that the package has for it, if any.
type shippedFile struct {
	pack string
	sum  string // MD5 or SHA-1 in hexadecimal
}

func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

func (c *collector) omitPath(name, reason string) {
	if len(name) > maxPath {
		name = name[:maxPath]
	}
	reason = cutText(reason, maxField/8) // escaped, it is longer
	if len(c.v.Omitted) >= maxOmitted {
		c.dropped++
		return
	}
	c.v.Omitted = append(c.v.Omitted, Omitted{Text(name), escapeControls(strings.ToValidUTF8(reason, "?"))})
}

func (c *collector) finishList() *Inventory {
	v := c.v
	if c.dropped > 0 {
		v.Omitted = append(v.Omitted, Omitted{"/", fmt.Sprintf("%d more paths could not be read", c.dropped)})
	}
	for _, s := range c.services {
		slices.Sort(s.Wanted)
		s.Wanted = slices.Compact(s.Wanted)
		v.Services = append(v.Services, *s)
	}
	slices.SortFunc(v.Files, func(a, b File) int { return strings.Compare(string(a.Path), string(b.Path)) })
	v.Packages = sortByName(v.Packages, func(p Package) string { return p.Name })
	v.Services = sortByName(v.Services, func(s Service) string { return s.Name })
	v.Users = sortByName(v.Users, func(u User) string { return u.Name })
	v.Groups = sortByName(v.Groups, func(g Group) string { return g.Name })
	return v
}

// sortByName sorts a list, and keeps the first of entries with one name, as the C library does.
func sortByName[T any](list []T, name func(T) string) []T {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(name(a), name(b)) })
	return slices.CompactFunc(list, func(a, b T) bool { return name(a) == name(b) })
}

// inRoot returns a path as os.Root takes it.
func inRoot(name string) string {
	if name == "/" {
		return "."
	}
	return strings.TrimPrefix(name, "/")
}

// readText returns the content of a regular file of the system, or "" if it does not exist or is larger than most.
func (c *collector) readText(name string, most int64) string {
	f, err := c.openRegular(name, nil)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.omitPath(name, err.Error())
		}
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		c.omitPath(name, err.Error())
		return ""
	case int64(len(data)) > most:
		c.omitPath(name, fmt.Sprintf("it has more than %d bytes", most))
		return ""
	}
	return string(data)
}

// openRegular opens a regular file without waiting, which a named pipe would do. If same is not nil, it must be that
// file: another process may have replaced it.
func (c *collector) openRegular(name string, same fs.FileInfo) (*os.File, error) {
	f, err := c.root.OpenFile(inRoot(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || same != nil && !os.SameFile(info, same)) {
		err = errors.New("it is not the regular file that it was")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// listNames returns the sorted names of a directory's entries.
func (c *collector) listNames(name string) ([]string, error) {
	f, err := c.root.Open(inRoot(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	for {
		some, err := f.Readdirnames(1024)
		if all = append(all, some...); len(all) > maxFiles {
			return nil, tooMany(name)
		}
		if err != nil {
			slices.Sort(all)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return all, err
		}
	}
}

func tooMany(dir string) error {
	return bailey.Invalid.New(fmt.Sprintf("the system has more than %d files; the limit was reached in %q",
		maxFiles, dir),
		"Remove the files that need not be compared, or move them to /tmp.")
}

// walkDirectory adds the files of a directory.
func (c *collector) walkDirectory(dir string) error {
	names, err := c.listNames(dir)
	if errors.Is(err, bailey.Invalid) {
		return err
	}
	if err != nil {
		c.omitPath(dir, err.Error())
	}
	for _, base := range names {
		name := path.Join(dir, base)
		if isExcluded(name) || c.units[name] {
			continue
		}
		if len(name) > maxPath || strings.Count(name, "/") > maxDepth {
			c.omitPath(name, "its path is too long")
			continue
		}
		info, err := c.root.Lstat(inRoot(name))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				c.omitPath(name, err.Error())
			}
			continue
		}
		if len(c.v.Files) >= maxFiles {
			return tooMany(dir)
		}
		if err := c.addFile(name, info); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) addFile(name string, info fs.FileInfo) error {
	st := statOf(info)
	f := File{Path: Text(name), Mode: st.Mode & 0o7777, Owner: nameOf(c.users, st.Uid), Group: nameOf(c.groups, st.Gid)}
	ships, isShipped := c.shipped[name]
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		f.Type, f.Package = Directory, ships.pack
		if st.Dev != c.device {
			c.omitPath(name, "another file system is mounted there")
			return nil
		}
		c.v.Files = append(c.v.Files, f)
		return c.walkDirectory(name)
	case syscall.S_IFLNK:
		target, err := c.root.Readlink(inRoot(name))
		if err != nil || target == "" || len(target) > maxPath {
			c.omitPath(name, "its target cannot be read")
			return nil
		}
		f.Type, f.Mode, f.Target, f.Package = Link, 0o777, Text(target), ships.pack
	case syscall.S_IFREG:
		if fault := c.readRegular(&f, info, ships, isShipped); fault != "" {
			c.omitPath(name, fault)
			return nil
		}
	case syscall.S_IFSOCK:
		return nil // it is made by the process that listens on it
	default:
		f.Type = Special
	}
	c.v.Files = append(c.v.Files, f)
	return nil
}

func nameOf(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// readRegular reads the content of a regular file. It returns the reason if it must be omitted.
func (c *collector) readRegular(f *File, info fs.FileInfo, ships shippedFile, isShipped bool) string {
	const attempts = 3
	for range attempts {
		file, err := c.openRegular(string(f.Path), info)
		if err != nil {
			return err.Error()
		}
		before, _ := file.Stat()
		switch size := before.Size(); {
		case size > maxFile:
			err = fmt.Errorf("it has more than %d GiB", maxFile>>30)
		case c.read+size > maxRead:
			err = fmt.Errorf("the files before it have %d GiB", maxRead>>30)
		default:
			err = c.readContent(f, file, size, ships, isShipped)
		}
		after, statErr := file.Stat()
		file.Close()
		if err != nil && !errors.Is(err, errUnstable) {
			return err.Error()
		}
		if err == nil && statErr == nil && statOf(before).Ctim == statOf(after).Ctim && f.Size == after.Size() {
			return ""
		}
	}
	return "it changes while it is read"
}

var errUnstable = errors.New("its size changed")

// readContent fills in what the content of a file decides.
func (c *collector) readContent(f *File, file io.Reader, size int64, ships shippedFile, isShipped bool) error {
	f.Type, f.Size, f.Package = Regular, size, ""
	sum, other := sha256.New(), hash.Hash(md5.New())
	if len(ships.sum) == 2*sha1.Size {
		other = sha1.New()
	}
	writers := []io.Writer{sum}
	if isShipped && ships.sum != "" {
		writers = append(writers, other)
	}
	var content strings.Builder
	if size <= maxContent {
		writers = append(writers, &content)
	}
	n, err := io.CopyBuffer(io.MultiWriter(writers...), io.LimitReader(file, size), c.buffer)
	if c.read += n; err != nil {
		return err
	}
	if n != size {
		return errUnstable
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if isShipped && ships.sum != "" && hex.EncodeToString(other.Sum(nil)) == ships.sum {
		f.Package = ships.pack
	}
	if f.Content = nil; size <= maxContent && (f.Package == "" || strings.HasPrefix(string(f.Path), "/etc/")) &&
		c.contents+len(content.String()) <= maxContents {
		text := Text(content.String())
		f.Content = &text
		c.contents += len(text)
	}
	return nil
}

// readRelease reads os-release(5).
func (c *collector) readRelease() {
	text := c.readText("/etc/os-release", 1<<20)
	if text == "" {
		text = c.readText("/usr/lib/os-release", 1<<20)
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value = strings.Trim(value, `"'`); !isWord(value) {
			continue
		}
		switch key {
		case "ID":
			c.v.OS = value
		case "VERSION_ID":
			c.v.Release = value
		}
	}
}

// maxDatabase limits the files of accounts and packages, in bytes.
const maxDatabase = 64 << 20

// readAccounts reads passwd(5), group(5) and the states of shadow(5).
func (c *collector) readAccounts() {
	members := c.readGroups()
	secrets := map[string]User{}
	c.eachLine("/etc/shadow", 9, func(p []string) bool {
		u := User{Password: passwordState(p[1]), Expires: p[7]}
		if u.Expires != "" && !days().MatchString(u.Expires) {
			return false
		}
		secrets[p[0]] = u
		return true
	})
	c.users = map[uint32]string{}
	c.eachLine("/etc/passwd", 7, func(p []string) bool {
		uid, err := strconv.ParseUint(p[2], 10, 32)
		gid, groupErr := strconv.ParseUint(p[3], 10, 32)
		if err != nil || groupErr != nil {
			return false
		}
		groups := members[p[0]]
		slices.Sort(groups)
		u := User{Name: p[0], UID: uint32(uid), Group: nameOf(c.groups, uint32(gid)), Comment: p[4], Home: p[5],
			Shell:    p[6],
			Password: passwordState(p[1]), Groups: slices.Compact(groups)}
		if s, ok := secrets[u.Name]; ok && p[1] == "x" {
			u.Password, u.Expires = s.Password, s.Expires
		}
		if u.findFault() != nil {
			return false
		}
		c.v.Users = append(c.v.Users, u)
		if _, ok := c.users[u.UID]; !ok {
			c.users[u.UID] = u.Name
		}
		return true
	})
}

// readGroups reads group(5), and returns the supplementary groups by user.
func (c *collector) readGroups() map[string][]string {
	c.groups = map[uint32]string{}
	members := map[string][]string{}
	c.eachLine("/etc/group", 4, func(p []string) bool {
		gid, err := strconv.ParseUint(p[2], 10, 32)
		if err != nil || accountFault(p[0]) != nil {
			return false
		}
		c.v.Groups = append(c.v.Groups, Group{p[0], uint32(gid)})
		if _, ok := c.groups[uint32(gid)]; !ok {
			c.groups[uint32(gid)] = p[0]
		}
		for m := range strings.SplitSeq(p[3], ",") {
			members[m] = append(members[m], p[0])
		}
		return true
	})
	return members
}

// eachLine passes the fields of each line to add, which says whether they are valid.
func (c *collector) eachLine(file string, fields int, add func([]string) bool) {
	n := 0
	for line := range strings.Lines(c.readText(file, maxDatabase)) {
		p := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if n++; len(p) == 1 && p[0] == "" {
			continue
		}
		if n > maxOthers || len(p) != fields || !utf8.ValidString(line) || !add(p) {
			c.omitPath(file, fmt.Sprintf("line %d is not valid", min(n, maxOthers)))
			if n > maxOthers {
				return
			}
		}
	}
}

func passwordState(field string) string {
	switch {
	case field == "":
		return PasswordNone
	case strings.HasPrefix(field, "!"), strings.HasPrefix(field, "*"), field == "x":
		return PasswordLocked
	}
	return PasswordSet
}
