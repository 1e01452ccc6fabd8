package egress

import (
	_ "embed"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

//go:embed addresses.txt
var addressText string

// addressTable is addresses.txt.
type addressTable struct {
	special  []specialPrefix
	metadata []netip.Prefix // the addresses at which clouds give a machine its credentials
	names    []string       // the names of such addresses
}

type specialPrefix struct {
	netip.Prefix
	class string
}

var addresses = sync.OnceValue(func() (t addressTable) {
	for line := range strings.Lines(addressText) {
		line, _, _ = strings.Cut(line, "#")
		what, class, _ := strings.Cut(strings.TrimSpace(line), " ")
		class = strings.TrimSpace(class)
		switch {
		case what == "":
		case !strings.Contains(what, "/"):
			t.names = append(t.names, what)
		case class == "metadata":
			t.metadata = append(t.metadata, netip.MustParsePrefix(what))
		default:
			t.special = append(t.special, specialPrefix{netip.MustParsePrefix(what), class})
		}
	}
	return t
})

// globalIPv6 is the only part of IPv6 that is allocated to hosts on the Internet. An address outside it is reserved
// even if addresses.txt does not list it.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// addressClass describes an address that is not an ordinary public one. It returns "" for all others. If never is true,
// the address must be refused whatever a profile says.
func addressClass(a netip.Addr) (what string, never bool) {
	a = a.WithZone("").Unmap()
	if slices.ContainsFunc(append(embeddedIPv4(a), a), isMetadata) {
		return "an address of a cloud metadata service", true
	}
	for _, s := range addresses().special {
		if s.Contains(a) {
			return s.class, false
		}
	}
	if a.Is6() && !globalIPv6.Contains(a) || !a.IsValid() {
		return "reserved", false
	}
	return "", false
}

func isMetadata(a netip.Addr) bool {
	return slices.ContainsFunc(addresses().metadata, func(p netip.Prefix) bool { return p.Contains(a) })
}

// embeddedIPv4 returns the IPv4 addresses to which an IPv6 address may lead: RFC 4291 (compatible), 6052 (NAT64), 3056
// (6to4), 4380 (Teredo: the server, and the inverted client address), 5214 (ISATAP).
func embeddedIPv4(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	four := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case b[0] == 0x20 && b[1] == 0x02:
		return []netip.Addr{four(2)}
	case [4]byte(b[:4]) == [4]byte{0x20, 0x01, 0, 0}:
		return []netip.Addr{four(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] == 0, // compatible, translated
		[4]byte(b[:4]) == [4]byte{0, 0x64, 0xff, 0x9b},              // NAT64, both prefixes
		b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return []netip.Addr{four(12)}
	}
	return nil
}

// refuseLocal refuses an address of this machine, or of a network of one of its interfaces, unless the entry is
// private. Such an address can look public, and services there, such as an administrator's page or a neighbour in the
// same rack, often trust callers from the same network.
func (p *Proxy) refuseLocal(t Target, e *entry, a netip.Addr) *Refusal {
	if e.Private {
		return nil
	}
	own, err := p.own()
	if err != nil {
		return deniedRefusal(fmt.Sprintf("egress to %s is not allowed: the addresses of this machine cannot be read (%v)", t, err), privateHint(e))
	}
	a = a.WithZone("").Unmap()
	if slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return deniedRefusal(fmt.Sprintf("egress to %s is not allowed: its address %s belongs to this machine or to a network that it is part of", t, a), privateHint(e))
	}
	return nil
}

// interfaceNetworks returns the networks of the machine's interfaces. Each includes the interface's own address.
func interfaceNetworks() (list []netip.Prefix, err error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			ip, _ := netip.AddrFromSlice(n.IP)
			ones, bits := n.Mask.Size()
			if ip = ip.Unmap(); bits == 128 && ip.Is4() {
				ones -= 96
			}
			list = append(list, netip.PrefixFrom(ip, ones).Masked())
		}
	}
	return list, err
}
