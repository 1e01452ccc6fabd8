package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

// clientHello returns the ClientHello that Go's own client sends.
func clientHello(t testing.TB, name string) []byte {
	near, far := net.Pipe()
	go tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
	defer near.Close()
	_, raw, err := readHello(far)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// body returns the body of a ClientHello; records is the inverse.
func body(raw []byte) []byte { return bytes.Clone(raw[9:]) }

func records(body []byte, size int) []byte {
	message := append([]byte{messageHello, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, recordHandshake, 3, 1, byte(n>>8), byte(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

func withExtension(b []byte, kind uint16, data []byte) []byte {
	at := 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	b = append(b, data...)
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2))
	return b
}

func TestHello(t *testing.T) {
	whole := clientHello(t, "api.example.com")
	if h, _, err := readHello(bytes.NewReader(whole)); err != nil || h.name != "api.example.com" || !h.named || h.hidden {
		t.Errorf("%+v, %v", h, err)
	}
	if h, _, err := readHello(bytes.NewReader(clientHello(t, ""))); err != nil || h.named {
		t.Errorf("without a name: %+v, %v", h, err)
	}
	for _, ext := range []uint16{extECH, extESNI} {
		if h, _, err := readHello(bytes.NewReader(records(withExtension(body(whole), ext, []byte("x")), maxRecord))); err != nil || !h.hidden {
			t.Errorf("extension %#x: %+v, %v", ext, h, err)
		}
	}
}

// TestHelloInPieces checks that a ClientHello means the same however it is split into records and bytes, and that no
// byte after it is read.
func TestHelloInPieces(t *testing.T) {
	b := body(clientHello(t, "api.example.com"))
	for _, size := range []int{1, 2, 3, 4, 5, 7, 100, maxRecord} {
		raw := records(b, size)
		for _, slow := range []bool{false, true} {
			whole := bytes.NewReader(append(bytes.Clone(raw), "after"...))
			var r io.Reader = whole
			if slow {
				r = iotest.OneByteReader(whole)
			}
			h, got, err := readHello(r)
			rest, _ := io.ReadAll(whole)
			if err != nil || h.name != "api.example.com" || !bytes.Equal(got, raw) || string(rest) != "after" {
				t.Errorf("records of %d, slow %v: %+v, %v, %d bytes of %d, %q after", size, slow, h, err, len(got), len(raw), rest)
			}
		}
	}
}

// TestHelloRefused checks that a ClientHello is refused if two parsers could read it differently.
func TestHelloRefused(t *testing.T) {
	whole := clientHello(t, "api.example.com")
	b := body(whole)
	sni := func(list ...byte) []byte { return append([]byte{byte(len(list) >> 8), byte(len(list))}, list...) }
	bare := body(clientHello(t, ""))
	message := func(change func(m []byte)) []byte {
		raw := bytes.Clone(whole)
		change(raw)
		return raw
	}
	for name, raw := range map[string][]byte{
		"two extensions of names":    records(withExtension(bytes.Clone(b), extServerName, sni(0, 0, 1, 'x')), maxRecord),
		"two names":                  records(withExtension(bytes.Clone(bare), extServerName, sni(0, 0, 1, 'x', 0, 0, 1, 'y')), maxRecord),
		"a name of another kind":     records(withExtension(bytes.Clone(bare), extServerName, sni(1, 0, 1, 'x')), maxRecord),
		"an empty name":              records(withExtension(bytes.Clone(bare), extServerName, sni(0, 0, 0)), maxRecord),
		"no list of names":           records(withExtension(bytes.Clone(bare), extServerName, nil), maxRecord),
		"a list that is too long":    records(withExtension(bytes.Clone(bare), extServerName, []byte{0, 9, 0, 0, 1, 'x'}), maxRecord),
		"bytes behind the names":     records(withExtension(bytes.Clone(bare), extServerName, append(sni(0, 0, 1, 'x'), 0)), maxRecord),
		"the same extension twice":   records(withExtension(withExtension(bytes.Clone(b), 0x7777, nil), 0x7777, nil), maxRecord),
		"bytes behind the hello":     records(append(bytes.Clone(b), 0), maxRecord),
		"a second message":           append([]byte{recordHandshake, 3, 1, byte((len(whole) - 4) >> 8), byte(len(whole) - 4)}, append(bytes.Clone(whole[5:]), 1)...),
		"another message":            message(func(m []byte) { m[5] = 2 }),
		"another version of records": message(func(m []byte) { m[1] = 2 }),
		"an empty record":            append([]byte{recordHandshake, 3, 1, 0, 0}, whole...),
		"another record between":     append(records(b, 50)[:55], append([]byte{20, 3, 1, 0, 1, 1}, records(b, 50)[55:]...)...),
		"too long":                   records(append(bytes.Clone(b), make([]byte, maxHello)...), maxRecord),
		"a record that is too long":  message(func(m []byte) { m[3], m[4] = 0x40, 1 }),
		"no ciphers":                 records(append(append(bytes.Clone(b[:34]), 0, 0, 0), 1, 0), maxRecord),
	} {
		if h, _, err := readHello(bytes.NewReader(raw)); !errors.Is(err, errHello) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	for _, plain := range []string{"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n", "\x80\x2e\x01\x03\x01", "\x17\x03\x03\x00\x05hello", "P"} {
		if _, raw, err := readHello(bytes.NewReader([]byte(plain))); !errors.Is(err, errNotTLS) || len(raw) != 1 {
			t.Errorf("%q: %q, %v", plain, raw, err)
		}
	}
	for i := range whole {
		if _, raw, err := readHello(bytes.NewReader(whole[:i])); err == nil || errors.Is(err, errNotTLS) || len(raw) != i {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
}

// FuzzHello checks that crypto/tls reads the same server name as readHello.
func FuzzHello(f *testing.F) {
	whole := clientHello(f, "api.example.com")
	f.Add(whole)
	f.Add(records(body(whole), 3))
	f.Add(records(withExtension(body(whole), extECH, []byte{1, 2, 3}), maxRecord))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, raw, err := readHello(bytes.NewReader(b))
		if !bytes.HasPrefix(b, raw) {
			t.Fatal("what was read is not what came")
		}
		if err != nil {
			return
		}
		if len(raw) > maxHelloRaw+maxRecord+5 {
			t.Fatalf("%d bytes were read", len(raw))
		}
		var theirs *tls.ClientHelloInfo
		far := tls.Server(script{bytes.NewReader(raw)}, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			theirs = i
			return nil, io.EOF
		}})
		far.Handshake()
		if theirs != nil && theirs.ServerName != h.name {
			t.Fatalf("we read %q, crypto/tls %q", h.name, theirs.ServerName)
		}
	})
}

// script is a connection with fixed input. It discards output.
type script struct{ *bytes.Reader }

func (script) Write(b []byte) (int, error) { return len(b), nil }
func (script) Close() error                { return nil }

func (script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (script) SetDeadline(time.Time) error      { return nil }
func (script) SetReadDeadline(time.Time) error  { return nil }
func (script) SetWriteDeadline(time.Time) error { return nil }
