package egress

import (
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"time"
)

// SOCKS5, RFC 1928: no authentication, only CONNECT. Its refusals are only numbers; the event has the text.
const (
	socksVersion     = 5
	socksConnect     = 1
	socksFailed      = 1
	socksDenied      = 2
	socksUnreachable = 4
	socksNoCommand   = 7
	socksNoAddress   = 8
	socksNoMethod    = 0xff
)

// serveSOCKS continues after the version byte. It reads no byte beyond a request.
func (c *client) serveSOCKS() {
	if !c.socksGreet() {
		return
	}
	t, ref := c.socksRequest()
	if ref == nil && !t.addr.IsValid() && t.name == "" {
		return // the client closed the connection, or was too slow
	}
	if ref != nil {
		c.life.p.record.recordRefusal("socks", "", ref)
	}
	g, out, ref := c.connectTarget("socks", t, ref)
	defer g.release(out)
	if ref != nil {
		c.sendLast(socksReply(ref.reply))
		return
	}
	if _, err := io.WriteString(c.Conn, socksReply(0)); err == nil {
		c.checkAndPipe(g, out)
	}
}

// socksReply returns a reply without a bound address, because the client does not need one.
func socksReply(code byte) string { return string([]byte{socksVersion, code, 0, 1, 0, 0, 0, 0, 0, 0}) }

func (c *client) socksGreet() bool {
	methods, ok := c.readExactly(1)
	if !ok {
		return false
	}
	offered, ok := c.readExactly(int(methods[0]))
	if !ok {
		return false
	}
	if !slices.Contains(offered, 0) {
		c.sendLast(string([]byte{socksVersion, socksNoMethod}))
		return false
	}
	_, err := c.Conn.Write([]byte{socksVersion, 0})
	return err == nil
}

// socksRequest returns the requested target. If the client is gone, it returns neither a target nor a refusal.
func (c *client) socksRequest() (t Target, ref *Refusal) {
	head, ok := c.readExactly(4)
	if !ok {
		return t, nil
	}
	if head[0] != socksVersion || head[2] != 0 {
		return t, socksFault("this is not SOCKS5", socksFailed)
	}
	size := 0
	switch head[3] {
	case 1:
		size = 4
	case 4:
		size = 16
	case 3:
		n, ok := c.readExactly(1)
		if !ok {
			return t, nil
		}
		size = int(n[0])
	default:
		return t, socksFault("this SOCKS5 address type is unknown", socksNoAddress)
	}
	rest, ok := c.readExactly(size + 2)
	if !ok {
		return t, nil
	}
	if head[1] != socksConnect {
		return t, socksFault("only SOCKS5 CONNECT is supported: a jail cannot listen, and datagrams (QUIC, DNS) do not pass", socksNoCommand)
	}
	host, port := string(rest[:size]), binary.BigEndian.Uint16(rest[size:])
	if head[3] != 3 {
		addr, _ := netip.AddrFromSlice(rest[:size])
		host = addr.String()
	}
	if port == 0 {
		return t, malformedRefusal(host, "0 is not a port")
	}
	return targetOf(host, port)
}

// readExactly reads n bytes. The deadline that was set before the first read applies to all of them.
func (c *client) readExactly(n int) ([]byte, bool) {
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, err == nil
}

func socksFault(why string, reply byte) *Refusal {
	return &Refusal{why: "egress is not allowed: " + why, hint: "use SOCKS5 CONNECT or HTTP CONNECT host:port",
		reply: reply, kind: KindRefused}
}

// setRequestDeadline sets the deadline for the next message of the client.
func (c *client) setRequestDeadline() { c.SetReadDeadline(time.Now().Add(c.life.p.limits.Request)) }
