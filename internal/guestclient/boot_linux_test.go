package guestclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/guestwire"
	"bailey/internal/initramfs"
	"bailey/internal/ktest"
)

// emulator is QEMU with an emulated processor, whose guest has the agent as pid 1.
var emulator = []string{"qemu-system-x86_64", "-M", "microvm,pit=on,pic=on,acpi=on,rtc=on,isa-serial=on,x-option-roms=off",
	"-accel", "tcg", "-cpu", "max", "-m", "128", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"}

// buildAgent builds the program as it is shipped.
func buildAgent(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bailey-guest")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "bailey/cmd/bailey-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// clockRate returns words of the kernel's command line that save its calibration of an emulated clock.
func clockRate() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`cpu MHz\s*: ([0-9.]+)`).FindSubmatch(text); m != nil {
		if mhz, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
			return fmt.Sprintf("tsc_early_khz=%d tsc=reliable", int(mhz*1000))
		}
	}
	return ""
}

// bootGuest boots a guest and returns the host's end of its port, and a channel that is closed when QEMU has ended.
func bootGuest(t *testing.T, line string, more ...string) (net.Conn, <-chan struct{}) {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, emulator[0])
	kernel := ktest.Fetched(t, "linux-7.1-amd64")
	first := filepath.Join(t.TempDir(), "initramfs")
	f, err := os.Create(first)
	if err == nil {
		err = errors.Join(initramfs.Write(f, initramfs.Content{Agent: buildAgent(t)}), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	port := filepath.Join(filepath.Dir(first), "port")
	argv := append(emulator[1:len(emulator):len(emulator)], "-kernel", kernel, "-initrd", first,
		"-append", "console=ttyS0 loglevel=4 panic=-1 reboot=t bailey.port="+guestwire.Port+" "+clockRate()+" "+line,
		"-device", "virtio-serial-device", "-chardev", "socket,id=c,server=on,wait=off,path="+port, "-device", "virtserialport,chardev=c,name="+guestwire.Port)
	cmd := exec.Command(emulator[0], append(argv, more...)...)
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("its console:\n%s", console.String())
		}
	})
	var conn net.Conn
	eventually(t, "QEMU listens", func() bool { conn, err = net.Dial("unix", port); return err == nil })
	return conn, ended
}

// TestGuestBoots boots the agent as pid 1 of a real kernel, renews it as a clone, runs commands, and ends the machine.
func TestGuestBoots(t *testing.T) {
	conn, ended := bootGuest(t, "", "-netdev", "user,id=n,restrict=on", "-device", "virtio-net-device,netdev=n,mac=52:54:00:00:00:01")
	s := dialAgent(t, conn, Config{MustRenew: true, HelloTime: patience, OpTime: patience})
	if !s.welcome.Init || s.Arch() != "amd64" {
		t.Errorf("%+v", s.welcome)
	}
	before, err := s.Identity(t.Context())
	if err != nil || before.Renewed || len(before.Network) != 1 || before.Network[0].MAC != "52:54:00:00:00:01" {
		t.Fatalf("%+v, %v", before, err)
	}
	self := Command{Argv: []string{"/proc/self/exe", "--no-such-flag"}}
	if _, err := s.Exec(t.Context(), self); !errors.Is(err, bailey.Conflict) {
		t.Error("before the renewal:", err)
	}
	if _, err := s.Renew(t.Context(), guestwire.Renewal{Hostname: "web1"}); err == nil || !strings.Contains(err.Error(), before.Network[0].Name) {
		t.Error("an interface kept its address:", err)
	}
	clock := time.Now().Add(-100 * 24 * time.Hour)
	name := before.Network[0].Name
	id, err := s.Renew(t.Context(), guestwire.Renewal{Hostname: "web1", Clock: clock.UnixNano(), Network: []guestwire.Interface{
		{Name: name, MAC: "52:54:00:00:00:02", Prefix: []string{"192.0.2.7/24", "2001:db8::7/64"}, Gateway: "192.0.2.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Unix(0, id.Clock).Sub(clock); off < 0 || off > patience || id.Hostname != "web1" || len(id.MachineID) != 32 {
		t.Errorf("%v, %+v", off, id)
	}
	if got := id.Network[0]; got.MAC != "52:54:00:00:00:02" || len(got.Prefix) < 2 || got.Prefix[0] != "192.0.2.7/24" {
		t.Errorf("%+v", got)
	}
	var log bytes.Buffer
	self.Stderr = &log
	if exit, err := s.Exec(t.Context(), self); err != nil || exit.Code != 1 || !strings.Contains(log.String(), "no-such-flag") {
		t.Errorf("%+v, %v, %s", exit, err, log.String())
	}
	measureGuest(t, s)
	if _, err := s.Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.PowerOff(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the machine did not end")
	}
}

// TestGuestRoot boots a guest with a root on a disk and an init of its own: the agent is its service.
func TestGuestRoot(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "mkfs.ext4")
	tree, disk := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	tool, err := os.ReadFile(ktest.Fetched(t, "busybox-amd64"))
	for name, text := range map[string]string{"bin/busybox": string(tool), "sbin/init": "#!/bin/busybox sh\nwhile :; do /bin/busybox sleep 1000; done\n"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(tree, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(tree, name), []byte(text), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-d", tree, disk, "16M").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	conn, _ := bootGuest(t, "bailey.root=/dev/vda bailey.fstype=ext4 bailey.init=/sbin/init",
		"-drive", "if=none,id=d,format=raw,file="+disk, "-device", "virtio-blk-device,drive=d")
	s := dialAgent(t, conn, Config{HelloTime: patience, OpTime: patience})
	if s.welcome.Init {
		t.Error("the agent is pid 1")
	}
	for _, c := range []struct{ line, want string }{
		{"cat /proc/1/comm", "init\n"}, {"ls /", "bin\ndev\nlost+found\nproc\nsbin\nsys\n"}, {"cat /proc/self/mounts", "\n/dev/vda / ext4 rw"},
	} {
		argv := append([]string{"/bin/busybox"}, strings.Fields(c.line)...)
		if out, log, _ := run(t, s, Command{Argv: argv}); !strings.Contains(out, c.want) {
			t.Errorf("%s: %q %q", c.line, out, log)
		}
	}
	job, err := s.Start(t.Context(), Command{Argv: []string{"/bin/busybox", "sleep", "10000"}})
	if err != nil {
		t.Error(err)
	}
	s.Close() // another host comes, for example because the first one was killed
	again, err := net.Dial("unix", conn.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	s = dialAgent(t, again, Config{HelloTime: patience, OpTime: patience})
	if _, state, err := s.Output(t.Context(), job, 0); err != nil || !state.Running {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := s.WriteFile(t.Context(), "/new", []byte("kept"), NewFile{}); err != nil {
		t.Error(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if image, err := os.ReadFile(disk); err != nil || !bytes.Contains(image, []byte("kept")) {
		t.Error("a file is not on the disk after Sync", err)
	}
}

// monitor sends commands to QEMU's monitor at a socket and returns the answer to the last one.
func monitor(t *testing.T, socket string, commands ...string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	in, answer := bufio.NewScanner(conn), ""
	in.Scan() // its greeting
	for _, c := range append([]string{`{"execute":"qmp_capabilities"}`}, commands...) {
		io.WriteString(conn, c+"\n")
		for answer = ""; !strings.Contains(answer, `"return"`) && !strings.Contains(answer, `"error"`); answer = in.Text() {
			if !in.Scan() {
				t.Fatalf("%s: %v", c, in.Err())
			}
		}
	}
	return answer
}

// TestGuestResumes resumes a clone from the memory of a guest whose host was in the middle of a command. The clone serves
// another host, renews itself first, and has other random numbers than the guest that goes on.
func TestGuestResumes(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	socket, memory := filepath.Join(dir, "qmp"), filepath.Join(dir, "memory")
	conn, _ := bootGuest(t, "", "-qmp", "unix:"+socket+",server=on,wait=off")
	s := dialAgent(t, conn, Config{HelloTime: patience, OpTime: patience})
	tool, err := os.ReadFile(ktest.Fetched(t, "busybox-amd64"))
	if err == nil {
		_, err = s.WriteFile(t.Context(), "/busybox", tool, NewFile{Mode: 0o755})
	}
	if err != nil {
		t.Fatal(err)
	}
	busybox := func(args ...string) Command { return Command{Argv: append([]string{"/busybox"}, args...)} }
	r, w := io.Pipe()
	defer r.Close()
	endless := busybox("yes")
	endless.Stdout = w // which is read once, so that the command waits for credit
	go s.Exec(t.Context(), endless)
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	id, err := s.Start(t.Context(), busybox("sleep", "10000"))
	if err != nil {
		t.Fatal(err)
	}
	marker, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	monitor(t, socket, fmt.Sprintf(`{"execute":"migrate","arguments":{"uri":"exec:cat > %s"}}`, memory))
	eventually(t, "the memory is written", func() bool {
		return strings.Contains(monitor(t, socket, `{"execute":"query-migrate"}`), `"completed"`)
	})
	copied, _ := bootGuest(t, "", "-qmp", "unix:"+socket+"2,server=on,wait=off", "-incoming", "exec:cat "+memory)
	clone := dialAgent(t, copied, Config{MustRenew: true, Resync: &marker, HelloTime: patience, OpTime: patience})
	random := busybox("head", "-c", "16", "/dev/urandom")
	if _, err := clone.Exec(t.Context(), random); !errors.Is(err, bailey.Conflict) {
		t.Error("before its renewal:", err)
	}
	if _, err := clone.Renew(t.Context(), guestwire.Renewal{Hostname: "clone1"}); err != nil {
		t.Fatal(err)
	}
	theirs, _, _ := run(t, clone, random)
	if out, _, _ := run(t, clone, busybox("ps", "-o", "args")); strings.Contains(out, "busybox yes") || !strings.Contains(out, "sleep 10000") {
		t.Errorf("its processes:\n%s", out)
	}
	if job, err := clone.Kill(t.Context(), id, 9); err != nil || job.Exit.Signal != 9 {
		t.Errorf("%+v, %v", job, err)
	}
	monitor(t, socket, `{"execute":"cont"}`)
	if ours, _, _ := run(t, s, random); len(ours) != 16 || len(theirs) != 16 || ours == theirs {
		t.Errorf("random numbers: %x, %x", ours, theirs)
	}
}

// measureGuest logs how long operations take, and how long the same program takes without the agent.
func measureGuest(t *testing.T, s *Session) {
	t.Helper()
	const program = "/tmp/busybox"
	tool, err := os.ReadFile(ktest.Fetched(t, "busybox-amd64"))
	if err == nil {
		_, err = s.WriteFile(t.Context(), program, tool, NewFile{Mode: 0o755})
	}
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	loop := "i=0; while [ $i -lt 10 ]; do " + program + " true; i=$((i+1)); done"
	for _, c := range []struct {
		name  string
		times int
		do    func() error
	}{
		{"a message", 1, func() error { _, err := s.Stat(t.Context(), "/"); return err }},
		{"a command", 1, func() error { _, err := s.Exec(t.Context(), Command{Argv: []string{program, "true"}}); return err }},
		{"a command without the agent", 10, func() error {
			_, err := s.Exec(t.Context(), Command{Argv: []string{program, "sh", "-c", loop}})
			return err
		}},
		{"a megabyte written", 1, func() error { _, err := s.WriteFile(t.Context(), "/tmp/f", data, NewFile{}); return err }},
		{"a megabyte read", 1, func() error {
			got, err := s.ReadFile(t.Context(), "/tmp/f", 0)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("it is another content")
			}
			return err
		}},
	} {
		var took []time.Duration
		for range 5 {
			begin := time.Now()
			if err := c.do(); err != nil {
				t.Fatal(c.name, err)
			}
			took = append(took, time.Since(begin)/time.Duration(c.times))
		}
		slices.Sort(took)
		t.Logf("%s: at best %v, median %v", c.name, took[0], took[len(took)/2])
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := s.Exec(t.Context(), Command{Argv: []string{program, "true"}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
