package guestagent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/guestwire"
)

// locateFile returns the path of a file in the guest.
func (a *Agent) locateFile(name string) (string, error) {
	if fault := guestwire.PathFault(name); fault != "" {
		return "", bailey.Invalid.Errorf("Name the file by its absolute path.", "cannot use %q: %s", shortText(name), fault)
	}
	if a.sys.root == "/" {
		return name, nil // the kernel resolves ".." after symbolic links
	}
	return filepath.Join(a.sys.root, filepath.Clean(name)), nil
}

// fileError gives an error of the system a kind.
func fileError(what, name string, err error) error {
	kind, hint := bailey.Invalid, ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, hint = bailey.NotFound, "Check the path; missing directories are created only on request."
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind, hint = bailey.Unavailable, "Remove files from the sandbox, or create one with a larger disk."
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the message names the file
	}
	return kind.Wrapf(err, hint, "cannot %s %s: %v", what, shortText(name), err)
}

// openRegular opens a regular file. It does not wait for the other end of a named pipe.
func openRegular(at string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readBounded returns the content of a file of at most limit bytes. Files of /proc have more bytes than their size.
func readBounded(at string, limit int64) ([]byte, fs.FileInfo, error) {
	f, info, err := openRegular(at)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = bailey.Invalid.Errorf("Read a part of it with a command.", "it has more than %d bytes", limit)
	}
	return text, info, err
}

func (st *stream) readFile(m *guestwire.File) (guestwire.Message, error) {
	at, err := st.s.a.locateFile(m.Path)
	if err != nil {
		return nil, err
	}
	text, info, err := readBounded(at, min(max(m.Limit, 0), guestwire.MaxFile))
	if err != nil {
		return nil, fileError("read", m.Path, err)
	}
	return describeFile(at, info), st.sendBytes(text)
}

func describeFile(at string, info fs.FileInfo) *guestwire.FileInfo {
	m := &guestwire.FileInfo{Name: info.Name(), Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		m.Mode, m.UID, m.GID = s.Mode, s.Uid, s.Gid
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		m.Target, _ = os.Readlink(at)
	}
	return m
}

func (a *Agent) statFile(m *guestwire.File) (guestwire.Message, error) {
	at, err := a.locateFile(m.Path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return nil, fileError("stat", m.Path, err)
	}
	return describeFile(at, info), nil
}

func (st *stream) listDirectory(m *guestwire.File) (guestwire.Message, error) {
	at, err := st.s.a.locateFile(m.Path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fileError("list", m.Path, err)
	}
	defer f.Close()
	entries, err := f.ReadDir(guestwire.MaxList + 1)
	if err != nil && err != io.EOF {
		return nil, fileError("list", m.Path, err)
	}
	if len(entries) > guestwire.MaxList {
		return nil, bailey.Invalid.Errorf("List a part of it with a command.", "%s has more than %d entries", shortText(m.Path), guestwire.MaxList)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var list []byte
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		} else if err != nil {
			return nil, fileError("list", m.Path, err)
		}
		record := guestwire.Marshal(nil, describeFile(filepath.Join(at, e.Name()), info))
		list = append(binary.BigEndian.AppendUint32(list, uint32(len(record))), record...)
	}
	return &guestwire.Empty{}, st.sendBytes(list)
}

// takeBytes receives exactly n bytes and then the end of Stdin.
func (st *stream) takeBytes(n int64) ([]byte, error) {
	var b bytes.Buffer
	err := st.in.CopyTo(&upTo{&b, n}, func(n uint32) error {
		return st.s.sendFrame(guestwire.KindCredit, st.id, guestwire.CreditPayload(guestwire.Stdin, n))
	})
	if err == nil && int64(b.Len()) != n {
		err = bailey.Invalid.Errorf("Send it again.", "%d bytes of %d arrived", b.Len(), n)
	}
	return b.Bytes(), err
}

// upTo refuses more than n bytes.
type upTo struct {
	w *bytes.Buffer
	n int64
}

func (u *upTo) Write(p []byte) (int, error) {
	if int64(u.w.Len()+len(p)) > u.n {
		return 0, bailey.Invalid.Errorf("Send it again.", "more than the announced %d bytes arrived", u.n)
	}
	return u.w.Write(p)
}

func (st *stream) writeFile(m *guestwire.File) (guestwire.Message, error) {
	at, err := st.s.a.locateFile(m.Path)
	if err != nil {
		return nil, err
	}
	if m.Limit < 0 || m.Limit > guestwire.MaxFile {
		return nil, bailey.Invalid.Errorf("Write it in parts, with a command.", "%s would have more than %d bytes", shortText(m.Path), guestwire.MaxFile)
	}
	data, err := st.takeBytes(m.Limit)
	if err != nil {
		return nil, err
	}
	if m.Parents {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return nil, fileError("write", m.Path, err)
		}
	}
	if at, err = replaceFile(at, data, m); err != nil {
		return nil, fileError("write", m.Path, err)
	}
	info, err := os.Lstat(at)
	if err != nil {
		return nil, fileError("write", m.Path, err)
	}
	return describeFile(at, info), nil
}

// replaceFile replaces a regular file by renaming, so that its content is the former or the new one at any time. It
// follows symbolic links. An existing file keeps its mode and owner. Whether it is on the disk after a crash of the
// guest is the concern of Sync.
func replaceFile(at string, data []byte, fresh *guestwire.File) (string, error) {
	mode, uid, gid := fs.FileMode(fresh.Mode&0o7777), int(fresh.UID), int(fresh.GID)
	if to, err := filepath.EvalSymlinks(at); err == nil {
		at = to
	}
	switch info, err := os.Lstat(at); {
	case err == nil && !info.Mode().IsRegular():
		return at, errors.New("it is not a regular file")
	case err == nil:
		s, _ := info.Sys().(*syscall.Stat_t)
		mode, uid, gid = fs.FileMode(s.Mode&0o7777), int(s.Uid), int(s.Gid)
	case !errors.Is(err, fs.ErrNotExist):
		return at, err
	}
	f, err := os.CreateTemp(filepath.Dir(at), ".bailey-")
	if err != nil {
		return at, err
	}
	defer os.Remove(f.Name()) // fails after the rename
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return at, err
	}
	if uid != os.Geteuid() || gid != os.Getegid() {
		if err := f.Chown(uid, gid); err != nil {
			return at, err
		}
	}
	if err := unix.Fchmod(int(f.Fd()), uint32(mode)); err != nil { // after chown, which clears bits
		return at, err
	}
	return at, os.Rename(f.Name(), at)
}

func (st *stream) editFile(m *guestwire.Edit) (guestwire.Message, error) {
	at, err := st.s.a.locateFile(m.Path)
	if err != nil {
		return nil, err
	}
	if m.Old == 0 || m.Old > guestwire.MaxFile || m.New > guestwire.MaxFile {
		return nil, bailey.Invalid.Errorf("Name a text of the file.",
			"cannot edit %s: the text to replace is empty, or a text is larger than %d bytes", shortText(m.Path), guestwire.MaxFile)
	}
	texts, err := st.takeBytes(int64(m.Old) + int64(m.New))
	if err != nil {
		return nil, err
	}
	text, info, err := readBounded(at, guestwire.MaxFile)
	if err != nil {
		return nil, fileError("edit", m.Path, err)
	}
	before, after := texts[:m.Old], texts[m.Old:]
	count := bytes.Count(text, before)
	switch {
	case count == 0:
		return nil, bailey.NotFound.Errorf("Read the file and copy the text exactly, with its spaces and line ends.",
			"the text to replace is not in %s", shortText(m.Path))
	case count > 1 && !m.All:
		return nil, bailey.Conflict.Errorf("Name more of its surroundings, or replace all.",
			"the text to replace is %d times in %s", count, shortText(m.Path))
	case int64(len(text))+int64(count)*(int64(m.New)-int64(m.Old)) > guestwire.MaxFile:
		return nil, bailey.Invalid.Errorf("Edit it with a command.", "%s would have more than %d bytes", shortText(m.Path), guestwire.MaxFile)
	}
	_, err = replaceFile(at, bytes.ReplaceAll(text, before, after), &guestwire.File{Mode: uint32(info.Mode().Perm())})
	if err != nil {
		return nil, fileError("edit", m.Path, err)
	}
	return &guestwire.Edited{Count: uint32(count)}, nil
}
