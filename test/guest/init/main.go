//go:build linux

// Command init is PID 1 of a guest: it mounts the file systems that Linux programs expect, runs the commands of
// /job.json, reports on the console and restarts the machine, which ends QEMU.
//
// It would do damage on any other system. It therefore does nothing unless it is PID 1 and the job exists.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey/test/guest"
)

func main() {
	text, err := os.ReadFile("/job.json")
	if os.Getpid() != 1 || err != nil {
		fmt.Fprintln(os.Stderr, "init: not in a guest")
		os.Exit(1)
	}
	var job guest.Job
	if err := json.Unmarshal(text, &job); err != nil {
		fmt.Println(err)
	}
	os.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	fmt.Println() // firmware may have left an incomplete line
	if err := prepareSystem(job); err != nil {
		fmt.Print(guest.Report{Kind: "fail", Text: err.Error()}.Line(job.Mark))
		job.Commands = nil
	}
	for i, c := range job.Commands {
		runCommand(job.Mark, i, c)
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// runCommand runs one command to its end and kills every process that remains.
func runCommand(mark string, i int, c guest.Command) {
	say := func(kind, text string) { fmt.Print(guest.Report{Command: i, Kind: kind, Text: text}.Line(mark)) }
	say("begin", c.Name)
	ctx, cancel := context.WithTimeout(context.Background(), c.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.WaitDelay = 5 * time.Second // another process may keep the output open
	cmd.Stdout = chunks(func(text string) { say("out", text) })
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.UID)}}
	if c.Delegated {
		group, err := delegateCgroup(fmt.Sprintf("%s/guest-%d", groups, i), c.UID)
		if err != nil {
			say("fail", err.Error())
			return
		}
		defer group.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	err := cmd.Run()
	end := cmd.ProcessState.String()
	if cmd.ProcessState == nil || errors.Is(err, exec.ErrWaitDelay) || ctx.Err() != nil {
		end = fmt.Sprintf("%s: %v, %v", end, err, ctx.Err())
	}
	unix.Kill(-1, unix.SIGKILL)
	for err = nil; err != unix.ECHILD; { // orphans become children of this process
		_, err = unix.Wait4(-1, nil, 0, nil)
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		left, _ := filepath.Glob(dir + "/*")
		for _, name := range left {
			os.RemoveAll(name)
		}
	}
	say("end", end)
}

// chunks passes output on, in pieces that fit a line of the console.
type chunks func(string)

func (say chunks) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), 512)
		if i := bytes.IndexByte(rest[:n], '\n'); i >= 0 {
			n = i + 1
		}
		say(string(rest[:n]))
		rest = rest[n:]
	}
	return len(b), nil
}
