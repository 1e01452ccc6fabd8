package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey/internal/guestclient"
)

// rawResume resumes the template of a sandbox with QEMU alone: the same arguments, the same memory and devices, the agent's
// protocol, and nothing else.
type rawResume struct {
	argv   []string
	files  int // descriptors that QEMU inherits, from 3 on
	fds    map[string]int
	dir    string // of the template
	marker guestclient.Marker
	turn   int
}

// processOf returns the process of a machine's directory, as package vm records it.
func processOf(machine string) (pid int, err error) {
	var r struct{ PID int }
	b, err := os.ReadFile(filepath.Join(machine, "machine.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r.PID, err
}

// newRawResume reads the arguments of a running clone, and the template from which it came.
func (s *sandboxRun) newRawResume(id string) (*rawResume, error) {
	pid, err := processOf(s.machineOf(id))
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	r := &rawResume{argv: strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), fds: map[string]int{}}
	if slices.Contains(r.argv, "-add-fd") {
		return nil, errors.New("the image has a disk, which the script does not open")
	}
	text := strings.Join(r.argv, " ")
	for name, pattern := range map[string]string{"monitor": `socket,id=monitor,fd=(\d+)`, "guest": `socket,id=guest,fd=(\d+)`,
		"memory": `mem-path=/proc/self/fd/(\d+)`} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("the arguments of QEMU have no %s", name)
		}
		r.fds[name], _ = strconv.Atoi(m[1])
		r.files = max(r.files, r.fds[name]-2)
	}
	r.files++ // the state follows
	r.fds["state"] = r.files + 2
	return r, r.readTemplate(filepath.Join(string(s.dir), "templates"))
}

// readTemplate finds the only template of the host.
func (r *rawResume) readTemplate(dir string) error {
	list, err := filepath.Glob(filepath.Join(dir, "*", "record.json"))
	if err != nil || len(list) != 1 {
		return errors.Join(err, fmt.Errorf("the host has %d templates", len(list)))
	}
	b, err := os.ReadFile(list[0])
	var record struct{ Marker guestclient.Marker }
	if err == nil {
		err = json.Unmarshal(b, &record)
	}
	r.dir, r.marker = filepath.Join(filepath.Dir(list[0]), "vm"), record.Marker
	return err
}

// resumeOnce starts QEMU, loads the state, runs one command and ends QEMU.
func (r *rawResume) resumeOnce(ctx context.Context) error {
	r.turn++
	files := make([]*os.File, r.files)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for i := range files {
		var err error
		switch i + 3 {
		case r.fds["monitor"], r.fds["guest"]:
			files[i], err = listenAbstract(r.socketName(i + 3))
		case r.fds["memory"]:
			files[i], err = os.OpenFile(filepath.Join(r.dir, "memory"), os.O_RDWR, 0)
		case r.fds["state"]:
			files[i], err = os.Open(filepath.Join(r.dir, "state"))
		default:
			files[i], err = os.Open(os.DevNull)
		}
		if err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, r.argv[0], r.argv[1:]...)
	var complaint bytes.Buffer
	cmd.ExtraFiles, cmd.Stderr = files, &complaint
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if err := r.loadState(); err != nil {
		return fmt.Errorf("%w: %s", err, complaint.String())
	}
	return r.runTrue(ctx)
}

func (r *rawResume) socketName(fd int) string {
	return fmt.Sprintf("@bailey-bench-%d-%d-%d", os.Getpid(), r.turn, fd)
}

func listenAbstract(name string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}

// loadState talks to QEMU's monitor until the machine runs.
func (r *rawResume) loadState() error {
	c, err := net.Dial("unix", r.socketName(r.fds["monitor"]))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	answers := json.NewDecoder(c)
	for _, text := range []string{`{"execute":"qmp_capabilities"}`,
		`{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true}]}}`,
		fmt.Sprintf(`{"execute":"migrate-incoming","arguments":{"uri":"fd:%d"}}`, r.fds["state"]), `{"execute":"query-status"}`,
		`{"execute":"cont"}`} {
		for again := true; again; {
			if _, err := fmt.Fprintln(c, text); err != nil {
				return err
			}
			if again, err = readAnswer(answers); err != nil {
				return err
			}
		}
	}
	return nil
}

// readAnswer skips the greeting and events. again is true while the state is loaded.
func readAnswer(answers *json.Decoder) (again bool, err error) {
	for {
		var a struct {
			Return     *struct{ Status string }
			QMP, Event any
			Error      *struct{ Desc string }
		}
		if err := answers.Decode(&a); err != nil {
			return false, err
		}
		if a.Error != nil {
			return false, errors.New(a.Error.Desc)
		}
		if a.Return != nil {
			return a.Return.Status == "inmigrate", nil
		}
	}
}

func (r *rawResume) runTrue(ctx context.Context) error {
	c, err := net.Dial("unix", r.socketName(r.fds["guest"]))
	if err != nil {
		return err
	}
	s, err := guestclient.Dial(ctx, c, guestclient.Config{Resync: &r.marker})
	if err != nil {
		return err
	}
	defer s.Close()
	exit, err := s.Exec(ctx, guestclient.Command{Argv: []string{"/bin/true"}})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("/bin/true ended with %+v", exit)
	}
	return err
}
