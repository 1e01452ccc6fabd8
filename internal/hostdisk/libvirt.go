// Package hostdisk copies the disk of a virtual machine from a host with libvirt or Proxmox VE, over SSH. The machine may
// run: its disk is then copied by a backup job, which gives the disk as it was at one moment.
package hostdisk

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/internal/remote"
)

// A Host runs commands, such as a [remote.Client].
type Host interface {
	Run(context.Context, remote.Command) (remote.Result, error)
}

// A Libvirt is the disk of a machine of libvirt 7.2 or newer. It is copied with virsh and a login that libvirt lets manage
// machines.
type Libvirt struct {
	Machine string // its name in libvirt
	Target  string // the name of the disk in the machine, for example vda; may be empty if it has one disk
	Connect string // the URI of libvirt on the host, "qemu:///system" if it is empty
}

// A Report receives what is done next, for the person who waits.
type Report func(format string, args ...any)

// A Copied describes a copy.
type Copied struct {
	Format string // of the copy: "qcow2" or "raw"
	// State says how the disk was copied, for the person: if its file systems were not frozen, it is like a disk after
	// a
	// power failure.
	State string
}

// Limits of what a host says and of the time that it takes.
const (
	longestDisk   = 1 << 43
	longestCopy   = 12 * time.Hour
	longestAnswer = 1 << 20
	leftAfter     = 24 * time.Hour // a copy of an interrupted import is removed
	prefix        = "bailey-import-"
)

// A copier copies one disk.
type copier struct {
	host   Host
	disk   Libvirt
	report Report
	now    func() time.Time
	poll   time.Duration
}

// Copy writes the disk of a machine. It leaves nothing on the host; what a copy left that was interrupted without being
// able to remove it, a later one removes after a day.
func (d Libvirt) Copy(ctx context.Context, host Host, to *os.File, report Report) (Copied, error) {
	return (&copier{host, d, report, time.Now, time.Second}).copyDisk(ctx, to)
}

func (c *copier) copyDisk(ctx context.Context, to io.Writer) (Copied, error) {
	if err := c.checkNames(); err != nil {
		return Copied{}, err
	}
	source, err := c.findSource(ctx)
	if err != nil {
		return Copied{}, err
	}
	pool, err := c.runVirsh(ctx, "vol-pool", source)
	if err != nil {
		return Copied{}, bailey.Unavailable.Wrapf(err,
			"define a storage pool for its directory on the host, for example: virsh pool-create-as images dir --target "+path.Dir(source),
			"the disk %.200q belongs to no storage pool, so libvirt cannot read it for a person", source)
	}
	state, err := c.runVirsh(ctx, "domstate", c.disk.Machine)
	switch {
	case err != nil:
		return Copied{}, err
	case state == "shut off":
		return c.copyStopped(ctx, pool, source, to)
	case state == "running" || state == "paused":
		return c.copyRunning(ctx, pool, source, to)
	}
	return Copied{}, bailey.Conflict.Errorf("wait until it runs or is shut off",
		"the machine %s is in the state %.40q", c.disk.Machine, state)
}

// checkNames refuses names that the shell or virsh could read as something else.
func (c *copier) checkNames() error {
	plain := func(name, others string) bool {
		return name != "" && len(name) <= 200 && !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name,
			func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
					!strings.ContainsRune(others, r)
			})
	}
	switch {
	case !plain(c.disk.Machine, "._+-"):
		return bailey.Invalid.Errorf("use its name as virsh list --all shows it",
			"%.80q is not the name of a machine", c.disk.Machine)
	case c.disk.Target != "" && !plain(c.disk.Target, ""):
		return bailey.Invalid.Errorf("use a name such as vda, as virsh domblklist shows it",
			"%.80q is not a disk", c.disk.Target)
	case c.disk.Connect == "":
		c.disk.Connect = "qemu:///system"
	case !plain(c.disk.Connect, ":/+."):
		return bailey.Invalid.Errorf("use qemu:///system or qemu:///session",
			"%.80q is not the address of libvirt", c.disk.Connect)
	}
	return nil
}

// findSource returns the path of the disk on the host.
func (c *copier) findSource(ctx context.Context) (string, error) {
	list, err := c.runVirsh(ctx, "domblklist", "--details", c.disk.Machine)
	if err != nil {
		return "", err
	}
	var found, names []string
	for line := range strings.Lines(list) {
		// Type, device, target and source; the source may contain spaces.
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		device, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
		target, source, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if device != "disk" || kind != "file" && kind != "block" {
			continue
		}
		names = append(names, target)
		if source = strings.TrimSpace(source); c.disk.Target == "" || target == c.disk.Target {
			found = append(found, source)
			if len(found) > 1 {
				return "", bailey.Invalid.Errorf("name one of them: "+strings.Join(shortNames(names), ", "),
					"the machine %s has several disks", c.disk.Machine)
			}
		}
	}
	if len(found) == 0 || !path.IsAbs(found[0]) || strings.ContainsFunc(found[0],
		func(r rune) bool { return r < ' ' }) {
		return "", bailey.NotFound.Errorf("see virsh domblklist on the host; only disks in files and block devices can be imported",
			"the machine %s has no such disk (it has %s)", c.disk.Machine, strings.Join(shortNames(names), ", "))
	}
	if c.disk.Target == "" {
		c.disk.Target = names[0]
	}
	return found[0], nil
}

// shortNames bounds names that a host reports in a message.
func shortNames(names []string) (short []string) {
	for _, n := range names[:min(len(names), 8)] {
		short = append(short, fmt.Sprintf("%.40q", n))
	}
	return short
}

// copyStopped copies the disk of a machine that is shut off. If the machine was started meanwhile, the copy is refused.
func (c *copier) copyStopped(ctx context.Context, pool, source string, to io.Writer) (Copied, error) {
	before, err := c.describeVolume(ctx, pool, source)
	if err != nil {
		return Copied{}, err
	}
	c.report("copying %s of %s, which is shut off", c.disk.Target, c.disk.Machine)
	if err := c.downloadVolume(ctx, pool, source, to); err != nil {
		return Copied{}, err
	}
	after, err := c.describeVolume(ctx, pool, source)
	if err != nil {
		return Copied{}, err
	}
	state, err := c.runVirsh(ctx, "domstate", c.disk.Machine)
	if err != nil {
		return Copied{}, err
	}
	if state != "shut off" || before != after {
		return Copied{}, bailey.Conflict.Errorf("try again; the disk of a running machine is copied by a backup job",
			"the machine %s was started while its disk was copied", c.disk.Machine)
	}
	return Copied{after.Format.Type, "while the machine was shut off"}, nil
}

// A volume is the part of virsh vol-dumpxml that changes if a disk is written.
type volume struct {
	Capacity, Allocation string
	Format               struct {
		Type string `xml:"type,attr"`
	} `xml:"target>format"`
	Modified string `xml:"target>timestamps>mtime"`
}

func (c *copier) describeVolume(ctx context.Context, pool, source string) (v volume, err error) {
	if _, err := c.runVirsh(ctx, "pool-refresh", pool); err != nil {
		return v, err
	}
	text, err := c.runVirsh(ctx, "vol-dumpxml", "--pool", pool, source)
	if err != nil {
		return v, err
	}
	if err := xml.Unmarshal([]byte(text), &v); err != nil {
		return v, bailey.ToolFailed.Wrap(err, "the description of the disk cannot be read",
			"see virsh vol-dumpxml on the host")
	}
	if v.Format.Type == "" {
		v.Format.Type = "raw" // a volume of LVM has no format
	}
	if !slices.Contains([]string{"raw", "qcow2"}, v.Format.Type) {
		return v, bailey.Invalid.Errorf("start the machine: the disk of a running machine is copied as qcow2",
			"the disk has the format %.40q", v.Format.Type)
	}
	return v, nil
}

// copyRunning copies the disk of a running machine as it was at one moment.
func (c *copier) copyRunning(ctx context.Context, pool, source string, to io.Writer) (_ Copied, err error) {
	random := make([]byte, 4)
	rand.Read(random)
	name := fmt.Sprintf("%s%d-%s.qcow2", prefix, c.now().Unix(), hex.EncodeToString(random))
	if err := c.removeLeft(ctx, pool); err != nil {
		return Copied{}, err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if rerr := c.removeCopy(clean, pool, name, err != nil); rerr != nil && err == nil {
			err = rerr
		}
	}()
	frozen, err := c.beginBackup(ctx, path.Join(path.Dir(source), name))
	if err != nil {
		return Copied{}, err
	}
	if err := c.awaitBackup(ctx); err != nil {
		return Copied{}, err
	}
	if _, err := c.runVirsh(ctx, "pool-refresh", pool); err != nil {
		return Copied{}, err
	}
	c.report("copying the backup")
	if err := c.downloadVolume(ctx, pool, name, to); err != nil {
		return Copied{}, err
	}
	if frozen {
		return Copied{"qcow2", "while the machine ran, with its file systems frozen"}, nil
	}
	return Copied{"qcow2",
		"while the machine ran, as after a power failure, because qemu-guest-agent does not run in it"}, nil
}

// beginBackup starts the backup job. One command freezes the file systems, starts the job and thaws them, so that they
// are not left frozen if this program or the connection ends meanwhile.
func (c *copier) beginBackup(ctx context.Context, file string) (frozen bool, err error) {
	type attr struct {
		File string `xml:"file,attr,omitempty"`
		Type string `xml:"type,attr,omitempty"`
	}
	var job struct {
		XMLName xml.Name `xml:"domainbackup"`
		Mode    string   `xml:"mode,attr"`
		Disk    struct {
			Name   string `xml:"name,attr"`
			Backup string `xml:"backup,attr"`
			Type   string `xml:"type,attr"`
			Target attr   `xml:"target"`
			Driver attr   `xml:"driver"`
		} `xml:"disks>disk"`
	}
	job.Mode, job.Disk.Name, job.Disk.Backup, job.Disk.Type = "push", c.disk.Target, "yes", "file"
	job.Disk.Target.File, job.Disk.Driver.Type = file, "qcow2"
	text, err := xml.Marshal(job)
	if err != nil {
		return false, err
	}
	c.report("starting a backup of %s of %s", c.disk.Target, c.disk.Machine)
	freeze, begin, thaw := c.virshLine("domfsfreeze", c.disk.Machine), c.virshLine("backup-begin",
		c.disk.Machine, "--backupxml", "/dev/stdin"),
		c.virshLine("domfsthaw", c.disk.Machine)
	// virsh opens /dev/stdin, which a socket does not allow, so cat makes it a pipe.
	line := fmt.Sprintf(`trap "" HUP PIPE; f=; %s </dev/null >/dev/null 2>&1 && f=frozen; cat | %s; r=$?; `+
		`[ -z "$f" ] || %s </dev/null >/dev/null 2>&1 || { sleep 1; %[3]s </dev/null >/dev/null; }; echo "$f"; exit $r`, freeze, begin, thaw)
	out, err := c.runLine(ctx, line, bytes.NewReader(text))
	return strings.HasSuffix(out, "frozen"), err
}

// awaitBackup waits for the end of the backup job.
func (c *copier) awaitBackup(ctx context.Context) error {
	limit := c.now().Add(longestCopy)
	for said := ""; ; {
		info, err := c.runVirsh(ctx, "domjobinfo", c.disk.Machine)
		if err != nil {
			return err
		}
		if kind := jobField(info, "Job type"); kind == "None" || kind == "" {
			break
		}
		if done := jobField(info, "File processed"); done != said && done != "" {
			said = done
			c.report("backed up %.20s", done)
		}
		if c.now().After(limit) {
			return bailey.ToolFailed.Errorf("", "the backup took longer than %v", longestCopy)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(c.poll):
		}
	}
	info, err := c.runVirsh(ctx, "domjobinfo", c.disk.Machine, "--completed", "--keep-completed")
	if err != nil {
		return err
	}
	if jobField(info, "Job type") != "Completed" || jobField(info, "Operation") != "Backup" {
		return bailey.ToolFailed.Errorf("see the log of libvirt on the host; its disk may be full",
			"the backup of %s failed (%.40q)", c.disk.Machine, jobField(info, "Job type"))
	}
	return nil
}

// jobField returns a field of virsh domjobinfo.
func jobField(info, name string) string {
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// removeCopy removes the copy from the host. If the import failed, a job that still writes it is ended first.
func (c *copier) removeCopy(ctx context.Context, pool, name string, failed bool) error {
	if failed {
		if info, err := c.runVirsh(ctx, "domjobinfo", c.disk.Machine); err == nil && jobField(info,
			"Operation") == "Backup" {
			c.runVirsh(ctx, "domjobabort", c.disk.Machine)
		}
	}
	_, err := c.runVirsh(ctx, "pool-refresh", pool)
	if err == nil {
		_, err = c.runVirsh(ctx, "vol-delete", "--pool", pool, name)
	}
	if err != nil {
		return bailey.ToolFailed.Wrapf(err, "remove it with virsh vol-delete --pool "+pool+" "+name,
			"the copy %s on the host could not be removed", name)
	}
	return nil
}

// removeLeft removes copies of imports that were interrupted.
func (c *copier) removeLeft(ctx context.Context, pool string) error {
	list, err := c.runVirsh(ctx, "vol-list", pool)
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, prefix)
		stamp, _, _ := strings.Cut(rest, "-")
		since, err := strconv.ParseInt(stamp, 10, 64)
		if ours && err == nil && c.now().Sub(time.Unix(since, 0)) > leftAfter {
			if _, err := c.runVirsh(ctx, "vol-delete", "--pool", pool, name); err != nil {
				return err
			}
			c.report("removed %.80q, which an interrupted import left", name)
		}
	}
	return nil
}

func (c *copier) downloadVolume(ctx context.Context, pool, volume string, to io.Writer) error {
	log, err := readStream(ctx, c.host, c.virshLine("vol-download", "--pool", pool, volume, "/dev/stdout"), to)
	if errors.Is(err, errStream) {
		return c.explainFailure("vol-download", log)
	}
	return err
}

// errStream means that a command failed while its output was read.
var errStream = errors.New("the command failed")

// readStream runs a command that writes a disk to /dev/stdout, which must be a pipe and not a socket, so cat follows. The
// exit code is that of cat, so a failure of the command is told apart by a line of its own. It returns what the command
// says on its standard error.
func readStream(ctx context.Context, host Host, command string, to io.Writer) (string, error) {
	const failed = "bailey: the command failed"
	line := fmt.Sprintf(`{ %s || echo %s >&2; } </dev/null | cat`, command, quoteWord(failed))
	var log bytes.Buffer
	r, err := host.Run(ctx, remote.Command{
		Line: line, Stdout: to, Stderr: limitedLog{&log}, Output: longestDisk, Timeout: longestCopy})
	if text, cut := strings.CutSuffix(strings.TrimSpace(log.String()), failed); err == nil && (cut || r.Code != 0) {
		return text, errStream
	}
	return log.String(), err
}

// limitedLog keeps the beginning of what a command says on its standard error.
type limitedLog struct{ *bytes.Buffer }

func (l limitedLog) Write(b []byte) (int, error) {
	l.Buffer.Write(b[:min(len(b), max(0, longestAnswer-l.Len()))])
	return len(b), nil
}

// runVirsh runs a command of virsh and returns what it prints, without spaces around it.
func (c *copier) runVirsh(ctx context.Context, words ...string) (string, error) {
	return c.runLine(ctx, c.virshLine(words...), nil)
}

func (c *copier) runLine(ctx context.Context, line string, stdin io.Reader) (string, error) {
	var out, log bytes.Buffer
	r, err := c.host.Run(ctx, remote.Command{Line: line, Stdin: stdin, Stdout: &out, Stderr: limitedLog{&log},
		Output: longestAnswer, Timeout: 5 * time.Minute})
	if err != nil {
		return "", err
	}
	if r.Code != 0 {
		return "", c.explainFailure("virsh", log.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *copier) explainFailure(what, log string) error {
	hint := "see what virsh says on the host"
	switch {
	case strings.Contains(log, "not found") && strings.Contains(log, "virsh"):
		hint = "install libvirt-clients on the host"
	case strings.Contains(log, "failed to connect to the hypervisor"):
		hint = "add the account to the group libvirt on the host"
	case strings.Contains(log, "failed to get domain"):
		hint = "virsh list --all shows the names of machines"
	}
	return bailey.ToolFailed.Errorf(hint, "%s failed on the host: %.300q", what, strings.TrimSpace(log))
}

// virshLine returns a command line of virsh for the shell of the host.
func (c *copier) virshLine(words ...string) string {
	line := "LC_ALL=C virsh -q -c " + quoteWord(c.disk.Connect)
	for _, w := range words {
		line += " " + quoteWord(w)
	}
	return line
}

func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
