//go:build linux

package guest

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An image is a file tree by absolute path, from which an initramfs is made.
type image map[string]entry

// An entry is one file. mode is that of stat(2), including the file type.
type entry struct {
	mode         uint32
	body         []byte
	major, minor int
}

const (
	directory = 0o040000
	regular   = 0o100000
	link      = 0o120000
	device    = 0o020000
)

// put adds an entry, and the missing directories above it.
func (m image) put(name string, e entry) {
	m[name] = e
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := m[dir]; !ok {
			m[dir] = entry{mode: directory | 0o755}
		}
	}
}

// copy adds a file of the host.
func (m image) copy(t testing.TB, from, to string, mode uint32) {
	t.Helper()
	body, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	m.put(to, entry{mode: regular | mode, body: body})
}

// copyTree adds the regular files of a host directory, if it exists.
func (m image) copyTree(t testing.TB, from, to string) {
	t.Helper()
	filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			m.copy(t, name, path.Join(to, strings.TrimPrefix(name, from)), 0o644)
		}
		return nil
	})
}

// borrow adds a program below root at the same path, with its interpreter and all libraries.
func (m image) borrow(t testing.TB, root, program string) {
	t.Helper()
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if target, err := os.Readlink(root + dir); err == nil {
			m.put(dir, entry{mode: link | 0o777, body: []byte(target)})
		}
	}
	// otherwise the tests of the guest skip and name it
	if file := find(root, program, "/usr/bin", "/bin"); file != "" {
		m.load(t, root, file)
	}
}

// load adds one ELF file and its dependencies. It does not need the loader's search order, because each library exists
// only once here.
func (m image) load(t testing.TB, root, file string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(root + path.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	at := path.Join("/", strings.TrimPrefix(dir, root), path.Base(file)) // root has no symlinks: see base
	if m[at].mode != 0 {
		return
	}
	m.copy(t, root+file, at, 0o755)
	f, err := elf.Open(root + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	needed, _ := f.ImportedLibraries()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(p.Open())
			m.load(t, root, strings.TrimRight(string(text), "\x00"))
		}
	}
	for _, name := range needed {
		var dirs []string
		for _, dir := range []string{"/usr/lib", "/lib", "/usr/lib64", "/lib64"} {
			dirs = append(dirs, dir+"/x86_64-linux-gnu", dir+"/aarch64-linux-gnu", dir)
		}
		library := find(root, name, dirs...)
		if library == "" {
			t.Fatalf("%s needs %s, which is not in %s", file, name, root)
		}
		m.load(t, root, library)
	}
}

// find returns the first existing file with the name in dirs, or "".
func find(root, name string, dirs ...string) string {
	for _, dir := range dirs {
		if info, err := os.Stat(root + dir + "/" + name); err == nil && info.Mode().IsRegular() {
			return dir + "/" + name
		}
	}
	return ""
}

// write writes the archive format "newc" of cpio(5), which the kernel unpacks (its
// Documentation/driver-api/early-userspace/buffer-format.rst). Directories sort before their content.
func (m image) write(w io.Writer) error {
	b := bufio.NewWriter(w)
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		record(b, i+1, strings.TrimPrefix(name, "/"), m[name])
	}
	record(b, 0, "TRAILER!!!", entry{})
	return b.Flush()
}

// record writes thirteen numbers, the name with a NUL, and the body. Name and body are padded to multiples of four.
func record(b *bufio.Writer, inode int, name string, e entry) {
	b.WriteString("070701")
	for _, n := range []int{inode, int(e.mode), 0, 0, 1, 0, len(e.body), 0, 0, e.major, e.minor, len(name) + 1, 0} {
		fmt.Fprintf(b, "%08x", n)
	}
	b.WriteString(name + "\x00" + strings.Repeat("\x00", -(110+len(name)+1)&3))
	b.Write(e.body)
	b.WriteString(strings.Repeat("\x00", -len(e.body)&3))
}

func TestArchive(t *testing.T) {
	m := image{}
	m.put("/dev/console", entry{mode: device | 0o600, major: 5, minor: 1})
	m.put("/a", entry{mode: regular | 0o644, body: []byte("text!")})
	var b bytes.Buffer
	if err := m.write(&b); err != nil {
		t.Fatal(err)
	}
	const zero = "00000000"
	number := func(n int) string { return fmt.Sprintf("%08x", n) }
	head := func(inode, mode, size, major, minor, name int) string {
		return "070701" + number(inode) + number(mode) + zero + zero + number(1) + zero + number(size) + zero + zero +
			number(major) + number(minor) + number(name) + zero
	}
	want := head(1, 0o100644, 5, 0, 0, 2) + "a\x00" + "text!\x00\x00\x00" +
		head(2, 0o040755, 0, 0, 0, 4) + "dev\x00\x00\x00" +
		head(3, 0o020600, 0, 5, 1, 12) + "dev/console\x00\x00\x00" +
		head(0, 0, 0, 0, 0, 11) + "TRAILER!!!\x00\x00\x00\x00"
	if got := b.String(); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if b.Len()%4 != 0 {
		t.Errorf("%d bytes are no multiple of four", b.Len())
	}
}
