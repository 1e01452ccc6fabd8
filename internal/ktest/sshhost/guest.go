//go:build linux

package sshhost

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey/internal/ktest"
)

// StartGuest boots an emulated machine with Debian, systemd and a journal. Its disk is as before at the next start.
func StartGuest(t *testing.T, name string) *Host {
	t.Helper()
	ktest.Require(t, "qemu-system-x86_64", "ssh")
	disk, kernel := ktest.Fetched(t, "systemd-amd64.ext4"), ktest.Fetched(t, "systemd-kernel-amd64")
	dir, err := os.MkdirTemp("/var/tmp", "sshhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &Host{Name: name, dir: dir, guest: true}
	key, err := os.ReadFile(ktest.Fetched(t, "systemd-key"))
	if err != nil {
		t.Fatal(err)
	}
	if h.Person, err = ssh.ParsePrivateKey(key); err != nil {
		t.Fatal(err)
	}
	h.PersonKey = h.writeFile(t, "person", string(key), 0o600)
	line, err := os.ReadFile(ktest.Fetched(t, "systemd-host-key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if h.HostKey, _, _, _, err = ssh.ParseAuthorizedKey(line); err != nil {
		t.Fatal(err)
	}
	h.Port = freePort(t)
	h.bootGuest(t, kernel, disk)
	h.writeClientFiles(t, name)
	h.awaitLogin(t)
	return h
}

// bootGuest starts QEMU. The network of the guest leads only to its port of ssh.
func (h *Host) bootGuest(t *testing.T, kernel, disk string) {
	t.Helper()
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("qemu-system-x86_64", "-machine", "q35", "-cpu", "max", "-accel", "tcg", "-smp", "2",
		"-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", kernel,
		"-drive", "if=none,id=disk,format=raw,snapshot=on,file="+disk, "-device", "nvme,drive=disk,serial=disk",
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:%d-:22",
			h.Port), "-device", "virtio-net-pci,netdev=net",
		"-append", "console=ttyS0 root=/dev/nvme0n1 rw panic=-1 systemd.show_status=0 "+
			"systemd.mask=systemd-tmpfiles-clean.timer") // it changes files while a test watches them
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
}

// awaitLogin waits until sshd accepts a login. Under emulation, the system needs about a minute to start.
func (h *Host) awaitLogin(t *testing.T) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(8 * time.Minute); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, last = h.runSSH(ctx,
			"systemctl is-system-running --wait || true") // sshd starts before the system is complete
		cancel()
		if last == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the guest accepts no login: %v\n%s", last, h.Log(t))
}

// runSSH runs a command as root with the client of OpenSSH. For a moment after a reload, sshd accepts no connection.
func (h *Host) runSSH(ctx context.Context, line string) (string, error) {
	for {
		out, err := exec.CommandContext(ctx, "ssh", "-F", h.Config, "-o", "BatchMode=yes", h.Name,
			line).CombinedOutput()
		switch {
		case err == nil:
			return string(out), nil
		case !strings.HasPrefix(string(out), "kex_exchange_identification") || ctx.Err() != nil:
			return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// freePort returns a port that no process listens on at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
