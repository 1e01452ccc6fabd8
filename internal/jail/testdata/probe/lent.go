package main

import (
	"fmt"
	"os"
	"syscall"
)

// lent prints the file system, mode and owner of a file, tries to change it, and prints its content.
func lent(path string) {
	var fs syscall.Statfs_t
	var st syscall.Stat_t
	fmt.Println(path, syscall.Statfs(path, &fs), syscall.Lstat(path, &st))
	fmt.Printf("type %x mode %o uid %d readonly %v\n", fs.Type, st.Mode, st.Uid, fs.Flags&1 != 0)
	_, err := os.OpenFile(path, os.O_WRONLY, 0)
	fmt.Println("write", err != nil)
	fmt.Println("chmod", os.Chmod(path, 0o777) != nil, "remove", os.Remove(path) != nil, "beside",
		os.WriteFile(path+"x", nil, 0o600) != nil)
	b, err := os.ReadFile(path)
	fmt.Printf("%q %v\n", b, err)
}
