package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"bailey"
)

// Has reports whether a path exists below the opened descriptor. It follows symlinks that stay below it (openat2(2)).
func (w *Workspaces) Has(p bailey.Place, below string) (bool, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(p.File.Fd()), below, &how)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s in %s cannot be looked at: %v", below, p.Path, err), Hint: "name a directory that you may read"}
	}
	return true, unix.Close(fd)
}

// Read reads the file through its own descriptor and not through its path (proc_pid_fd(5)), up to its current size.
func (w *Workspaces) Read(p bailey.Place) (io.ReadCloser, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input /%s: %q cannot be read", p.Input, p.Path), Err: cause(err), Hint: "name a file that you may read"}
	}
	info, err := f.Stat()
	if err == nil {
		err = fits(p, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return whole{io.NewSectionReader(f, 0, info.Size()), f}, nil
}

type whole struct {
	io.Reader
	io.Closer
}
