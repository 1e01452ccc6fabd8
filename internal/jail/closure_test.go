//go:build linux

package jail

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestClosureIsWhatTheLoaderLoads compares with ldd, which asks the loader itself.
func TestClosureIsWhatTheLoaderLoads(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "ldd", "git")
	for _, name := range []string{"git", "true", "ls", "ssh", "curl"} {
		var all tools
		found, err := all.findTool(name)
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		out, err := exec.Command("ldd", found.files[0].path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(strings.TrimSpace(line))
			path := f[0]
			if len(f) > 2 && f[1] == "=>" {
				path = f[2]
			}
			if !filepath.IsAbs(path) {
				continue // for example the vDSO
			}
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(found.files, func(f toolFile) bool { return f.path == real }) {
				t.Errorf("%s: the loader loads %s, the closure lacks it", name, real)
			}
		}
	}
}

func TestToolsAreRemembered(t *testing.T) {
	all := tools{}
	path := filepath.Join(t.TempDir(), "tool")
	copyFile(t, probe, path)
	os.Symlink(path, path+".link")
	one, err := all.toolAt(path+".link", searchPath)
	if err != nil {
		t.Fatal(err)
	}
	if two, _ := all.toolAt(path+".link", searchPath); two != one {
		t.Error("an unchanged tool was examined again")
	}
	if one.files[0].path != path || one.run[0] != path+".link" || len(one.links) != 1 {
		t.Errorf("%+v", one)
	}
	os.Remove(path + ".link")
	os.Symlink(probe, path+".link")
	if three, err := all.toolAt(path+".link", searchPath); err != nil || three.files[0].path != probe {
		t.Errorf("a changed link: %+v, %v", three, err)
	}
}

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(dir+"/a/b", 0o755)
	os.WriteFile(dir+"/a/b/f", nil, 0o644)
	os.Symlink("a/b", dir+"/rel")
	os.Symlink(dir+"/rel", dir+"/abs")
	os.Symlink("../../abs/f", dir+"/a/b/up")
	os.Symlink("loop", dir+"/loop")
	for _, c := range []struct {
		path, want string
		links      int
	}{
		{"/a/b/f", "/a/b/f", 0}, {"/rel/f", "/a/b/f", 1}, {"/abs/f", "/a/b/f", 2}, {"/rel/up", "/a/b/f", 4},
		{"/rel/../b/./f", "/a/b/f", 1}, {"/loop", "", 0}, {"/none", "", 0}, {"/a/b/f/", "/a/b/f", 0},
	} {
		got, links, err := resolveLinks(dir + c.path)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s led to %s", c.path, got)
			}
			continue
		}
		if err != nil || got != dir+c.want || len(links) != c.links {
			t.Errorf("%s: %s, %v, %v", c.path, got, links, err)
		}
	}
}

func TestParseConf(t *testing.T) {
	got := parseConf([]byte("# note\ninclude a/*.conf b\n/opt/lib # mine\n\n /x//y/ \nrelative\nhwcap 1 nosegneg\n/last"))
	want := []confLine{{true, "a/*.conf"}, {true, "b"}, {false, "/opt/lib"}, {false, "/x/y"}, {false, "/last"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestConfThatIncludesItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ld.so.conf")
	os.WriteFile(path, []byte("/one\ninclude ld.so.conf\ninclude [\n"), 0o644)
	if dirs := confDirs(path, 0); len(dirs) != 9 || dirs[0] != "/one" {
		t.Errorf("%v", dirs)
	}
}

func TestExpand(t *testing.T) {
	got := expandTokens([]string{"$ORIGIN/../lib", "${ORIGIN}", "/a/$LIB", "relative", "", "$PLATFORM/x"}, "/opt/bin")
	want := []string{"/opt/bin/../lib", "/opt/bin", "/a/lib/" + multiarchDir(), "/a/lib64", "/a/lib"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzParseConf(f *testing.F) {
	f.Add([]byte("include /etc/*\n/lib"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, l := range parseConf(text) {
			if !l.include && !filepath.IsAbs(l.text) {
				t.Errorf("%q is not absolute", l.text)
			}
		}
	})
}

func FuzzReadObject(f *testing.F) {
	if b, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := readObject(bytes.NewReader(b))
		if err == nil && strings.Contains(o.interp, "\x00") {
			t.Errorf("interpreter %q", o.interp)
		}
	})
}
