// Package initramfs writes the first file system of a guest: the agent as /init, and the modules of the kernel that it
// loads. The format is the "newc" of cpio(5), as the kernel unpacks it (buffer-format.rst in its documentation).
package initramfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Content names the files of the host from which the file system is made.
type Content struct {
	Agent   string   // the program bailey-guest, statically linked, for the architecture of the guest
	Modules []string // modules of the guest's kernel, in the order in which they must be loaded
	Files   []File   // more files, in an order in which directories precede their content
}

// A File is one more file of the guest. If From is empty, it is a symbolic link if Link is set, and otherwise a directory.
type File struct {
	Name string // path without "/" at its beginning
	From string // file of the host
	Link string // target
	Mode int    // permissions
}

// maxModules is how many modules the numbers in their names can order.
const maxModules = 999

const directory, regular, device, link = 0o040000, 0o100000, 0o020000, 0o120000

// Write writes the file system to w, uncompressed. The same content gives the same bytes.
func Write(w io.Writer, c Content) error {
	if c.Agent == "" || len(c.Modules) > maxModules {
		return fmt.Errorf("an initramfs needs the agent and at most %d modules", maxModules)
	}
	a := &archive{w: bufio.NewWriter(w)}
	for _, dir := range []string{"dev", "proc", "sys", "modules"} {
		a.addEntry(entry{name: dir, mode: directory | 0o755})
	}
	a.addEntry(entry{name: "dev/console", mode: device | 0o600, major: 5, minor: 1}) // the kernel opens it for pid 1
	a.addFile("init", c.Agent, 0o755)
	for i, module := range c.Modules {
		a.addFile(path.Join("modules", fmt.Sprintf("%03d-%s", i, filepath.Base(module))), module, 0o644)
	}
	for _, f := range c.Files {
		switch {
		case f.From != "":
			a.addFile(f.Name, f.From, f.Mode)
		case f.Link != "":
			a.addEntry(entry{name: f.Name, mode: link | 0o777, size: len(f.Link)})
			a.addText(f.Link)
		default:
			a.addEntry(entry{name: f.Name, mode: directory | f.Mode})
		}
	}
	a.addEntry(entry{name: "TRAILER!!!"})
	return errors.Join(a.err, a.w.Flush())
}

// An entry is one file, without its content. mode is that of stat(2).
type entry struct {
	name         string
	mode, size   int
	major, minor int
}

type archive struct {
	w     *bufio.Writer
	inode int
	err   error // the first one
}

// addEntry writes thirteen numbers and the name with a NUL, padded to a multiple of four.
func (a *archive) addEntry(e entry) {
	if a.err != nil {
		return
	}
	a.inode++
	a.w.WriteString("070701")
	for _, n := range []int{a.inode, e.mode, 0, 0, 1, 0, e.size, 0, 0, e.major, e.minor, len(e.name) + 1, 0} {
		fmt.Fprintf(a.w, "%08x", n)
	}
	_, a.err = a.w.WriteString(e.name + "\x00" + strings.Repeat("\x00", -(110+len(e.name)+1)&3))
}

// addText writes the content of an entry, padded to a multiple of four.
func (a *archive) addText(text string) {
	if a.err == nil {
		_, a.err = a.w.WriteString(text + strings.Repeat("\x00", -len(text)&3))
	}
}

// addFile writes a regular file of the host. If its size changes meanwhile, that is an error.
func (a *archive) addFile(name, from string, mode int) {
	if a.err != nil {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		a.err = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() >= 1<<32) {
		err = errors.New("it is not a regular file, or too large")
	}
	if err != nil {
		a.err = fmt.Errorf("%s: %w", from, err)
		return
	}
	a.addEntry(entry{name: name, mode: regular | mode, size: int(info.Size())})
	if _, err := io.CopyN(a.w, f, info.Size()); err != nil {
		a.err = fmt.Errorf("%s: it changed meanwhile: %w", from, err)
		return
	}
	_, a.err = a.w.WriteString(strings.Repeat("\x00", int(-info.Size()&3)))
}
