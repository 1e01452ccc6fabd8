package broker

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"bailey/internal/peer"
)

// secretService is a connection to the session bus, as a client of the Secret Service
// (https://specifications.freedesktop.org/secret-service/latest/). The value passes unencrypted over a Unix socket to a
// process of the same user, which the kernel identifies.
type secretService struct {
	*peer.Conn
	serial uint32
}

const (
	secretsName = "org.freedesktop.secrets"
	secretsPath = "/org/freedesktop/secrets"
)

// readItem asks the Secret Service for the only unlocked item with the attributes.
func (k *keyring) readItem(ctx context.Context) ([]byte, error) {
	bus, err := dialBus(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		return nil, err
	}
	defer bus.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := bus.SetDeadline(end); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { bus.SetDeadline(time.Now()) })
	defer stop()
	if _, err := bus.callMethod("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", "", nil); err != nil {
		return nil, err
	}
	var open dbusWriter
	open.putString("plain")
	open.putVariant("")
	body, err := bus.callMethod(secretsName, secretsPath, "org.freedesktop.Secret.Service", "OpenSession", "sv", open.b)
	if err != nil {
		return nil, err
	}
	in := body.bodyReader()
	in.skipVariantString()
	session := in.readText()
	var search dbusWriter
	search.putPairs([][2]string{{"service", k.service}, {"account", k.account}})
	body, err = bus.callMethod(secretsName, secretsPath, "org.freedesktop.Secret.Service", "SearchItems", "a{ss}", search.b)
	if err != nil {
		return nil, err
	}
	items := body.bodyReader()
	unlocked, locked := items.readTexts(), items.readTexts()
	switch {
	case in.err != nil || items.err != nil:
		return nil, busError(in.err)
	case len(unlocked) > 1:
		return nil, unavailableError(nil, "remove the others, or use other attributes", "the keyring has %d items with service %q and account %q", len(unlocked), k.service, k.account)
	case len(unlocked) == 0 && len(locked) > 0:
		return nil, unavailableError(nil, "unlock it: log in on the desktop, or open it with its own program", "the keyring is locked")
	case len(unlocked) == 0:
		return nil, k.missingItem()
	}
	return bus.getSecret(unlocked[0], session)
}

func (c *secretService) getSecret(item, session string) ([]byte, error) {
	var ask dbusWriter
	ask.putString(session)
	body, err := c.callMethod(secretsName, item, "org.freedesktop.Secret.Item", "GetSecret", "o", ask.b)
	if err != nil {
		return nil, err
	}
	defer clear(body.data)
	in := body.bodyReader()
	in.alignTo(8)
	in.readText()
	in.readBytes() // parameters, which the method plain does not have
	value := bytes.Clone(in.readBytes())
	if in.err != nil || len(value) > MaxValue {
		clear(value)
		return nil, busError(in.err)
	}
	return value, nil
}

func busError(err error) error {
	return unavailableError(err, "check the session bus of this user", "the Secret Service gave no answer that can be used")
}

// dialBus connects to the first usable address of a list (D-Bus specification, "Server Addresses") and authenticates.
func dialBus(addresses string) (*secretService, error) {
	var path string
	for address := range strings.SplitSeq(addresses, ";") {
		for part := range strings.SplitSeq(strings.TrimPrefix(address, "unix:"), ",") {
			if p, ok := strings.CutPrefix(part, "path="); ok {
				path = p
			} else if p, ok := strings.CutPrefix(part, "abstract="); ok {
				path = "@" + p
			}
		}
		if path != "" {
			break
		}
	}
	if path == "" {
		return nil, unavailableError(nil, "start the broker in the session of its user, so that DBUS_SESSION_BUS_ADDRESS is set",
			"there is no session bus")
	}
	conn, err := peer.DialUID(path, os.Geteuid())
	if err != nil {
		return nil, unavailableError(err, "start the broker in the session of its user", "the session bus does not answer")
	}
	c := &secretService{Conn: conn}
	if err := c.authenticateUser(); err != nil {
		conn.Close()
		return nil, busError(err)
	}
	return c, nil
}

// authenticateUser says who we are; the bus asks the kernel whether that is so (mechanism EXTERNAL).
func (c *secretService) authenticateUser() error {
	if err := c.SetDeadline(time.Now().Add(issuerTimeout)); err != nil {
		return err
	}
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := c.Write([]byte("\x00AUTH EXTERNAL " + uid + "\r\n")); err != nil {
		return err
	}
	var line []byte
	for one := make([]byte, 1); !bytes.HasSuffix(line, []byte("\r\n")); {
		if _, err := io.ReadFull(c, one); err != nil {
			return err
		}
		if line = append(line, one[0]); len(line) > maxWord {
			return errDBus
		}
	}
	if !bytes.HasPrefix(line, []byte("OK ")) {
		return errDBus
	}
	_, err := c.Write([]byte("BEGIN\r\n"))
	return err
}

// call sends a method call and waits for its answer.
func (c *secretService) callMethod(to, path, iface, member, signature string, body []byte) (m dbusMessage, err error) {
	c.serial++
	if _, err := c.Write(methodCall(c.serial, to, path, iface, member, signature, body)); err != nil {
		return m, busError(err)
	}
	for range 64 { // signals come in between
		if m, err = readDBus(c); err != nil {
			return m, busError(err)
		}
		switch {
		case m.reply != c.serial:
		case m.kind == dbusError:
			return m, unavailableError(nil, "check that a Secret Service runs for this user, for example gnome-keyring",
				"the keyring refused %s: %.100q", member, m.errorName)
		case m.kind == dbusReturn:
			return m, nil
		}
	}
	return m, busError(errDBus)
}
