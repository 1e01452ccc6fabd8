// Package guest runs the compiled tests of this tree on kernels that this machine does not have. A test boots Linux in
// QEMU, by software emulation only, with an initramfs that it builds. PID 1 of the guest (package init below) runs the
// commands of the test and reports the result of each on the serial console. Each command is a subtest.
//
// A test that needs another kernel is three lines:
//
//	func TestDelegated(t *testing.T) {
//		boot(t, machine{kernel: "6.12-amd64"}, jail("-test.run=^TestCgroup").as(1000).having("userns,cgroup").delegated())
//	}
//
// A machine without further fields has cgroup v2 and every Linux security module of its kernel. The field cgroup
// selects version "v1" instead, and line is appended to the kernel's command line; for example, "lsm=" gives a kernel
// without Landlock. If disk is set, temporary files are on ext4; if busybox is set, busybox provides the programs.
// Kernels are named by version and architecture, as .ci/guest fetches them: 6.1 (Landlock ABI 2, tmpfs without idmapped
// mounts), 6.12 (ABI 6, no version 1 of the memory controller) and 7.1 (ABI 9, without user namespaces and memory
// controller).
//
// A task is one command: the tests of a package (tests; jail for those of internal/jail, with their probe), a program
// of this tree (program) or a program of the guest (command). By default it runs as root and must succeed. The methods
// as, having, delegated, saying and ending set the user, the features that its BAILEY_KERNEL requires, a control group
// of its own, the text that it must print, and how it must end.
//
// The guest has no network but lo, no Go toolchain, no python and no node. Tests that skip in a guest are logged here,
// so that they are visible like other skips. Go's test cache does not know the content of the guests, so run these
// tests with -count=1.
package guest

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// A Job is the content of /job.json, which PID 1 reads.
type Job struct {
	Mark     string // begins each report; unique on the console
	Cgroup   string // "v1" or "v2"
	Disk     string // a device with ext4 for /tmp and /var/tmp, or ""
	Commands []Command
}

// A Command is run by PID 1. Commands run one after the other.
type Command struct {
	Name      string
	Dir       string
	Argv, Env []string
	UID       int // also the gid
	Delegated bool
	Limit     time.Duration
}

// A Report is one line of PID 1 on the console. Its kinds are begin, out (output of the command) and end (how it ended,
// in the words of os.ProcessState). A report of kind fail says why PID 1 could not do its own part.
type Report struct {
	Command int
	Kind    string
	Text    string
}

// Line returns the report in its written form, with a newline.
func (r Report) Line(mark string) string {
	return mark + " " + strconv.Itoa(r.Command) + " " + r.Kind + " " + strconv.QuoteToASCII(r.Text) + "\n"
}

// ParseReport parses a line without its newline and carriage return.
func ParseReport(mark, line string) (Report, bool) {
	rest, ok := strings.CutPrefix(line, mark+" ")
	f := strings.SplitN(rest, " ", 3)
	if !ok || len(f) != 3 {
		return Report{}, false
	}
	n, err := strconv.Atoi(f[0])
	text, quoteErr := strconv.Unquote(f[2])
	if err != nil || quoteErr != nil {
		return Report{}, false
	}
	r := Report{n, f[1], text}
	return r, r.Line(mark) == line+"\n"
}

// An Outcome is the result of a command. The command succeeded if End is Good.
type Outcome struct {
	Began  bool
	Output string
	End    string
}

// Good is the end of a command that succeeded.
const Good = "exit status 0"

const (
	maxLine   = 8 << 10 // bytes of one console line; a longer line is not a report
	maxOutput = 4 << 20 // bytes kept of the output of one command
	maxNoise  = 64 << 10
)

// Read reads a console to its end. Lines that are not reports are noise of the firmware or the kernel. The end of the
// noise is kept, because it shows why a guest did not reach its commands.
func Read(console io.Reader, mark string, commands int) (outcomes []Outcome, noise string, err error) {
	outcomes = make([]Outcome, commands)
	output := make([]strings.Builder, commands)
	var other []byte
	for lines := bufio.NewReaderSize(console, maxLine); err == nil; {
		var line []byte
		line, err = lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		r, ok := ParseReport(mark, strings.TrimRight(string(line), "\r\n"))
		if !ok || r.Command < 0 || r.Command >= commands {
			if other = append(other, line...); len(other) > 2*maxNoise {
				other = append(other[:0], other[len(other)-maxNoise:]...)
			}
			continue
		}
		o := &outcomes[r.Command]
		switch r.Kind {
		case "begin":
			o.Began = true
		case "out":
			b := &output[r.Command]
			b.WriteString(r.Text[:min(len(r.Text), maxOutput-b.Len())])
		case "end", "fail":
			o.End = r.Text
		}
	}
	for i := range outcomes {
		outcomes[i].Output = output[i].String()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return outcomes, string(other), err
}

// Stillborn reports whether the kernel panicked by itself: before the first report of PID 1, and not because PID 1
// ended.
func Stillborn(outcomes []Outcome, noise string) bool {
	for _, o := range outcomes {
		if o.Began || o.End != "" {
			return false
		}
	}
	return strings.Contains(noise, "Kernel panic - not syncing") && !strings.Contains(noise, "Attempted to kill init")
}
