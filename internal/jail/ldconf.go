//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// multiarchDir returns the directory name that Debian gives this architecture's libraries.
func multiarchDir() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// loaderDirs returns the directories that the loader named interp searches by default (ld.so(8); musl's ldso reads
// /etc/ld-musl-ARCH.path instead).
func loaderDirs(interp string) []string {
	base := filepath.Base(interp)
	if strings.HasPrefix(base, muslPrefix) {
		if text, err := os.ReadFile(muslPath(base)); err == nil {
			return strings.FieldsFunc(string(text), func(r rune) bool { return r == ':' || r == '\n' })
		}
		return []string{"/lib", "/usr/local/lib", "/usr/lib"}
	}
	dirs := confDirs("/etc/ld.so.conf", 0)
	return append(dirs, "/lib/"+multiarchDir(), "/usr/lib/"+multiarchDir(), "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

const muslPrefix = "ld-musl-"

// muslPath returns the file with the search path of the musl loader with this base name.
func muslPath(base string) string {
	return "/etc/" + strings.TrimSuffix(base, filepath.Ext(base)) + ".path"
}

// loaderData returns the files that the loader itself reads, if they exist.
func loaderData(base string) []toolFile {
	path := "/etc/ld.so.cache"
	if strings.HasPrefix(base, muslPrefix) {
		path = muslPath(base)
	}
	id, err := statIdent(path)
	if err != nil {
		return nil
	}
	return []toolFile{{path: path, id: id}}
}

// confDirs returns the directories of ld.so.conf and of the files that it includes, at most eight deep (ldconfig(8)).
func confDirs(path string, depth int) []string {
	text, err := os.ReadFile(path)
	if err != nil || depth > 8 {
		return nil
	}
	var dirs []string
	for _, l := range parseConf(text) {
		if !l.include {
			dirs = append(dirs, l.text)
			continue
		}
		pattern := l.text
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		files, _ := filepath.Glob(pattern) // sorted; as with ldconfig, a bad pattern matches nothing
		for _, f := range files {
			dirs = append(dirs, confDirs(f, depth+1)...)
		}
	}
	return dirs
}

type confLine struct {
	include bool
	text    string
}

// parseConf returns the absolute directories and the includes of one file, in order.
func parseConf(text []byte) []confLine {
	var lines []confLine
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		l, _, _ := strings.Cut(s.Text(), "#")
		f := strings.Fields(l)
		switch {
		case len(f) >= 2 && f[0] == "include":
			for _, pattern := range f[1:] {
				lines = append(lines, confLine{true, pattern})
			}
		case len(f) == 1 && filepath.IsAbs(f[0]):
			lines = append(lines, confLine{false, filepath.Clean(f[0])})
		}
	}
	return lines
}
