package localapi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

const noFollow = 0 // each function that opens a file checks for links itself

// detachProcess detaches a gateway from the client's console and passes it the handle ready, whose number it returns.
func detachProcess(attr *os.ProcAttr, ready *os.File) (string, error) {
	const detachedProcess = 0x8 // DETACHED_PROCESS, CreateProcess
	handle := syscall.Handle(ready.Fd())
	if err := syscall.SetHandleInformation(handle, syscall.HANDLE_FLAG_INHERIT,
		syscall.HANDLE_FLAG_INHERIT); err != nil {
		return "", os.NewSyscallError("SetHandleInformation", err)
	}
	attr.Sys = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess,
		AdditionalInheritedHandles: []syscall.Handle{handle}}
	return strconv.FormatUint(uint64(handle), 10), nil
}

// Inherited returns the handle on which a starting client waits, or nil if number names none. Child processes do not
// inherit it.
func Inherited(number string) *os.File {
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || syscall.SetHandleInformation(syscall.Handle(n), syscall.HANDLE_FLAG_INHERIT, 0) != nil {
		return nil
	}
	return os.NewFile(uintptr(n), "ready")
}

// foldVariable returns a variable's name in the form that is compared: Path and PATH are equal.
func foldVariable(name string) string { return strings.ToUpper(name) }

// inheritsHere reports whether programs need a variable to start, or it names a directory of the user.
func inheritsHere(name string) bool {
	return slices.Contains([]string{"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE",
		"USERNAME", "USERDOMAIN",
		"HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "TEMP", "TMP"}, name)
}

// LockFile takes an exclusive lock on path (LockFileEx), until unlock is called or the process ends. If another process
// holds it, the error is EWOULDBLOCK, as on other systems.
func LockFile(path string) (unlock func(), err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		err = fmt.Errorf("%s: %w", path, syscall.EWOULDBLOCK)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
