//go:build linux

// Command init is PID 1 of the guests of package vm's tests. It answers lines on the port of the machine. It does
// nothing unless it is PID 1.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: not in a guest")
		os.Exit(1)
	}
	for kind, dir := range map[string]string{"devtmpfs": "/dev", "sysfs": "/sys", "proc": "/proc"} {
		os.Mkdir(dir, 0o755)
		unix.Mount(kind, dir, kind, 0, "")
	}
	port, err := os.OpenFile(findPort(), os.O_RDWR, 0)
	if err != nil {
		fmt.Println(err)
		select {}
	}
	g := guest{port: port}
	for {
		lines := bufio.NewScanner(port)
		for lines.Scan() {
			fmt.Fprintln(port, g.answer(strings.Fields(lines.Text())))
		}
		time.Sleep(time.Millisecond) // the port has no host
	}
}

func findPort() string {
	for {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, name := range names {
			if text, _ := os.ReadFile(name); strings.TrimSpace(string(text)) == "bailey" {
				return "/dev/" + filepath.Base(filepath.Dir(name))
			}
		}
		time.Sleep(time.Millisecond)
	}
}

type guest struct {
	port   *os.File
	pings  int
	memory []byte
}

func (g *guest) answer(words []string) string {
	if len(words) < 2 {
		return "error: too few words"
	}
	switch words[0] {
	case "ping":
		g.pings++
		return fmt.Sprint("pong ", words[1], " ", g.pings)
	case "fill":
		n, _ := strconv.Atoi(words[1])
		g.memory = make([]byte, n<<20)
		for i := range g.memory {
			g.memory[i] = byte(i/4096 + 1)
		}
		return "filled"
	case "sum":
		sum := 0
		for i := 0; i < len(g.memory); i += 4096 {
			sum += int(g.memory[i])
		}
		return fmt.Sprint("sum ", sum)
	case "size":
		text, _ := os.ReadFile("/sys/class/block/vda/size")
		return strings.TrimSpace(string(text))
	case "read", "write":
		return disk(words)
	case "line":
		text, _ := os.ReadFile("/proc/cmdline")
		return strings.TrimSpace(string(text))
	case "end":
		unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	return "error: no such command"
}

// disk reads or writes a text of at most 512 bytes at a block of 4096.
func disk(words []string) string {
	block, _ := strconv.ParseInt(words[1], 10, 64)
	f, err := os.OpenFile("/dev/vda", os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		return "error: " + err.Error()
	}
	defer f.Close()
	text := make([]byte, 512)
	if words[0] == "read" {
		if _, err := f.ReadAt(text, block*4096); err != nil {
			return "error: " + err.Error()
		}
		return "text " + strings.TrimRight(string(text), "\x00")
	}
	copy(text, words[2])
	if _, err := f.WriteAt(text, block*4096); err != nil {
		return "error: " + err.Error()
	}
	return "written"
}
