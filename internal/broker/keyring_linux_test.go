package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestKeyring reads an item of a real keyring: gnome-keyring, on a bus of its own.
func TestKeyring(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, keyringPrograms()...)
	startKeyring(t)
	k := &keyring{service: "bailey test", account: "gh"}
	read := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		m, err := k.Mint(ctx, time.Minute)
		return string(m.Value), err
	}
	storeItem(t, "other", value)
	if got, err := read(); err == nil || !strings.Contains(err.Error(), "has no item") || bailey.HintOf(err) == "" {
		t.Errorf("another account: %q, %v", got, err)
	}
	storeItem(t, "gh", value)
	if got, err := read(); got != value || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	lockKeyring(t)
	if got, err := read(); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("a locked keyring: %q, %v", got, err)
	}
}

// keyringPrograms are the features that a real keyring needs: the bus refuses users without an account.
func keyringPrograms() []string {
	return []string{"account", "dbus-daemon", "gnome-keyring-daemon", "secret-tool"}
}

// startKeyring starts an unlocked keyring on a bus of its own, or reports false if a program for it is missing.
func startKeyring(t *testing.T) bool {
	t.Helper()
	for _, name := range keyringPrograms() {
		if err := ktest.Has(name); err != nil {
			t.Run("keyring", func(t *testing.T) { ktest.Missing(t, name, err) })
			return false
		}
	}
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, home)
	}
	startProgram(t, "", "dbus-daemon", "--session", "--nofork", "--print-address=1", "--address=unix:path="+filepath.Join(home, "bus"))
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+filepath.Join(home, "bus"))
	startProgram(t, "password", "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	return true
}

// storeItem stores a secret in the keyring.
func storeItem(t *testing.T, account, secret string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		cmd := exec.Command("secret-tool", "store", "--label=test", "service", "bailey test", "account", account)
		cmd.Stdin = strings.NewReader(secret)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, out)
		}
		time.Sleep(20 * time.Millisecond) // until the keyring is on the bus and unlocked
	}
}

// lockKeyring locks the keyring of the session bus.
func lockKeyring(t *testing.T) {
	t.Helper()
	bus, err := dialBus(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	var path, list dbusWriter
	path.putString(secretsPath + "/collection/login")
	list.putUint(uint32(len(path.b)))
	list.putString(secretsPath + "/collection/login")
	if _, err = bus.callMethod("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", "", nil); err == nil {
		_, err = bus.callMethod(secretsName, secretsPath, "org.freedesktop.Secret.Service", "Lock", "ao", list.b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startProgram starts a program with an input and ends it with the test. It waits until the program has written a line, if
// it has no input.
func startProgram(t *testing.T, input, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the tests are killed
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if input == "" {
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestNoKeyring checks the refusals without a session bus.
func TestNoKeyring(t *testing.T) {
	k := &keyring{service: "s", account: "a"}
	for _, address := range []string{"", "tcp:host=x", "unix:path=" + filepath.Join(t.TempDir(), "none")} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		if _, err := k.Mint(t.Context(), time.Minute); !strings.Contains(err.Error(), "session bus") || bailey.HintOf(err) == "" {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// FuzzReadDBus checks that any bytes of a bus are a message or an error, in bounded memory.
func FuzzReadDBus(f *testing.F) {
	f.Add(methodCall(1, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", "", nil))
	f.Add(methodCall(2, "a", "/b", "c", "d", "s", []byte("\x01\x00\x00\x00a\x00")))
	big := methodCall(3, "a", "/b", "c", "d", "", nil)
	binary.LittleEndian.PutUint32(big[4:], 1<<31)
	f.Add(big)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readDBus(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(m.data) > maxDBus || len(m.data) > len(data) {
			t.Errorf("a body of %d bytes", len(m.data))
		}
		for _, read := range []func(*dbusReader){func(r *dbusReader) { r.readTexts() }, (*dbusReader).skipVariantString, func(r *dbusReader) { r.readBytes() }} {
			in := m.bodyReader()
			read(in)
			if in.at > len(in.data) {
				t.Error("it read beyond its end")
			}
		}
	})
}
