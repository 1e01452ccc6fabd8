package guestwire

import (
	"encoding/binary"
	"unicode/utf8"
)

// Message is the content of a frame. Fields names its fields to a codec in their order, so that one description serves
// both directions and each message has exactly one written form.
type Message interface{ Fields(*Codec) }

// Codec writes or reads the fields of a message. Numbers are big endian; texts, bytes and lists follow their length.
// After the first error, it reads zero values.
type Codec struct {
	buf     []byte
	reading bool
	err     error
}

// Marshal returns the message's written form after the given bytes.
func Marshal(prefix []byte, m Message) []byte {
	c := &Codec{buf: prefix}
	m.Fields(c)
	return c.buf
}

// Unmarshal reads a message that fills b. Any other content is a violation.
func Unmarshal(b []byte, m Message) error {
	c := &Codec{buf: b, reading: true}
	m.Fields(c)
	if c.err == nil && len(c.buf) > 0 {
		c.err = Violation("%d bytes follow a message", len(c.buf))
	}
	return c.err
}

// takeBytes returns the next n bytes of what is read.
func (c *Codec) takeBytes(n int) []byte {
	if c.err == nil && n > len(c.buf) {
		c.err = Violation("a field claims %d bytes, and the message has %d more", n, len(c.buf))
	}
	if c.err != nil {
		return make([]byte, min(n, 8))
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

// Uint32 is a field.
func (c *Codec) Uint32(v *uint32) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint32(c.buf, *v)
		return
	}
	*v = binary.BigEndian.Uint32(c.takeBytes(4))
}

// Int64 is a field.
func (c *Codec) Int64(v *int64) {
	if !c.reading {
		c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(*v))
		return
	}
	*v = int64(binary.BigEndian.Uint64(c.takeBytes(8)))
}

// Byte is a field.
func (c *Codec) Byte(v *byte) {
	if !c.reading {
		c.buf = append(c.buf, *v)
		return
	}
	*v = c.takeBytes(1)[0]
}

// Bool is a field of one byte, 0 or 1.
func (c *Codec) Bool(v *bool) {
	var b byte
	if *v {
		b = 1
	}
	c.Byte(&b)
	if c.reading {
		if *v = b == 1; b > 1 && c.err == nil {
			c.err = Violation("a truth value is %d", b)
		}
	}
}

// Bytes is a field. A field without bytes is read as nil.
func (c *Codec) Bytes(v *[]byte) {
	n := uint32(len(*v))
	c.Uint32(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = nil
	if b := c.takeBytes(int(min(n, 1<<30))); n > 0 && c.err == nil {
		*v = append([]byte(nil), b...)
	}
}

// Marker is a field of fixed size.
func (c *Codec) Marker(v *[MarkerSize]byte) {
	if !c.reading {
		c.buf = append(c.buf, v[:]...)
		return
	}
	copy(v[:], c.takeBytes(MarkerSize))
}

// Text is a field in UTF-8. Names of files and arguments may be any bytes, so they are fields of type Raw.
func (c *Codec) Text(v *string) {
	c.Raw(v)
	if c.reading && c.err == nil && !utf8.ValidString(*v) {
		c.err = Violation("a text is not UTF-8")
	}
}

// Raw is a field of bytes as a string.
func (c *Codec) Raw(v *string) {
	n := uint32(len(*v))
	c.Uint32(&n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = ""
	if b := c.takeBytes(int(min(n, 1<<30))); n > 0 && c.err == nil {
		*v = string(b)
	}
}

// Raws is a list of fields.
func (c *Codec) Raws(v *[]string) { List(c, v, (*Codec).Raw) }

// List is a list of fields, each of which has at least one byte: the loop ends with the bytes, whatever length was
// claimed.
func List[T any](c *Codec, v *[]T, field func(*Codec, *T)) {
	n := uint32(len(*v))
	c.Uint32(&n)
	if !c.reading {
		for i := range *v {
			field(c, &(*v)[i])
		}
		return
	}
	*v = nil
	for range n {
		var one T
		if len(c.buf) == 0 && c.err == nil {
			c.err = Violation("a list claims %d entries, and has %d", n, len(*v))
		}
		if c.err != nil {
			return
		}
		field(c, &one)
		*v = append(*v, one)
	}
}
