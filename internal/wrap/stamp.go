//go:build linux

package wrap

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// A mount keeps what is guarded as it is, until somebody outside of the wall puts another file in its place (rename(2) takes
// the mount away, in every namespace): from then on the agent can write it. Nobody can forbid that to an editor, so a run
// remembers what was there and says at its end what is no longer so.

// maxStamped bounds, in bytes, what is read of all that is guarded, each time. Beyond it a file counts by its size and time.
const maxStamped = 64 << 20

// stamps are what is at each path, in a digest: kinds, modes of execution, contents.
func stamps(project string, paths []string) (map[string]string, error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := &stamping{root: root, left: maxStamped}
	all := map[string]string{}
	for _, path := range paths {
		sum := sha256.New()
		s.add(sum, path)
		all[path] = hex.EncodeToString(sum.Sum(nil))
	}
	return all, nil
}

type stamping struct {
	root *os.Root
	left int64
}

// add follows no link and opens nothing but files and directories. What cannot be read is part of the stamp as such.
func (s *stamping) add(sum hash.Hash, path string) {
	info, err := s.root.Lstat(path)
	if err != nil {
		fmt.Fprintf(sum, "%q none\n", path)
		return
	}
	fmt.Fprintf(sum, "%q %v\n", path, info.Mode()&(fs.ModeType|0o111))
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := s.root.Readlink(path)
		fmt.Fprintf(sum, "to %q\n", to)
	case info.Mode().IsRegular() && info.Size() > s.left:
		fmt.Fprintf(sum, "%d bytes at %d\n", info.Size(), info.ModTime().UnixNano())
	case info.Mode().IsRegular():
		f, err := s.root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			fmt.Fprintf(sum, "unread\n")
			return
		}
		defer f.Close()
		n, err := io.Copy(sum, io.LimitReader(f, info.Size()))
		s.left -= n
		fmt.Fprintf(sum, "\n%d bytes %v\n", info.Size(), err == nil)
	case info.IsDir():
		d, err := s.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // it may be a pipe by now
		if err != nil {
			fmt.Fprintf(sum, "unread\n")
			return
		}
		names, err := d.Readdirnames(-1)
		d.Close()
		slices.Sort(names)
		fmt.Fprintf(sum, "%d names %v\n", len(names), err == nil)
		for _, name := range names {
			s.add(sum, path+"/"+name)
		}
	}
}

// changed are the paths that are not what they were.
func changed(before, now map[string]string) (list []string) {
	for path, was := range before {
		if now[path] != was {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}
