package hostapply

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
)

// Main runs the program with the arguments of this process, and never returns.
func Main() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT) // a closed connection ends nothing
	p := program{hostFile: HostFile, state: StateDir, now: time.Now, out: os.Stdout}
	os.Exit(p.handleLogin(os.Args[1:], os.Stdin))
}

// program is the program with its files. Tests use others.
type program struct {
	hostFile, state string
	now             func() time.Time
	out             io.Writer
	unprivileged    bool   // in tests
	path            string // in tests: where programs are
}

// handleLogin handles a login. args are those that sshd passes to a login shell.
func (p program) handleLogin(args []string, in io.Reader) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintln(p.out, Name)
		return 0
	}
	if len(args) != 2 || args[0] != "-c" {
		return reportError(bailey.Denied.New("this account has no interactive login",
			"ask a person to approve source.apply"))
	}
	r, err := ParseCommand(args[1])
	if err == nil && !p.unprivileged {
		err = becomeRoot()
	}
	if err != nil {
		return reportError(err)
	}
	os.Clearenv() // nothing of the client reaches a task
	report, err := p.apply(r, in)
	if err != nil {
		return reportError(err)
	}
	if err := json.NewEncoder(p.out).Encode(report); err != nil {
		fmt.Fprintf(os.Stderr, "%s: the report was not sent: %v\n", Name, err)
	}
	if !report.OK {
		return ExitFailed
	}
	return 0
}

func reportError(err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
	var e *bailey.Error
	if errors.As(err, &e) && e.Hint != "" {
		fmt.Fprintf(os.Stderr, "  %s\n", e.Hint)
	}
	return ExitRefused
}

// becomeRoot checks that the account of the preparation started this program, and takes the rights of root completely,
// in all threads.
func becomeRoot() error {
	const hint = "prepare the host again: bailey source prepare HOST --apply"
	account, err := user.Lookup(Name)
	if err != nil {
		return bailey.Denied.Wrap(err, "this host has no account "+Name, hint)
	}
	if fmt.Sprint(os.Getuid()) != account.Uid {
		return bailey.Denied.New("only the account "+Name+" may start this program",
			"ask a person to approve source.apply")
	}
	if os.Geteuid() != 0 {
		return bailey.Denied.New("this program has no rights: the file system of "+Path+" may be mounted with nosuid", hint)
	}
	if err := errors.Join(syscall.Setgroups([]int{}), syscall.Setresgid(0, 0, 0), syscall.Setresuid(0, 0,
		0)); err != nil {
		return bailey.Unavailable.Wrap(err, "cannot take the rights of root", hint)
	}
	return nil
}

// apply checks the request, reads the content, and runs it.
func (p program) apply(r Request, in io.Reader) (Report, error) {
	if err := p.checkRequest(r); err != nil {
		return Report{}, err
	}
	content, err := io.ReadAll(io.LimitReader(in, MaxContent+1))
	switch {
	case err != nil:
		return Report{}, bailey.Unavailable.Wrap(err, "the playbook did not arrive", "try again")
	case len(content) > MaxContent:
		return Report{}, bailey.Invalid.Errorf("export a smaller difference",
			"the playbook has more than %d MiB", MaxContent>>20)
	case subtle.ConstantTimeCompare([]byte(Digest(content)), []byte(r.SHA256)) != 1:
		return Report{}, bailey.Denied.New("the content is another one than a person approved",
			"send exactly the approved playbook")
	}
	unlock, err := p.lockState()
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(p.state, "work-")
	if err != nil {
		return Report{}, bailey.Unavailable.Wrap(err, "cannot write to "+p.state, "free some space on the host")
	}
	defer os.RemoveAll(dir)
	j := &job{dir: dir, file: filepath.Join(dir, "playbook"), path: p.path, content: content}
	if err := j.prepare(); err != nil {
		return Report{}, err
	}
	// The request is used up only now, and before anything of the content is evaluated: a refusal changes nothing.
	if err := p.useOnce(r); err != nil {
		return Report{}, err
	}
	report := j.run()
	report.SHA256 = r.SHA256
	return report, nil
}

// checkRequest refuses a request for another host or another time.
func (p program) checkRequest(r Request) error {
	id, err := os.ReadFile(p.hostFile)
	if err != nil {
		return bailey.Denied.Wrap(err, "this host is not prepared for playbooks",
			"an operator runs: bailey source prepare HOST --apply")
	}
	now := p.now()
	switch {
	case strings.TrimSpace(string(id)) != r.Host:
		return bailey.Denied.New("a person approved this playbook for another host",
			"name the host for which it is meant, and ask again")
	case now.After(r.Until):
		return bailey.Denied.New("the time of this approval is over",
			"ask again; if it is new, check the clock of this host")
	case r.Until.After(now.Add(maxAhead)):
		return bailey.Denied.New("this approval is for a time too far ahead",
			"check the clocks of this host and of the gateway")
	}
	return nil
}

// lockState makes the directory of the state and locks it: two playbooks at once could undo each other's work.
func (p program) lockState() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(p.state, "calls"), 0o700); err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot write to "+p.state, "free some space on the host")
	}
	f, err := os.OpenFile(filepath.Join(p.state, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "cannot lock "+p.state, "free some space on the host")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, bailey.Conflict.Wrap(err, "another playbook runs on this host", "wait for it, and ask again")
	}
	return func() { f.Close() }, nil
}

// useOnce records a request, and refuses one that was used. Old records are removed: their time is over.
func (p program) useOnce(r Request) error {
	dir := filepath.Join(p.state, "calls")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot read "+dir, "look at the directory on the host")
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && p.now().Sub(info.ModTime()) > 2*maxAhead {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, r.Call), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return bailey.Denied.New("this approval was used before", "ask again")
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot record the call in "+dir, "free some space on the host")
	}
	return nil
}
