package broker

import (
	"encoding/binary"
	"errors"
	"io"
)

// The part of the D-Bus protocol that a client of the Secret Service needs
// (https://dbus.freedesktop.org/doc/dbus-specification.html, "Message Protocol").

// Kinds of messages.
const (
	dbusCall   = 1
	dbusReturn = 2
	dbusError  = 3
)

// maxDBus limits the body of a message and its header fields in bytes.
const maxDBus = 2 * MaxValue

var errDBus = errors.New("a message of the bus is malformed")

// dbusWriter encodes in little endian.
type dbusWriter struct{ b []byte }

func (w *dbusWriter) padTo(n int) {
	for len(w.b)%n != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *dbusWriter) putUint(v uint32) {
	w.padTo(4)
	w.b = binary.LittleEndian.AppendUint32(w.b, v)
}

// putString writes a string or an object path.
func (w *dbusWriter) putString(s string) {
	w.putUint(uint32(len(s)))
	w.b = append(append(w.b, s...), 0)
}

func (w *dbusWriter) putSignature(s string) {
	w.b = append(append(append(w.b, byte(len(s))), s...), 0)
}

// putVariant writes a variant that contains a string.
func (w *dbusWriter) putVariant(s string) {
	w.putSignature("s")
	w.putString(s)
}

// putPairs writes a{ss}.
func (w *dbusWriter) putPairs(pairs [][2]string) {
	w.putUint(0)
	at := len(w.b)
	w.padTo(8)
	begin := len(w.b)
	for _, p := range pairs {
		w.padTo(8)
		w.putString(p[0])
		w.putString(p[1])
	}
	binary.LittleEndian.PutUint32(w.b[at-4:], uint32(len(w.b)-begin))
}

// methodCall returns a message that calls a method.
func methodCall(serial uint32, to, path, iface, member, signature string, body []byte) []byte {
	w := &dbusWriter{b: []byte{'l', dbusCall, 0, 1}}
	w.putUint(uint32(len(body)))
	w.putUint(serial)
	w.putUint(0)
	begin := len(w.b)
	for _, f := range []struct {
		code  byte
		kind  string
		value string
	}{{1, "o", path}, {6, "s", to}, {2, "s", iface}, {3, "s", member}} {
		w.padTo(8)
		w.b = append(w.b, f.code)
		w.putSignature(f.kind)
		w.putString(f.value)
	}
	if signature != "" {
		w.padTo(8)
		w.b = append(w.b, 8)
		w.putSignature("g")
		w.putSignature(signature)
	}
	binary.LittleEndian.PutUint32(w.b[begin-4:], uint32(len(w.b)-begin))
	w.padTo(8)
	return append(w.b, body...)
}

// dbusMessage is a message from the bus.
type dbusMessage struct {
	kind      byte
	reply     uint32 // serial of the call that it answers
	errorName string
	order     binary.ByteOrder
	data      []byte // body
}

func (m dbusMessage) bodyReader() *dbusReader { return &dbusReader{order: m.order, data: m.data} }

// readDBus reads one message.
func readDBus(r io.Reader) (m dbusMessage, err error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return m, err
	}
	switch head[0] {
	case 'l':
		m.order = binary.LittleEndian
	case 'B':
		m.order = binary.BigEndian
	default:
		return m, errDBus
	}
	body, fields := m.order.Uint32(head[4:]), m.order.Uint32(head[12:])
	if head[3] != 1 || body > maxDBus || fields > maxDBus {
		return m, errDBus
	}
	m.kind = head[1]
	rest := make([]byte, int(fields+7)&^7)
	if _, err := io.ReadFull(r, rest); err != nil {
		return m, err
	}
	in := &dbusReader{order: m.order, data: rest[:fields]}
	for in.err == nil && in.at < len(in.data) {
		in.alignTo(8)
		m.readField(in)
	}
	if in.err != nil {
		return m, in.err
	}
	m.data = make([]byte, body)
	_, err = io.ReadFull(r, m.data)
	return m, err
}

// readField reads a field of the header: a code, and a variant of a simple type.
func (m *dbusMessage) readField(in *dbusReader) {
	code := in.readOctet()
	switch in.readSignature() {
	case "u":
		if v := in.readUint(); code == 5 {
			m.reply = v
		}
	case "s", "o":
		if v := in.readText(); code == 4 {
			m.errorName = v
		}
	case "g":
		in.readSignature()
	default:
		in.err = errDBus
	}
}

// dbusReader decodes a part of a message. After an error it returns zero values.
type dbusReader struct {
	order binary.ByteOrder
	data  []byte
	at    int
	err   error
}

func (r *dbusReader) takeBytes(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.data)-r.at {
		r.err = errDBus
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *dbusReader) alignTo(n int) { r.takeBytes((n - r.at%n) % n) }

func (r *dbusReader) readOctet() byte {
	if b := r.takeBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *dbusReader) readUint() uint32 {
	r.alignTo(4)
	if b := r.takeBytes(4); b != nil {
		return r.order.Uint32(b)
	}
	return 0
}

func (r *dbusReader) readLength() int {
	n := r.readUint()
	if n > maxDBus {
		r.err = errDBus
		return 0
	}
	return int(n)
}

func (r *dbusReader) readText() string {
	b := r.takeBytes(r.readLength())
	r.takeBytes(1)
	return string(b)
}

func (r *dbusReader) readBytes() []byte { return r.takeBytes(r.readLength()) }

func (r *dbusReader) readSignature() string {
	b := r.takeBytes(int(r.readOctet()))
	r.takeBytes(1)
	return string(b)
}

// skipVariantString reads a variant that contains a string.
func (r *dbusReader) skipVariantString() {
	if r.readSignature() != "s" {
		r.err = errDBus
	}
	r.readText()
}

// texts reads an array of strings or object paths.
func (r *dbusReader) readTexts() (list []string) {
	end := r.readLength()
	end += r.at
	for r.err == nil && r.at < end {
		list = append(list, r.readText())
	}
	if r.at != end {
		r.err = errDBus
	}
	return list
}
