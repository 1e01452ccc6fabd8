package battery

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// crossCageProbes are attempts on another cage of the same gateway that runs at the same time and has left data wherever it
// could, as a cage that has ended did before.
func crossCageProbes() []Probe {
	planted := func(dir func(*Scene) string) func(*Scene) verdict {
		return func(s *Scene) verdict { return tryRead(filepath.Join(dir(s), plantedName)) }
	}
	return []Probe{
		{Name: "crossing/tmp", try: planted(func(s *Scene) string { return s.Tmp })},
		{Name: "crossing/home", try: planted(func(s *Scene) string { return s.Home })},
		{Name: "crossing/shared-memory", try: func(s *Scene) verdict { return attachSegment(s.Planted) }},
		{Name: "crossing/semaphore", try: func(s *Scene) verdict { return trySyscall("a semaphore", unix.SYS_SEMGET, uintptr(s.Planted), 0, 0) }},
		{Name: "crossing/posix-queue", try: func(s *Scene) verdict {
			return trySyscall("a queue", unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(cString(plantedName+s.Token))),
				unix.O_RDONLY, 0, 0)
		}},
		{Name: "crossing/user-key", try: func(s *Scene) verdict { return searchKeyring(unix.KEY_SPEC_USER_KEYRING, plantedName+s.Token) }},
		{Name: "crossing/session-key", try: func(s *Scene) verdict {
			return searchKeyring(unix.KEY_SPEC_SESSION_KEYRING, plantedName+s.Token)
		}},
		{Name: "crossing/shared-file", try: func(s *Scene) verdict { return tryRead("/dev/shm/" + plantedName + s.Token) }},
	}
}

const plantedName = "planted"

// plantData leaves data everywhere and waits until its stdin ends. It ignores refusals by the cage.
func (s *Scene) plantData() int {
	for _, dir := range []string{s.Tmp, s.Home, "/dev/shm"} {
		os.WriteFile(filepath.Join(dir, plantedName), []byte(s.Token), 0o666)
		os.WriteFile(filepath.Join(dir, plantedName+s.Token), []byte(s.Token), 0o666)
	}
	unix.SysvShmGet(s.Planted, 4096, unix.IPC_CREAT|0o666)
	doSyscall(unix.SYS_SEMGET, uintptr(s.Planted), 1, unix.IPC_CREAT|0o666)
	doSyscall(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(cString(plantedName+s.Token))), unix.O_CREAT|unix.O_RDWR, 0o666,
		0)
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING} {
		unix.AddKey("user", plantedName+s.Token, []byte(s.Token), ring)
	}
	fmt.Println(plantedName)
	io.Copy(io.Discard, os.Stdin)
	return 0
}
