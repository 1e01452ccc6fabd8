package ktest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// startPostgres starts a server in a new directory. It runs as the user postgres if this is root, whom it refuses.
func startPostgres() (dir string, stop func(), err error) {
	if err := Has("account"); err != nil { // initdb asks for the name of its user
		return "", nil, err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // Debian keeps it out of PATH
	if err != nil || len(found) == 0 {
		return "", nil, fmt.Errorf("no /usr/lib/postgresql/*/bin/postgres (%w)", exec.ErrNotFound)
	}
	bin := filepath.Dir(slices.Max(found))
	if dir, err = os.MkdirTemp("", "pg"); err != nil { // short: the path of a socket has at most 107 bytes
		return "", nil, err
	}
	attr, err := ownPostgres(dir)
	if err != nil {
		return "", nil, err
	}
	data := filepath.Join(dir, "data")
	initialise := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "bailey", "-A", "trust", "-E",
		"UTF8", "--locale=C", "--no-sync")
	initialise.SysProcAttr, initialise.Dir = attr, dir
	if out, err := initialise.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	var log bytes.Buffer
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "max_connections=60", "-c", "fsync=off")
	server.SysProcAttr, server.Dir = attr, dir
	server.Stdout, server.Stderr = &log, &log
	if err := startBound(server); err != nil {
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() { server.Wait(); close(ended) }()
	stop = func() {
		server.Process.Signal(syscall.SIGQUIT) // at once: nothing is kept
		<-ended
		os.RemoveAll(dir)
	}
	if err := awaitPostgres(dir, ended); err != nil {
		stop()
		return "", nil, fmt.Errorf("%w: %s", err, log.Bytes())
	}
	return dir, stop, nil
}

// ownPostgres gives the directory to the user of the server.
func ownPostgres(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, int(uid), int(gid))
}

// startBound starts a program that ends with this process, from a thread that lives as long (see PR_SET_PDEATHSIG).
func startBound(c *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- c.Start()
		select {}
	}()
	return <-started
}

// awaitPostgres waits until the server answers.
func awaitPostgres(dir string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := exec.CommandContext(ctx, "psql", "-h", dir, "-U", "bailey", "-c", "SELECT 1", "postgres").Run()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("PostgreSQL has ended")
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// makeDatabase creates a database.
func makeDatabase(dir, name string) error {
	if out, err := exec.Command("psql", "-h", dir, "-U", "bailey", "-c", "CREATE DATABASE "+name,
		"postgres").CombinedOutput(); err != nil {
		return fmt.Errorf("create database %s: %w: %s", name, err, out)
	}
	return nil
}
