package toolchain

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// language describes the tools of one language.
type language struct {
	name     string
	programs []string // the first is the one that every version has
	prefix   string   // what version names may begin with, beside "v"
	managers []manager
	files    []selector
	keys     []string // names in the files of mise and asdf
}

// manager describes where one version manager installs the versions of a language.
type manager struct {
	name           string
	variable, root string // the variable that names the root, and the root below the home without it
	versions       string // directory below the root that has a directory for each version
	strip, part    string // what precedes a version in such a name, and what a name must contain
	inside         string // directory of the version with bin, below that directory
	usual          string // file or link below the root that names the default version
}

var languages = []*language{
	{name: "go", programs: []string{"go", "gofmt"}, prefix: "go", keys: []string{"go", "golang"},
		files: []selector{{"go.mod", goModVersion}},
		managers: []manager{
			{name: "golang.org/dl", root: "sdk", strip: "go"},
			{name: "the module cache", root: "go/pkg/mod/golang.org", strip: "toolchain@v0.0.1-go"},
			{name: "a Go archive", root: ".", part: "go"},
			{name: "a Go archive", root: ".local", part: "go"},
			{name: "mise", variable: "MISE_DATA_DIR", root: ".local/share/mise", versions: "installs/go"},
			{name: "asdf", variable: "ASDF_DATA_DIR", root: ".asdf", versions: "installs/golang", inside: "go"},
		}},
	{name: "rust", programs: []string{"cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver"},
		keys:  []string{"rust"},
		files: []selector{{"rust-toolchain.toml", rustChannel}, {"rust-toolchain", rustChannel}},
		managers: []manager{
			{name: "rustup", variable: "RUSTUP_HOME", root: ".rustup", versions: "toolchains", usual: "settings.toml"},
			{name: "asdf", variable: "ASDF_DATA_DIR", root: ".asdf", versions: "installs/rust"},
		}},
	{name: "python", programs: []string{"python3", "python", "pip", "pip3"}, prefix: "cpython-", keys: []string{"python"},
		files: []selector{{".python-version", firstWord}},
		managers: []manager{
			{name: "pyenv", variable: "PYENV_ROOT", root: ".pyenv", versions: "versions", usual: "version"},
			{name: "uv", variable: "UV_PYTHON_INSTALL_DIR", root: ".local/share/uv/python", strip: "cpython-"},
			{name: "mise", variable: "MISE_DATA_DIR", root: ".local/share/mise", versions: "installs/python"},
			{name: "asdf", variable: "ASDF_DATA_DIR", root: ".asdf", versions: "installs/python"},
		}},
	{name: "node", programs: []string{"node", "npm", "npx", "corepack", "pnpm", "yarn"}, keys: []string{"node", "nodejs"},
		files: []selector{{".nvmrc", firstWord}, {".node-version", firstWord}},
		managers: []manager{
			{name: "nvm", variable: "NVM_DIR", root: ".nvm", versions: "versions/node", strip: "v", usual: "alias/default"},
			{name: "fnm", variable: "FNM_DIR", root: ".local/share/fnm", versions: "node-versions", strip: "v",
				inside: "installation", usual: "aliases/default"},
			{name: "mise", variable: "MISE_DATA_DIR", root: ".local/share/mise", versions: "installs/node"},
			{name: "asdf", variable: "ASDF_DATA_DIR", root: ".asdf", versions: "installs/nodejs"},
		}},
}

func languageNamed(name string) *language {
	for _, l := range languages {
		if l.name == name {
			return l
		}
	}
	return nil
}

// hasProgram reports whether a command belongs to the language. Programs of Python can carry its version.
func (l *language) hasProgram(command string) bool {
	base := command
	if l.name == "python" {
		base = strings.TrimRight(command, "0123456789.")
	}
	return slices.Contains(l.programs, command) || slices.Contains(l.programs, base) && base != ""
}

// installedVersions returns the installed versions of a language in the order of the managers.
func (f *Finder) installedVersions(l *language) (list []Toolchain) {
	for _, m := range l.managers {
		root := f.managerRoot(m.variable, m.root)
		dir, err := filepath.EvalSymlinks(filepath.Join(root, m.versions))
		if err != nil {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if t := m.installedIn(l, dir, e.Name()); t != nil {
				list = append(list, *t)
			}
		}
	}
	return list
}

// installedIn returns the version in the directory called name, or nil. A link to a sibling, such as 3.12 to 3.12.1, counts.
func (m manager) installedIn(l *language, dir, name string) *Toolchain {
	version, ok := strings.CutPrefix(name, m.strip)
	if !ok || m.part != "" && name != m.part || !isVersion(version) {
		return nil
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil || filepath.Dir(real) != dir {
		return nil
	}
	real = filepath.Join(real, m.inside)
	t := &Toolchain{Language: l.name, Manager: m.name, Version: version, Dir: real, Bin: filepath.Join(real, "bin")}
	if bin, err := filepath.EvalSymlinks(t.Bin); err != nil || bin != t.Bin || t.Program(l.programs[0]) == "" {
		return nil
	}
	if m.part != "" { // the name of the directory does not say which version it is
		text, _ := readSmall(filepath.Join(real, "VERSION"))
		t.Version, _, _ = strings.Cut(strings.TrimPrefix(text, "go"), "\n")
		if !isVersion(t.Version) {
			return nil
		}
	}
	t.Version = plainVersion(t.Version, l)
	return t
}

// platformParts are the beginnings of what follows a version in the names of directories.
var platformParts = []string{".linux-", ".darwin-", "-linux-", "-macos-", "-x86_64-", "-aarch64-"}

// plainVersion returns a version without the platform for which it was built. Channels of rustup keep their own dashes.
func plainVersion(version string, l *language) string {
	for _, part := range platformParts {
		if i := strings.Index(version, part); i > 0 && l.name != "node" {
			version = version[:i]
		}
	}
	return version
}

// pickVersion returns the installed version that a choice means: the very one, else the newest that begins with it. A choice of
// a least version means the newest that is not older.
func (l *language) pickVersion(installed []Toolchain, wanted choice) *Toolchain {
	want := wanted.version
	var found *Toolchain
	for i, t := range installed {
		switch {
		case t.Version == want:
			t.Chosen = wanted.file
			return &t
		case wanted.least && compareVersions(t.Version, want) < 0,
			!wanted.least && want != newestVersion && !strings.HasPrefix(t.Version, want+"."):
			continue
		}
		if found == nil || compareVersions(t.Version, found.Version) > 0 {
			found = &installed[i]
		}
	}
	if found == nil {
		return nil
	}
	t := *found
	t.Chosen = wanted.file
	return &t
}

// compareVersions compares the numbers of two versions from left to right. A word, as in 1.23rc1, is older than its absence.
func compareVersions(a, b string) int {
	x, y := strings.FieldsFunc(a, notNumber), strings.FieldsFunc(b, notNumber)
	for i := range max(len(x), len(y)) {
		var m, n int
		if i < len(x) {
			m, _ = strconv.Atoi(x[i])
		}
		if i < len(y) {
			n, _ = strconv.Atoi(y[i])
		}
		if m != n {
			return cmp.Compare(m, n)
		}
	}
	return -cmp.Compare(countLetters(a), countLetters(b))
}

func notNumber(c rune) bool { return c < '0' || c > '9' }

func countLetters(s string) (n int) {
	for _, c := range s {
		if c|0x20 >= 'a' && c|0x20 <= 'z' {
			n++
		}
	}
	return n
}
