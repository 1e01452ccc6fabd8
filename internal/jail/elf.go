//go:build linux

package jail

import (
	"debug/elf"
	"errors"
	"io"
	"strings"
)

// An object holds the parts of a program or library that the kernel and the dynamic loader read.
type object struct {
	real    string   // canonical path
	line    []string // words of a script's first line; then only real is set besides
	class   elf.Class
	machine elf.Machine
	interp  string   // PT_INTERP, "" for a static program
	needed  []string // DT_NEEDED
	rpath   []string // DT_RPATH; empty if runpath is set
	runpath []string // DT_RUNPATH
}

// readObject reads an ELF file without executing it, which ldd might do.
func readObject(r io.ReaderAt) (object, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return object{}, err
	}
	o := object{class: f.Class, machine: f.Machine}
	dynamic := false
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_INTERP:
			text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return object{}, err
			}
			o.interp, _, _ = strings.Cut(string(text), "\x00")
		case elf.PT_DYNAMIC:
			dynamic = true
		}
	}
	if !dynamic {
		return o, nil
	}
	if f.SectionByType(elf.SHT_DYNAMIC) == nil {
		return object{}, errors.New("it has no section table to read its libraries from")
	}
	for tag, list := range map[elf.DynTag]*[]string{elf.DT_NEEDED: &o.needed, elf.DT_RPATH: &o.rpath,
		elf.DT_RUNPATH: &o.runpath} {
		if *list, err = f.DynString(tag); err != nil {
			return object{}, err
		}
	}
	o.rpath, o.runpath = splitPath(o.rpath), splitPath(o.runpath)
	if len(o.runpath) > 0 {
		o.rpath = nil // ld.so(8): DT_RUNPATH overrides DT_RPATH
	}
	return o, nil
}

func splitPath(lists []string) []string {
	var dirs []string
	for _, l := range lists {
		dirs = append(dirs, strings.Split(l, ":")...)
	}
	return dirs
}

// expandTokens replaces the loader's tokens: $ORIGIN with the object's directory, $LIB with each directory that distributions
// use for it. If the result is not absolute, it is left out: the loader would look for it in the working directory,
// which belongs to the caller.
func expandTokens(dirs []string, origin string) []string {
	var out []string
	for _, d := range dirs {
		d = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin, "${LIB}", "$LIB").Replace(d)
		for _, lib := range []string{"lib/" + multiarchDir(), "lib64", "lib"} {
			if e := strings.ReplaceAll(d, "$LIB", lib); strings.HasPrefix(e, "/") {
				out = append(out, e)
			}
			if !strings.Contains(d, "$LIB") {
				break
			}
		}
	}
	return out
}
