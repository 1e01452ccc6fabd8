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

// A mount protects a guarded file until a process outside the agent jail replaces that file: rename(2) removes the
// mount in every namespace, and from then on the agent can write the new file. An editor cannot be prevented from doing
// this. So a run records the state of the guarded files and reports at its end which have changed.

// maxStamped limits the bytes of guarded files that are read each time. Beyond it a file counts by its size and time.
const maxStamped = 64 << 20

// stampPaths returns a digest for each path: file types, executable bits, contents.
func stampPaths(project string, paths []string) (map[string]string, error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := &stamper{root: root, left: maxStamped}
	all := map[string]string{}
	for _, path := range paths {
		sum := sha256.New()
		s.addPath(sum, path)
		all[path] = hex.EncodeToString(sum.Sum(nil))
	}
	return all, nil
}

type stamper struct {
	root *os.Root
	left int64
}

// addPath follows no link and opens only files and directories. If a file cannot be read, this fact is part of the stamp.
func (s *stamper) addPath(sum hash.Hash, path string) {
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
		// by now it may be a pipe
		d, err := s.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			fmt.Fprintf(sum, "unread\n")
			return
		}
		names, err := d.Readdirnames(-1)
		d.Close()
		slices.Sort(names)
		fmt.Fprintf(sum, "%d names %v\n", len(names), err == nil)
		for _, name := range names {
			s.addPath(sum, path+"/"+name)
		}
	}
}

// changedPaths returns the paths whose stamps differ.
func changedPaths(before, now map[string]string) (list []string) {
	for path, was := range before {
		if now[path] != was {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}
