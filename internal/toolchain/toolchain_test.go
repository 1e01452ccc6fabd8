//go:build unix

package toolchain

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
)

// install makes files with the first bytes of programs below a home, or links where the path has " -> ".
func install(t *testing.T, home string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		p, target, link := strings.Cut(p, " -> ")
		p = filepath.Join(home, p)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, p)
		default:
			err = os.WriteFile(p, []byte("\x7fELF"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newHome returns a Finder for a home with several versions of each language, and a project in it.
func newHome(t *testing.T) (f *Finder, project string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	install(t, home,
		"sdk/go1.90.1/bin/go", "go/pkg/mod/golang.org/toolchain@v0.0.1-go1.91.0.linux-amd64/bin/go",
		".rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/cargo",
		".rustup/toolchains/1.78.0-x86_64-unknown-linux-gnu/bin/cargo", ".cargo/bin/rustup", ".cargo/bin/cargo -> rustup",
		".cargo/bin/rg", ".pyenv/versions/3.11.7/bin/python3.11", ".pyenv/versions/3.11.7/bin/python3 -> python3.11",
		".pyenv/versions/3.12.1/bin/python3", ".pyenv/versions/3.12.10/bin/python3", ".pyenv/shims/python3",
		".local/share/uv/python/cpython-3.13.2-linux-x86_64-gnu/bin/python3",
		".nvm/versions/node/v18.1.0/bin/node", ".nvm/versions/node/v20.2.0/bin/node", ".nvm/versions/node/v20.2.0/lib/npm.js",
		".nvm/versions/node/v20.2.0/bin/npm -> ../lib/npm.js", ".nvm/versions/node/v20.2.0/bin/npx -> /bin/true",
		".local/share/fnm/node-versions/v22.3.0/installation/bin/node", ".local/share/mise/installs/node/23.0.0/bin/node",
		".asdf/installs/nodejs/16.9.0/bin/node", ".local/bin/mytool", ".local/bin/shim -> ../../.pyenv/shims/python3")
	write(t, home+"/.rustup/settings.toml", "default_toolchain = \"stable-x86_64-unknown-linux-gnu\"\n")
	write(t, home+"/.pyenv/version", "3.11.7\n")
	write(t, home+"/.nvm/alias/default", "lts/*\n")
	write(t, home+"/.nvm/alias/lts/*", "lts/hydrogen\n")
	write(t, home+"/.nvm/alias/lts/hydrogen", "v18.1.0\n")
	project = home + "/src/project"
	write(t, project+"/README", "")
	return &Finder{Home: home, Getenv: func(string) string { return "" }}, project
}

// TestSelect finds the version that each kind of file selects, in the directory of the manager that has it.
func TestSelect(t *testing.T) {
	f, project := newHome(t)
	for _, c := range []struct{ language, file, text, dir string }{
		{"go", "go.mod", "module m\n\ngo 1.80\n\ntoolchain go1.90.1\n", "sdk/go1.90.1"},
		{"go", "go.mod", "module m\n\ngo 1.91.0\n", "go/pkg/mod/golang.org/toolchain@v0.0.1-go1.91.0.linux-amd64"},
		{"rust", "rust-toolchain.toml", "[toolchain]\nchannel = \"1.78\"\n", ".rustup/toolchains/1.78.0-x86_64-unknown-linux-gnu"},
		{"rust", "rust-toolchain", "1.78.0\n", ".rustup/toolchains/1.78.0-x86_64-unknown-linux-gnu"},
		{"rust", "", "", ".rustup/toolchains/stable-x86_64-unknown-linux-gnu"},
		{"python", ".python-version", "# ours\n3.12\n", ".pyenv/versions/3.12.10"},
		{"python", ".python-version", "3.12.1\n3.11.7\n", ".pyenv/versions/3.12.1"},
		{"python", ".tool-versions", "nodejs 16.9.0\npython 3.13.2\n", ".local/share/uv/python/cpython-3.13.2-linux-x86_64-gnu"},
		{"python", "", "", ".pyenv/versions/3.11.7"},
		{"python", ".python-version", "system\n", ""},
		{"node", ".nvmrc", "v20\n", ".nvm/versions/node/v20.2.0"},
		{"node", ".nvmrc", "lts/hydrogen\n", ".nvm/versions/node/v18.1.0"},
		{"node", ".nvmrc", "node\n", ".local/share/mise/installs/node/23.0.0"},
		{"node", ".node-version", "22.3.0\n", ".local/share/fnm/node-versions/v22.3.0/installation"},
		{"node", ".tool-versions", "nodejs 16.9.0\n", ".asdf/installs/nodejs/16.9.0"},
		{"node", "mise.toml", "[tools]\nnode = [\"23\", \"18\"]\n", ".local/share/mise/installs/node/23.0.0"},
		{"node", ".mise.toml", "[tools]\nnode = {version = \"23\"}\n", ".local/share/mise/installs/node/23.0.0"},
		{"node", "", "", ".nvm/versions/node/v18.1.0"},
	} {
		project := filepath.Join(filepath.Dir(project), t.Name())
		if err := os.RemoveAll(project); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			write(t, filepath.Join(project, c.file), c.text)
		}
		got, err := f.Select(c.language, project)
		if err != nil || got == nil && c.dir != "" || got != nil && got.Dir != filepath.Join(f.Home, c.dir) {
			t.Errorf("%s %s %q: %+v, %v, want %s", c.language, c.file, c.text, got, err, c.dir)
		}
		if got != nil && c.file != "" && got.Chosen != filepath.Join(project, c.file) {
			t.Errorf("%s %s: chosen by %s", c.language, c.file, got.Chosen)
		}
	}
}

// TestSelectSaysWhatIsInstalled names the installed versions if the selected one is missing.
func TestSelectSaysWhatIsInstalled(t *testing.T) {
	f, project := newHome(t)
	write(t, project+"/.nvmrc", "21\n")
	_, err := f.Select("node", project)
	if !errors.Is(err, bailey.NotFound) || !strings.Contains(err.Error(), "selects node 21, which is not installed") ||
		!strings.Contains(bailey.HintOf(err), "18.1.0, 20.2.0, 22.3.0") {
		t.Error(err, bailey.HintOf(err))
	}
}

// TestSelectsByVirtualEnv uses the interpreter for which the project's virtual environment was made, if it is installed.
func TestSelectsByVirtualEnv(t *testing.T) {
	f, project := newHome(t)
	install(t, project, ".venv/bin/python -> "+f.Home+"/.pyenv/versions/3.12.1/bin/python3")
	if got, err := f.Select("python", project); err != nil || got == nil || got.Version != "3.12.1" {
		t.Error(got, err)
	}
	f, project = newHome(t)
	install(t, project, "evil/bin/python3", ".venv/bin/python -> "+project+"/evil/bin/python3")
	if got, err := f.Select("python", project); err != nil || got == nil || got.Version != "3.11.7" {
		t.Error(got, err)
	}
}

// TestForCommand returns programs, never a shim.
func TestForCommand(t *testing.T) {
	f, project := newHome(t)
	for command, want := range map[string]string{
		"python3": ".pyenv/versions/3.11.7/bin/python3", "cargo": ".rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/cargo",
		"node": ".nvm/versions/node/v18.1.0/bin/node", "mytool": ".local/bin/mytool", "shim": "", "../x": "", "nothing": "",
		"python3.11": ".pyenv/versions/3.11.7/bin/python3.11",
	} {
		got, err := f.ForCommand(command, project)
		switch {
		case err != nil:
			t.Error(command, err)
		case got == nil && want != "", got != nil && got.Program(command) != filepath.Join(f.Home, want):
			t.Errorf("%s: %+v, want %q", command, got, want)
		}
	}
	write(t, project+"/.nvmrc", "20")
	got, err := f.ForCommand("npm", project)
	if err != nil || got == nil || got.Program("npm") == "" || got.Program("npx") != "" {
		t.Errorf("%+v, %v: npx leads out of the version", got, err)
	}
}

// TestNothingOfAProject checks that no file of a project chooses a path outside of the directories of versions, and that a
// refusal repeats nothing of such a file.
func TestNothingOfAProject(t *testing.T) {
	const secret = "s3cr3t"
	f, project := newHome(t)
	for _, text := range []string{"../../../../tmp/evil", "/tmp/evil", "..", ".", "lts/../../../evil", "v../" + secret,
		"20\x00/../evil", "20/../../" + secret, "-rf", "$(id)" + secret, "~/evil", strings.Repeat("9", 70),
		"http://evil/" + secret} {
		for file, form := range map[string]string{".nvmrc": "%", ".node-version": "%", ".tool-versions": "node %", "mise.toml": "[tools]\nnode = '%'"} {
			write(t, filepath.Join(project, file), strings.ReplaceAll(form, "%", text))
			got, err := f.Select("node", project)
			if err := os.Remove(filepath.Join(project, file)); err != nil {
				t.Fatal(err)
			}
			if got != nil && !isWithin(f.Home+"/.nvm/versions/node", got.Dir) {
				t.Fatalf("%s %q: %+v", file, text, got)
			}
			if err != nil && strings.Contains(err.Error()+bailey.HintOf(err), secret) {
				t.Errorf("%s %q: the refusal repeats it: %v", file, text, err)
			}
		}
	}
	refusals := map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"huge":      func(path string) error { return os.WriteFile(path, make([]byte, maxChoice+1), 0o644) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	}
	for name, create := range refusals {
		if err := create(project + "/.nvmrc"); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Select("node", project); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		os.Remove(project + "/.nvmrc")
	}
	write(t, project+"/rust-toolchain.toml", "[toolchain]\npath = \""+project+"/evil\"\n")
	if got, err := f.Select("rust", project); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a path as a toolchain: %+v, %v", got, err)
	}
	install(t, f.Home, ".nvm/versions/node/v99.0.0 -> "+project, ".pyenv/versions/4.0 -> 3.12.1")
	install(t, project, "bin/node")
	write(t, project+"/.nvmrc", "99.0.0")
	if got, err := f.Select("node", project); !errors.Is(err, bailey.NotFound) {
		t.Errorf("a link that leads out of the versions: %+v, %v", got, err)
	}
	write(t, project+"/.python-version", "4.0")
	if got, err := f.Select("python", project); err != nil || got == nil || got.Dir != f.Home+"/.pyenv/versions/3.12.1" {
		t.Errorf("a link to a sibling: %+v, %v", got, err)
	}
}

// TestOtherUsersChooseNothing does not search directories above the project that other users can write.
func TestOtherUsersChooseNothing(t *testing.T) {
	f, project := newHome(t)
	above := filepath.Dir(project)
	write(t, above+"/.nvmrc", "20")
	if got, err := f.Select("node", project); err != nil || got == nil || got.Version != "20.2.0" {
		t.Fatal(got, err)
	}
	if err := os.Chmod(above, 0o1777); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Select("node", project); err != nil || got == nil || got.Version != "18.1.0" {
		t.Error(got, err)
	}
}

// TestRoot honours the variables of managers only if they lead into the home.
func TestRoot(t *testing.T) {
	f, project := newHome(t)
	install(t, f.Home, "mine/versions/3.9.1/bin/python3")
	outside := t.TempDir()
	install(t, outside, "versions/3.9.1/bin/python3")
	write(t, project+"/.python-version", "3.9.1")
	for root, want := range map[string]bool{f.Home + "/mine": true, outside: false, "mine": false, f.Home: false, "/": false} {
		f.Getenv = func(name string) string { return map[string]string{"PYENV_ROOT": root}[name] }
		if got, _ := f.Select("python", project); (got != nil) != want {
			t.Errorf("PYENV_ROOT=%s: %+v", root, got)
		}
	}
}

// TestCheck refuses what calls and other users can write, and says how to change that.
func TestCheck(t *testing.T) {
	f, project := newHome(t)
	tool, err := f.Select("python", project)
	if err != nil || f.Check(*tool, []string{project}) != nil {
		t.Fatal(err, f.Check(*tool, []string{project}))
	}
	for _, w := range []string{f.Home, f.Home + "/.pyenv", tool.Dir, tool.Dir + "/lib"} {
		err := f.Check(*tool, []string{w})
		want := "calls can write " + w + " and so change programs of the toolchain python 3.11.7 of pyenv, which is therefore not used"
		if !errors.Is(err, bailey.Denied) || err.Error() != want || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", w, err)
		}
	}
	f.Writable = func() []string { return []string{f.Home + "/.pyenv"} }
	if err := f.Check(*tool, nil); !errors.Is(err, bailey.Denied) {
		t.Error("a workspace holds the toolchain:", err)
	}
	f.Writable = nil
	for _, path := range []string{tool.Bin + "/python3.11", tool.Bin, f.Home + "/.pyenv"} {
		info, _ := os.Stat(path)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		f.checked = nil
		err := f.Check(*tool, nil)
		if want := "other users can write " + path + " and so change"; err == nil || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(bailey.HintOf(err), "chmod go-w") {
			t.Errorf("%s: %v", path, err)
		}
		os.Chmod(path, info.Mode())
	}
}

// TestEquip changes a job so that it uses the toolchain.
func TestEquip(t *testing.T) {
	f, project := newHome(t)
	write(t, project+"/.python-version", "3.12.1")
	place := []bailey.Place{{Path: project, Write: true}}
	job := bailey.Job{Command: "/usr/bin/python3", Dir: project, Places: place, Wall: &bailey.Wall{Trees: []bailey.Tree{{Path: "/usr"}}}}
	got, unused, err := f.Equip(job)
	if err != nil || len(unused) > 0 || got.Command != f.Home+"/.pyenv/versions/3.12.1/bin/python3" ||
		!slices.Contains(got.Wall.Trees, bailey.Tree{Path: f.Home + "/.pyenv/versions/3.12.1"}) ||
		!strings.Contains(got.Wall.Path, f.Home+"/.rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin:") {
		t.Errorf("%+v %v %v", got, unused, err)
	}
	if len(job.Wall.Trees) != 1 || job.Wall.Path != "" {
		t.Error("the job of the manifest was changed")
	}
	job.Wall, job.Command, job.Exec = &bailey.Wall{Cache: "cargo", Fetches: true}, "cargo", []string{"/usr/bin/rustc", "/usr/bin/true"}
	install(t, f.Home, ".rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/rustc")
	got, _, err = f.Equip(job)
	stable := f.Home + "/.rustup/toolchains/stable-x86_64-unknown-linux-gnu"
	if err != nil || got.Command != stable+"/bin/cargo" || len(got.Wall.Trees) != 0 || !slices.Equal(got.Read, []string{stable}) ||
		!slices.Equal(got.Exec, []string{stable + "/bin/rustc", "/usr/bin/true"}) {
		t.Errorf("%+v %v", got, err)
	}
	job.Places = []bailey.Place{{Path: f.Home + "/.rustup", Write: true}}
	if _, _, err = f.Equip(job); !errors.Is(err, bailey.Denied) {
		t.Error(err)
	}
	plain := bailey.Job{Command: "mytool"}
	if got, _, err = f.Equip(plain); err != nil || got.Command != f.Home+"/.local/bin/mytool" || got.Wall != nil {
		t.Errorf("%+v %v", got, err)
	}
}

// TestVerdictIsKept does not walk the files of a version for each call.
func TestVerdictIsKept(t *testing.T) {
	f, project := newHome(t)
	tool, _ := f.Select("python", project)
	if err := f.Check(*tool, nil); err != nil {
		t.Fatal(err)
	}
	v := f.checked[tool.Dir]
	if f.Check(*tool, nil); f.checked[tool.Dir] != v {
		t.Error("it was walked again")
	}
	v.at = v.at.Add(-verdictAge - time.Second)
	f.checked[tool.Dir] = v
	os.Chmod(tool.Bin, 0o777)
	if err := f.Check(*tool, nil); err == nil {
		t.Error("an old verdict was used")
	}
}

// FuzzChoice reads files that select a version: whatever they hold, the choice is a plain word.
func FuzzChoice(f *testing.F) {
	for _, s := range []string{"v20\n", "[tools]\nnode = \"1\"\n", "toolchain go1.2\n", "[toolchain]\nchannel=\"x\"", "python 3\n", "../x", "lts/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range languages {
			for _, s := range l.allFiles() {
				version, _ := s.read(text)
				c, err := l.checkedChoice(version, s.file)
				if err == nil && c.version != "lts/*" && !isVersion(strings.TrimPrefix(c.version, "lts/")) {
					t.Errorf("%s: %q gives %q", s.file, text, c.version)
				}
			}
		}
	})
}
