package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// asFull and asSlow make a process of this test the other process of TestDiskFull and of TestMakerKilled.
const asFull, asSlow = "BAILEY_IMAGE_FULL", "BAILEY_IMAGE_SLOW"

// otherProcess reports whether this process is one of another test, after it has done its work.
func otherProcess() (other bool, err error) {
	if dir := os.Getenv(asFull); dir != "" {
		return true, fillStore(dir)
	}
	if dir := os.Getenv(asSlow); dir != "" {
		s, err := Open(filepath.Join(dir, "images"))
		if err == nil {
			_, err = s.AddMinimal(context.Background(), MinimalConfig{Name: "one", Arch: "amd64", Agent: filepath.Join(dir, "agent"),
				Kernel: filepath.Join(dir, "agent"), Record: func(Image) error { select {} }})
		}
		return true, err
	}
	return false, nil
}

// fillStore adds an image to a store on a small file system, of every size until it fits.
func fillStore(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	full := 0
	for size := 8; size < 400; size += 12 {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk,mode=0700", size)); err != nil {
			return err
		}
		kernel := filepath.Join(os.Getenv(asFull+"_FROM"), "kernel")
		s, err := Open(dir)
		if err == nil {
			_, err = s.AddMinimal(context.Background(), MinimalConfig{Name: "one", Arch: "amd64", Agent: kernel, Kernel: kernel})
		}
		if err == nil {
			if full < 5 {
				return fmt.Errorf("it fits at %d KiB, after %d sizes", size, full)
			}
			_, err := s.Get("one")
			return err
		}
		full++
		if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "the disk is full") || bailey.HintOf(err) == "" {
			return fmt.Errorf("%d KiB: %w", size, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != storeLock {
			return fmt.Errorf("%d KiB: %v remain, %v", size, entries, err)
		}
		if err := unix.Unmount(dir, 0); err != nil {
			return err
		}
	}
	return errors.New("the image never fits")
}

// TestDiskFull checks that an image for which there is no room, at every step, is a clear error and leaves nothing.
func TestDiskFull(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns")
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "kernel"), make([]byte, 60<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), asFull+"="+t.TempDir(), asFull+"_FROM="+from)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMakerKilled kills the process that makes an image, when everything but its name is written. The next one finds nothing.
func TestMakerKilled(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	images := filepath.Join(dir, "images")
	if err := os.WriteFile(filepath.Join(dir, "agent"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), asSlow+"="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(images, newPrefix+"*", recordFile)); len(found) == 1 {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("the other process does nothing")
		}
	}
	openStore(t, images) // which leaves what is being made
	if found, _ := filepath.Glob(filepath.Join(images, newPrefix+"*")); len(found) != 1 {
		t.Errorf("%q", found)
	}
	cmd.Process.Kill()
	cmd.Wait()
	openStore(t, images)
	expectNames(t, images, storeLock)
}
