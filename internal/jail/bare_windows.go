package jail

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// programSuffix ends the file name of every program. A batch file is refused: cmd.exe would parse its arguments as a
// shell does (CVE-2024-24576).
const programSuffix = ".exe"

func bareRunnable(info os.FileInfo) bool { return info.Mode().IsRegular() }

// onlyAdministrators checks nothing: PATH names directories of the system and of its installed programs, which Windows
// reserves for administrators. The program's digest is in the receipt.
func onlyAdministrators(string) error { return nil }

// newBare returns the runner of Windows. It asks the system for the system directories and trusts no variable.
func newBare(cfg Config) (*bare, error) {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return nil, err
	}
	programs, err := windows.KnownFolderPath(windows.FOLDERID_ProgramFiles, windows.KF_FLAG_DEFAULT)
	if err != nil {
		return nil, err
	}
	path := strings.Join([]string{system, filepath.Dir(system), filepath.Join(programs, "Git", "cmd")},
		string(filepath.ListSeparator))
	return &bare{path: path, mask: cfg.Mask}, nil
}

// bareGroup is a job object: the program and all processes that it starts, which cannot leave the job.
type bareGroup struct{ job windows.Handle }

// bareLaunch starts cmd suspended, assigns it to a job of its own, and resumes it, so that the job contains every
// process that it starts. The job ends with its last handle, and so with the gateway.
func bareLaunch(cmd *exec.Cmd) (bareGroup, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return bareGroup{}, os.NewSyscallError("CreateJobObject", err)
	}
	g := bareGroup{job}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE}}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		g.closeHandle()
		return bareGroup{}, os.NewSyscallError("SetInformationJobObject", err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NO_WINDOW | windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		g.closeHandle()
		return bareGroup{}, err
	}
	if err := g.assignAndResume(cmd.Process); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		g.closeHandle()
		return bareGroup{}, err
	}
	return g, nil
}

// assignAndResume assigns a suspended process to the job and resumes it.
func (g bareGroup) assignAndResume(p *os.Process) error {
	var assigned error
	err := p.WithHandle(func(h uintptr) { assigned = windows.AssignProcessToJobObject(g.job, windows.Handle(h)) })
	if err := errors.Join(err, assigned); err != nil {
		return err
	}
	return resumeProcess(uint32(p.Pid))
}

// resumeProcess resumes a process that has only its first thread: os/exec provides no handle of it.
func resumeProcess(pid uint32) error {
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return os.NewSyscallError("CreateToolhelp32Snapshot", err)
	}
	defer windows.CloseHandle(threads)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return os.NewSyscallError("OpenThread", err)
		}
		defer windows.CloseHandle(thread)
		_, err = windows.ResumeThread(thread)
		return err
	}
	return err
}

// terminateAll ends the group at once: Windows has no signal that asks a program without a console to end.
func (g bareGroup) terminateAll() { g.killAll() }
func (g bareGroup) killAll()      { windows.TerminateJobObject(g.job, 128+9) }
func (g bareGroup) closeHandle()  { windows.CloseHandle(g.job) }

func bareExit(s *os.ProcessState) int { return s.ExitCode() }
