package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/hostapply"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
)

// Account is the account on a source host.
const Account = "bailey-readonly"

// ShellPath is the login shell on a source host.
const ShellPath = "/usr/local/bin/" + readonlyshell.Name

// prepareScript has one function for each step, in POSIX shell.
//
//go:embed prepare.sh
var prepareScript string

// Step is a step of a preparation.
type Step struct {
	Name    string // of the function in prepare.sh
	Purpose string
	// Number is the position of the step, from 1, and Total the number of steps. They are 0 for an undo.
	Number, Total int

	stdin []byte
}

// Preparation prepares one host. Every step can be repeated, and a step that finds its result changes nothing.
type Preparation struct {
	Client *remote.Client // the person's login
	Host   Host
	// Trusted are the public keys of the authority, as bailey ssh-ca export prints them.
	Trusted []byte
	// Own are the commands of the operator for the host. Without a file, an earlier one is removed from the host.
	Own OwnCommands
	// Shell returns the login shell for an architecture, as uname -m names it.
	Shell func(machine string) ([]byte, error)
	// Login makes a login with a new certificate over a connection of its own, after the configuration was changed. It
	// returns what the shell reports about the host.
	Login func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error)
	// Program returns the program that applies playbooks, for an architecture. If it is nil, the host is not prepared for
	// playbooks; an earlier preparation stays. TryApply logs in to the second account after the configuration was changed.
	Program  func(machine string) ([]byte, error)
	TryApply func(ctx context.Context, pinned []ssh.PublicKey) error
	// Journal adds the account to the group systemd-journal, and Logs to the group adm.
	Journal, Logs bool
	// Confirm asks before a step; an error ends the preparation and undoes the steps before. Report tells the result of a step: changed or unchanged.
	Confirm func(ctx context.Context, s Step) error
	Report  func(s Step, result string)
}

// planSteps returns the steps: six, and one more if the commands of the operator must change.
func (p *Preparation) planSteps(ctx context.Context) ([]Step, error) {
	machine, err := p.runStep(ctx, "uname -m", nil)
	if err != nil {
		return nil, err
	}
	shell, err := p.Shell(strings.TrimSpace(machine))
	if err != nil {
		return nil, err
	}
	groups := ""
	if p.Journal {
		groups += " systemd-journal"
	}
	if p.Logs {
		groups += " adm"
	}
	sum := sha256.Sum256(shell)
	steps := []Step{
		{Name: "install_shell " + hex.EncodeToString(sum[:]), stdin: shell,
			Purpose: fmt.Sprintf("install the login shell %s (%d KiB)", ShellPath, len(shell)>>10)},
		{Name: "add_account" + groups, Purpose: "create the system account " + Account + groupText(groups)},
		{Name: "install_keys", Purpose: "trust the keys of bailey ssh-ca in /etc/ssh/bailey_ca.pub", stdin: p.Trusted},
		{Name: "install_principals",
			Purpose: "accept certificates for " + Account + " only, in /etc/ssh/authorized_principals/" + Account},
		{Name: "install_config", Purpose: "limit the account in /etc/ssh/sshd_config.d/bailey-readonly.conf"},
		{Name: "reload_sshd", Purpose: "check the configuration with sshd -t and sshd -T, and reload sshd"},
	}
	own, err := p.planOwn(ctx)
	if err != nil {
		return nil, err
	}
	apply, err := p.planApply(strings.TrimSpace(machine))
	if err != nil {
		return nil, err
	}
	steps = slices.Insert(steps, len(steps)-1, apply...)
	steps = slices.Insert(steps, 1, own...)
	for i := range steps {
		steps[i].Number, steps[i].Total = i+1, len(steps)
	}
	return steps, nil
}

// planApply returns the steps that let the host apply playbooks, if the operator wants that.
func (p *Preparation) planApply(machine string) ([]Step, error) {
	if p.Program == nil {
		return nil, nil
	}
	program, err := p.Program(machine)
	if err != nil {
		return nil, err
	}
	return []Step{
		{Name: "add_apply_account", Purpose: "create the system account " + hostapply.Name},
		{Name: "install_apply " + hostapply.Digest(program), stdin: program,
			Purpose: fmt.Sprintf("install %s (%d KiB), which %[3]s alone may start, as root, for one approved playbook",
				hostapply.Path, len(program)>>10, hostapply.Name)},
		{Name: "install_apply_host " + hostapply.HostID(p.Client.HostKey.Marshal()),
			Purpose: "note the identity of this host in " + hostapply.HostFile},
		{Name: "install_apply_principals",
			Purpose: "accept certificates for " + hostapply.Name + " only, in /etc/ssh/authorized_principals/" + hostapply.Name},
		{Name: "install_apply_config", Purpose: "limit that account in /etc/ssh/sshd_config.d/bailey-apply.conf"},
	}, nil
}

// planOwn returns the step that brings the commands of the operator to the host, or removes them, if one is needed.
func (p *Preparation) planOwn(ctx context.Context) ([]Step, error) {
	if own := p.Own; own.Digest != "" {
		return []Step{{Name: "install_commands " + own.Digest, stdin: own.text,
			Purpose: fmt.Sprintf("add the commands of your own in %s: %s", readonlyshell.OwnPath, own.listNames())}}, nil
	}
	found, err := p.runStep(ctx, "has_commands", nil)
	if err != nil || strings.TrimSpace(found) != "yes" {
		return nil, err
	}
	return []Step{{Name: "remove_commands", Purpose: "remove the commands of your own from " + readonlyshell.OwnPath}}, nil
}

func groupText(groups string) string {
	if groups == "" {
		return ""
	}
	return " in the groups" + groups
}

// Run prepares the host and returns it with what was found. If a step is not confirmed or fails, or the login with a
// certificate fails afterwards, the steps of this run are undone.
func (p *Preparation) Run(ctx context.Context) (Host, error) {
	if _, err := p.runStep(ctx, "check_rights", nil); err != nil {
		return Host{}, err
	}
	steps, err := p.planSteps(ctx)
	if err != nil {
		return Host{}, err
	}
	for i, s := range steps {
		if err := p.Confirm(ctx, s); err != nil {
			if i > 0 {
				p.rollBack(ctx)
			}
			return Host{}, err
		}
		result, err := p.runStep(ctx, s.Name, s.stdin)
		if err != nil {
			p.rollBack(ctx)
			return Host{}, err
		}
		p.Report(s, strings.TrimSpace(result))
	}
	status, err := p.tryLogin(ctx)
	if err == nil && status.LandlockABI == 0 && !p.Host.WithoutLandlock {
		err = bailey.Denied.Errorf(
			"use a kernel with Landlock, or accept this host: bailey source add "+p.Host.Name+" --without-landlock",
			"the kernel %s of %s does not enforce Landlock",
			status.Kernel,
			p.Host.Name,
		)
	}
	if err == nil && status.OwnCommands != p.Own.Digest {
		err = bailey.Denied.Errorf("look at the file and at "+readonlyshell.OwnPath+" on the host, and prepare it again",
			"the read-only shell of %s does not accept the commands of %s", p.Host.Name, OwnFile)
	}
	if err == nil && p.Program != nil {
		err = p.TryApply(ctx, []ssh.PublicKey{p.Client.HostKey})
	}
	if err != nil {
		p.rollBack(ctx)
		return Host{}, err
	}
	if _, err := p.runStep(ctx, "commit_changes", nil); err != nil {
		return Host{}, err
	}
	h := p.Host
	now := time.Now().UTC().Truncate(time.Second)
	h.PreparedAt, h.System, h.LandlockABI = &now, status.System, status.LandlockABI
	h.OwnCommands, h.Apply = status.OwnCommands, h.Apply || p.Program != nil
	h.HostKeys = []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p.Client.HostKey)))}
	return h, nil
}

// loginPauses are the pauses before further logins: sshd reads its configuration a moment after it was told to. There are
// few, because newer servers close the door to an address after several refused logins (sshd_config(5), PerSourcePenalties).
var loginPauses = []time.Duration{time.Second, 4 * time.Second}

// tryLogin makes the login with a new certificate.
func (p *Preparation) tryLogin(ctx context.Context) (readonlyshell.Status, error) {
	for attempt := 0; ; attempt++ {
		status, err := p.Login(ctx, []ssh.PublicKey{p.Client.HostKey})
		if bailey.KindOf(err) != bailey.Denied || attempt == len(loginPauses) {
			return status, err
		}
		select {
		case <-time.After(loginPauses[attempt]):
		case <-ctx.Done():
			return status, err
		}
	}
}

// rollBack undoes what this run has added. It also runs if ctx has ended.
func (p *Preparation) rollBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	result, err := p.runStep(ctx, "roll_back", nil)
	if err != nil {
		result = err.Error()
	}
	p.Report(Step{Name: "roll_back", Purpose: "undo the steps of this run"}, strings.TrimSpace(result))
}

// Unprepare removes exactly what preparations added.
func Unprepare(ctx context.Context, client *remote.Client) (string, error) {
	p := Preparation{Client: client}
	if _, err := p.runStep(ctx, "check_rights", nil); err != nil {
		return "", err
	}
	return p.runStep(ctx, "remove_all", nil)
}

// stepTimeout bounds one step.
const stepTimeout = 2 * time.Minute

// runStep runs a function of the script, or a plain command, as root. The script and the input travel on standard input, so
// that no shell quotes them.
func (p *Preparation) runStep(ctx context.Context, line string, stdin []byte) (string, error) {
	script := prepareScript + "\n" + line + "\n"
	var out, log bytes.Buffer
	res, err := p.Client.Run(ctx, remote.Command{
		Line: fmt.Sprintf(
			`if [ "$(id -u)" = 0 ]; then exec sh -c "$(dd bs=1 count=%d 2>/dev/null)"; else exec sudo -n -- sh -c "$(dd bs=1 count=%[1]d 2>/dev/null)"; fi`,
			len(script),
		),
		Stdin: io.MultiReader(
			strings.NewReader(script),
			bytes.NewReader(stdin),
		), Stdout: &out, Stderr: &log, Timeout: stepTimeout,
	})
	if err != nil {
		return "", err
	}
	if res.Code != 0 {
		return "", bailey.ToolFailed.Errorf(
			"correct the cause on the host, and prepare it again: a repeated step changes nothing",
			"the step %q failed on the host: %s",
			strings.Fields(line)[0],
			strings.TrimSpace(log.String()),
		)
	}
	return out.String(), nil
}
