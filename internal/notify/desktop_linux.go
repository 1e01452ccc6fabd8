package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"bailey"
)

// programs is the search path for notify-send. $PATH is not used: it comes from the process that made the gateway's
// first call.
const programs = "/usr/local/bin:/usr/bin:/bin"

// desktop shows messages with notify-send (libnotify).
type desktop struct {
	path, bus string
	patience  time.Duration
}

func newDesktop(c Config) *desktop {
	return &desktop{cmp.Or(c.Path, programs), c.Bus, c.Patience}
}

// missingReason returns why nothing can be shown, or "".
func (d *desktop) missingReason() string {
	if _, _, err := d.findNotifySend(); err != nil {
		return err.Error()
	}
	return ""
}

// findNotifySend returns the program and the address of the bus, or an error that says which of them is missing.
func (d *desktop) findNotifySend() (program, bus string, err error) {
	for _, dir := range filepath.SplitList(d.path) {
		name := filepath.Join(dir, "notify-send")
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			program = name
			break
		}
	}
	if program == "" {
		return "", "", bailey.Unavailable.New("notify-send is not in "+d.path,
			"install it (libnotify), or remove desktop from notify in settings.yaml")
	}
	bus, err = d.busAddress()
	return program, bus, err
}

// busAddress returns the address of the session bus. The environment comes from the process that made the gateway's
// first call, so only a Unix socket is accepted from it: an address can name a program to start, for example with
// "unixexec" (D-Bus specification).
func (d *desktop) busAddress() (string, error) {
	for _, a := range []string{d.bus, os.Getenv("DBUS_SESSION_BUS_ADDRESS")} {
		if strings.HasPrefix(a, "unix:") && !strings.Contains(a, ";") {
			return a, nil
		}
	}
	name := fmt.Sprintf("/run/user/%d/bus", os.Getuid())
	if info, err := os.Stat(name); err == nil && info.Mode().Type() == fs.ModeSocket {
		return "unix:path=" + name, nil
	}
	return "", bailey.Unavailable.New("no session bus: $DBUS_SESSION_BUS_ADDRESS is not a unix socket, and there is no "+name,
		"use a webhook: no user is logged in at a desktop here")
}

// notifyArgs returns the arguments that make notify-send show a message. notify-send reads C escapes in the body
// (g_strcompress, in its main), and desktops read a few HTML tags (Desktop Notifications Specification, "Markup"). No
// argument after -- is an option.
func notifyArgs(program string, m Message) []string {
	summary, body := m.Text, ""
	if m.Type == Open {
		summary = fmt.Sprintf("Bailey: %s by %s", m.Capability, m.Agent)
		lines := []string{m.Inputs}
		lines = append(append(lines, m.Reasons...),
			"until "+m.Expires.Local().Format("15:04")+": bailey approvals show "+string(m.ID))
		body = escapeMarkup(strings.Join(lines, "\n"))
	}
	return []string{program, "--app-name=Bailey", "--urgency=critical", "--", plainLine(summary, maxName), body}
}

func escapeMarkup(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, `\\`).Replace(s)
}

// headWriter keeps the beginning of the data written to it.
type headWriter []byte

func (h *headWriter) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), maxName-len(*h))]...)
	return len(p), nil
}

// sendMessage shows m. The program does not get the gateway's environment. Its time limit is that of one webhook
// attempt.
func (d *desktop) sendMessage(ctx context.Context, m Message) (string, error) {
	program, bus, err := d.findNotifySend()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	var said headWriter
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = notifyArgs(program, m)
	cmd.Env = []string{"PATH=" + programs, "LANG=C.UTF-8", "DBUS_SESSION_BUS_ADDRESS=" + bus}
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = "/", &said, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	switch {
	case err == nil:
		return "notify-send accepted it", nil
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", bailey.Unavailable.Errorf("make sure that a notification daemon runs on the desktop",
			"notify-send took longer than %v", d.patience)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	return "", bailey.Unavailable.Errorf("make sure that a notification daemon runs on the desktop",
		"notify-send failed (%v): %s", err, plainLine(line, 200))
}
