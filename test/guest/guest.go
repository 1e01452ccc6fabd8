// Package guest runs the tree's compiled tests on kernels that this machine does not have. A test boots
// Linux in QEMU, by software emulation alone, with an initramfs of its own making; PID 1 of the guest
// (package init below) runs the test's commands and writes what became of each on the serial console, and
// each becomes a subtest here.
//
// A test that needs another kernel is three lines:
//
//	func TestDelegated(t *testing.T) {
//		boot(t, machine{kernel: "6.12-amd64"}, jail("-test.run=^TestCgroup").as(1000).having("userns,cgroup").delegated())
//	}
//
// A machine without further fields has cgroup v2 and every Linux security module of its kernel. Its field
// cgroup asks for version "v1" instead, and line adds to the kernel's command line: "lsm=" is a kernel
// without Landlock. With disk, temporary files are on ext4; with busybox, the programs are one. Kernels are
// named by version and architecture, as .ci/guest fetches them: 6.1 (Landlock ABI 2, tmpfs without idmapped
// mounts), 6.12 (ABI 6, no version 1 of the memory controller) and 7.1 (ABI 9, without user namespaces and
// memory controller).
//
// A task is one command: a package's tests (tests; jail for those of internal/jail, with their probe), one
// of our programs (program) or one that the guest has (command). By default it runs as root and must end
// with success; as, having, delegated, saying and ending change by whom it is run, what its BAILEY_KERNEL
// requires, that its control group is its own, what it must print, and how it must end.
//
// The guest has no network but lo, no Go toolchain, no python and no node. What its tests skip is logged
// here, so that it shows where every other skip does. Go's test cache does not see what the guests are made
// of: run these tests with -count=1.
package guest

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// A Job is what PID 1 finds in /job.json.
type Job struct {
	Mark     string // begins each report, unlike anything else on the console
	Cgroup   string // "v1" or "v2"
	Disk     string // a device with ext4 for /tmp and /var/tmp, or ""
	Commands []Command
}

// A Command is run by PID 1, one after the other.
type Command struct {
	Name      string
	Dir       string
	Argv, Env []string
	UID       int // and gid
	Delegated bool
	Limit     time.Duration
}

// A Report is one line on the console, of PID 1's. Its kinds are begin, out (text the command wrote) and
// end (how it ended, as os.ProcessState says it); fail says why PID 1 could not do its own part.
type Report struct {
	Command int
	Kind    string
	Text    string
}

// Line is the report as it is written, with a newline.
func (r Report) Line(mark string) string {
	return mark + " " + strconv.Itoa(r.Command) + " " + r.Kind + " " + strconv.QuoteToASCII(r.Text) + "\n"
}

// ParseReport reads a line, newline and carriage return cut off.
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

// An Outcome is what became of a command. It passed when End is Good.
type Outcome struct {
	Began  bool
	Output string
	End    string
}

// Good is the end of a command that succeeded.
const Good = "exit status 0"

const (
	maxLine   = 8 << 10 // bytes of one line of the console; what is longer is no report
	maxOutput = 4 << 20 // bytes kept of one command's output
	maxNoise  = 64 << 10
)

// Read follows a console to its end. What is no report is noise, firmware's and the kernel's; its last
// bytes are kept to say why a guest did not come as far as its commands.
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

// Stillborn tells whether the kernel panicked by itself: before PID 1 said anything, and not because PID 1 ended.
func Stillborn(outcomes []Outcome, noise string) bool {
	for _, o := range outcomes {
		if o.Began || o.End != "" {
			return false
		}
	}
	return strings.Contains(noise, "Kernel panic - not syncing") && !strings.Contains(noise, "Attempted to kill init")
}
