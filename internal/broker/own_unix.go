//go:build linux || darwin

package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"bailey"
)

// readPrivate reads a file that only the broker's user can access. It refuses a symbolic link and does not block on a
// pipe.
func readPrivate(name string, most int64) ([]byte, error) {
	return readChecked(name, most, func(st *syscall.Stat_t) string {
		switch {
		case int(st.Uid) != os.Geteuid():
			return "belongs to another user"
		case st.Mode&0o077 != 0:
			return fmt.Sprintf("has mode %04o: other users can read it", st.Mode&0o7777)
		}
		return ""
	})
}

// readTrusted reads a file that only the broker's user and root can change. The file need not be secret.
func readTrusted(name string, most int64) ([]byte, error) {
	return readChecked(name, most, func(st *syscall.Stat_t) string {
		switch {
		case int(st.Uid) != os.Geteuid() && st.Uid != 0:
			return "belongs to another user"
		case st.Mode&0o022 != 0:
			return fmt.Sprintf("has mode %04o: other users can change it", st.Mode&0o7777)
		}
		return ""
	})
}

// readChecked checks the same descriptor that it reads.
func readChecked(name string, most int64, wrong func(*syscall.Stat_t) string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, syscall.ELOOP) {
			err = errors.New("it is a symbolic link")
		}
		return nil, unavailableError(err, "put it there with mode 0600, owned by the broker's user",
			"%s cannot be read", name)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	fault := ""
	switch {
	case !ok || !info.Mode().IsRegular():
		fault = "is not a regular file"
	case info.Size() > most:
		fault = fmt.Sprintf("is over the %d bytes allowed", most)
	default:
		fault = wrong(st)
	}
	if fault != "" {
		return nil, bailey.Denied.New(name+" "+fault, "make the broker's user its owner and run chmod 600")
	}
	b := make([]byte, info.Size())
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		clear(b)
		return nil, unavailableError(err, "check the disk", "%s cannot be read", name)
	}
	return b[:n], nil
}

// lockDir locks a directory until the file is closed, for example at the end of the process.
func lockDir(name string) (f *os.File, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openJournal opens the journal for appending and creates it if necessary. It refuses a file that other users can
// access.
func openJournal(name string) (*os.File, error) {
	f, err := os.OpenFile(name,
		os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, journalError(name, "cannot be opened", err)
	}
	info, err := f.Stat()
	fault := ""
	if err == nil {
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || !info.Mode().IsRegular():
			fault = "is not a regular file"
		case int(st.Uid) != os.Geteuid():
			fault = "belongs to another user"
		case st.Nlink != 1:
			fault = "has another hard link"
		case info.Mode().Perm()&0o077 != 0:
			fault = fmt.Sprintf("has mode %04o: other users could access it", info.Mode().Perm())
		}
	}
	if err != nil || fault != "" {
		f.Close()
		return nil, journalError(name, fault, err)
	}
	return f, nil
}
