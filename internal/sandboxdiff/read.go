package sandboxdiff

import (
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"bailey"
	"bailey/internal/strictjson"
)

// The limits of an inventory. [Collect] keeps them, and [ReadInventory] enforces them.
const (
	maxDocument = 128 << 20 // bytes of its JSON
	maxFiles    = 300_000
	maxOthers   = 20_000 // packages, services, users or groups
	maxOmitted  = 1000
	maxDepth    = 64        // directories above a file
	maxPath     = 4096      // bytes of a path or of a link's target
	maxContent  = 256 << 10 // bytes of one content
	maxContents = 16 << 20  // bytes of all contents
	maxWords    = 1000      // groups of a user, accounts of a package, or what wants a service
	maxField    = 1024      // bytes of a field of passwd(5)
)

// ReadInventory reads the JSON of an inventory that a sandbox sent. The sandbox is hostile: the document is bounded,
// its
// syntax strict, and every name is checked, so that Compare and the exports need not doubt them. The errors are of kind
// Invalid.
func ReadInventory(r io.Reader) (*Inventory, error) {
	const hint = "The sandbox's agent does not answer as Bailey's does. Destroy the sandbox and create another."
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot read the inventory", "Try again.")
	}
	if len(data) > maxDocument {
		return nil, bailey.Invalid.New(fmt.Sprintf("the inventory has more than %d MiB", maxDocument>>20), hint)
	}
	var v Inventory
	if err := strictjson.Check(data, 8); err != nil {
		return nil, bailey.Invalid.Wrap(err, "cannot read the inventory", hint)
	}
	if err := strictjson.Decode(data, &v); err != nil {
		return nil, bailey.Invalid.Wrap(err, "cannot read the inventory", hint)
	}
	if err := v.findFault(); err != nil {
		return nil, bailey.Invalid.Wrap(err, "the inventory is not valid", hint)
	}
	return &v, nil
}

// check returns an error unless the inventory is as [Collect] makes it.
func (v *Inventory) findFault() error {
	switch {
	case v.Version != Version:
		return fmt.Errorf("it has version %d; this program reads version %d", v.Version, Version)
	case !isWord(v.OS) || !isWord(v.Release):
		return fmt.Errorf("the system %.40q %.40q is not valid", v.OS, v.Release)
	case len(v.Files) > maxFiles || len(v.Omitted) > maxOmitted+1:
		return fmt.Errorf("it has %d files and %d omitted paths", len(v.Files), len(v.Omitted))
	}
	for _, o := range v.Omitted {
		if len(o.Path) > maxPath || len(o.Reason) > maxField || hasControl(o.Reason) {
			return fmt.Errorf("an omitted path or its reason is not valid")
		}
	}
	contents := 0
	for i := range v.Files {
		f := &v.Files[i]
		if err := f.findFault(); err != nil {
			return fmt.Errorf("file %.200q: %w", string(f.Path), err)
		}
		if f.Content != nil {
			contents += len(*f.Content)
		}
	}
	if contents > maxContents {
		return fmt.Errorf("its contents have %d bytes", contents)
	}
	return firstError(
		checkList("file", v.Files, maxFiles, func(f *File) (string, error) { return string(f.Path), nil }),
		checkList("package", v.Packages, maxOthers, func(p *Package) (string, error) { return p.Name, p.findFault() }),
		checkList("service", v.Services, maxOthers, func(s *Service) (string, error) { return s.Name, s.findFault() }),
		checkList("user", v.Users, maxOthers, func(u *User) (string, error) { return u.Name, u.findFault() }),
		checkList("group", v.Groups, maxOthers, func(g *Group) (string, error) { return g.Name, accountFault(g.Name) }))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkList checks each entry of a list, its length, its order, and that no name occurs twice.
func checkList[T any](kind string, list []T, most int, check func(*T) (string, error)) error {
	if len(list) > most {
		return fmt.Errorf("it has %d entries of kind %s", len(list), kind)
	}
	last := ""
	for i := range list {
		name, err := check(&list[i])
		if err != nil {
			return fmt.Errorf("%s %.200q: %w", kind, name, err)
		}
		if i > 0 && name <= last {
			return fmt.Errorf("%s %.200q: it is not sorted, or twice in the list", kind, name)
		}
		last = name
	}
	return nil
}

func (f *File) findFault() error {
	name := string(f.Path)
	switch {
	case len(name) > maxPath || !strings.HasPrefix(name, "/") || path.Clean(name) != name ||
		strings.Contains(name, "\x00"):
		return fmt.Errorf("the path is not absolute and clean")
	case strings.Count(name, "/") > maxDepth:
		return fmt.Errorf("the path is too deep")
	case f.Mode > 0o7777 || f.Size < 0 || len(f.Target) > maxPath || strings.Contains(string(f.Target), "\x00"):
		return fmt.Errorf("its mode, size or target is not valid")
	case f.Package != "" && !packageName().MatchString(f.Package):
		return fmt.Errorf("its package is not valid")
	}
	if err := firstError(ownerFault(f.Owner), ownerFault(f.Group)); err != nil {
		return err
	}
	switch f.Type {
	case Regular:
		if b, err := hex.DecodeString(f.SHA256); err != nil || len(b) != 32 || strings.ToLower(f.SHA256) != f.SHA256 {
			return fmt.Errorf("its digest is not valid")
		}
		if f.Content != nil && (len(*f.Content) > maxContent || digestOf(string(*f.Content)) != f.SHA256) {
			return fmt.Errorf("its content is not that of its digest")
		}
		return nil
	case Directory, Link, Special:
		if f.Content != nil || f.SHA256 != "" || f.Size != 0 || (f.Target != "") != (f.Type == Link) {
			return fmt.Errorf("a %s has other fields", f.Type)
		}
		return nil
	}
	return fmt.Errorf("its type %.40q is not known", f.Type)
}

func (p *Package) findFault() error {
	if !packageName().MatchString(p.Name) {
		return fmt.Errorf("its name is not valid")
	}
	if !packageVersion().MatchString(p.Version) {
		return fmt.Errorf("its version %.40q is not valid", p.Version)
	}
	return checkWords(p.Accounts, accountName())
}

func (s *Service) findFault() error {
	switch {
	case !serviceName().MatchString(s.Name):
		return fmt.Errorf("its name is not valid")
	case !slices.Contains([]string{Enabled, Disabled, Masked, Static}, s.State):
		return fmt.Errorf("its state %.40q is not known", s.State)
	case !slices.Contains([]string{"", Enabled, Disabled, Masked, Static}, s.Default):
		return fmt.Errorf("its default state %.40q is not known", s.Default)
	case s.Package != "" && !packageName().MatchString(s.Package):
		return fmt.Errorf("its package is not valid")
	}
	return checkWords(s.Wanted, serviceName())
}

func (u *User) findFault() error {
	for _, text := range []string{u.Comment, u.Home, u.Shell} {
		if !isField(text) {
			return fmt.Errorf("the field %.40q is not one of passwd(5)", text)
		}
	}
	for _, file := range []string{u.Home, u.Shell} {
		if file != "" && !path.IsAbs(file) {
			return fmt.Errorf("the path %.40q is not absolute", file)
		}
	}
	if u.Expires != "" && !days().MatchString(u.Expires) {
		return fmt.Errorf("its date %.40q is not valid", u.Expires)
	}
	if !slices.Contains([]string{PasswordNone, PasswordSet, PasswordLocked}, u.Password) {
		return fmt.Errorf("the state of its password is not known")
	}
	return firstError(accountFault(u.Name), ownerFault(u.Group), checkWords(u.Groups, accountName()))
}

// isField says whether text can be a field of passwd(5).
func isField(text string) bool {
	return len(text) <= maxField && utf8.ValidString(text) && !hasControl(text) && !strings.Contains(text, ":")
}

func checkWords(words []string, valid *regexp.Regexp) error {
	if len(words) > maxWords {
		return fmt.Errorf("it names %d others", len(words))
	}
	for i, w := range words {
		if !valid.MatchString(w) || i > 0 && w <= words[i-1] {
			return fmt.Errorf("the name %.40q is not valid, or not in order", w)
		}
	}
	return nil
}

func accountFault(name string) error {
	if !accountName().MatchString(name) {
		return fmt.Errorf("the name %.40q is not valid", name)
	}
	return nil
}

// ownerFault accepts the name of an account, or a number.
func ownerFault(name string) error {
	if number().MatchString(name) {
		return nil
	}
	return accountFault(name)
}

// The names as their tools accept them (deb-version(7), useradd(8), systemd.unit(5)), without a leading dash, so that
// none can be an option.
var (
	packageName = onlyOnce(`^[a-z0-9][a-z0-9+._-]{0,199}(:[a-z0-9]{1,20})?$`)
	// A version can have an epoch, and Debian's tools need a digit first.
	packageVersion = onlyOnce(`^[0-9A-Za-z][0-9A-Za-z.+:~_-]{0,199}$`)
	accountName    = onlyOnce(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?$`)
	serviceName    = onlyOnce(`^[A-Za-z0-9_][A-Za-z0-9@:_.\\-]{0,254}$`)
	number         = onlyOnce(`^[0-9]{1,10}$`)
	days           = onlyOnce(`^[0-9]{1,8}$`)
	word           = onlyOnce(`^[A-Za-z0-9._-]{0,64}$`)
)

func onlyOnce(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func isWord(s string) bool { return word().MatchString(s) }

// hasControl says whether s has characters that move the cursor or hide text: control characters, and separators and
// marks that change the direction of text.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, isControl)
}

func isControl(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0, r == 0x61c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e:
		return true
	case r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xfff0 && r <= 0xffff, r >= 0xe0000 && r <= 0xe0fff:
		return true // U+FFFD is here, too: it stands for bytes that are not UTF-8
	}
	return false
}
