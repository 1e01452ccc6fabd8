package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// specialPrefixes lists the prefixes that are not ordinary public addresses, from IANA's registries of special-purpose
// addresses. The first prefix that contains an address determines its class.
var specialPrefixes = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"}, // Linux connects 0.0.0.0 to the machine itself
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "reserved"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a relay of 6to4"},
	{netip.MustParsePrefix("198.18.0.0/15"), "reserved"},
	{netip.MustParsePrefix("198.51.100.0/24"), "reserved"},
	{netip.MustParsePrefix("203.0.113.0/24"), "reserved"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an IPv4 address in disguise"},
	{netip.MustParsePrefix("64:ff9b::/96"), "an IPv4 address behind NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address behind NAT64"},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address behind 6to4"},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address behind Teredo"},
	{netip.MustParsePrefix("2001::/23"), "reserved"},
	{netip.MustParsePrefix("2001:db8::/32"), "reserved"},
	{netip.MustParsePrefix("3fff::/20"), "reserved"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// globalIPv6 is the only part of IPv6 that is allocated to hosts on the Internet. An address outside it is reserved even if
// special does not list it.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

// metadataPrefixes lists the addresses at which clouds give a machine its credentials. No profile can allow them.
var metadataPrefixes = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/24"),   // most clouds; .253 and .123 are Amazon's resolver and clock
	netip.MustParsePrefix("169.254.170.0/24"),   // credentials of containers and pods
	netip.MustParsePrefix("169.254.42.42/32"),   // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's wire server: the address looks public
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle, older address
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon over IPv6: metadata, resolver, clock, pods
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google over IPv6
	netip.MustParsePrefix("fe80::a9fe:a9fe/128"),
}

// metadataNames lists names that lead to a metadata service in every network that resolves them.
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
	"metadata.tencentyun.com",
	"metadata.azure.internal", "metadata.platformequinix.com", "metadata.packet.net", "rancher-metadata",
}

// addressClass describes an address that is not an ordinary public one. It returns "" for all others. If never is true, the
// address must be refused whatever a profile says.
func addressClass(a netip.Addr) (what string, never bool) {
	a = a.WithZone("").Unmap()
	if slices.ContainsFunc(append(embeddedIPv4(a), a), isMetadata) {
		return "where a cloud keeps credentials", true
	}
	for _, s := range specialPrefixes {
		if s.prefix.Contains(a) {
			return s.what, false
		}
	}
	if a.Is6() && !globalIPv6.Contains(a) || !a.IsValid() {
		return "reserved", false
	}
	return "", false
}

func isMetadata(a netip.Addr) bool {
	return slices.ContainsFunc(metadataPrefixes, func(p netip.Prefix) bool { return p.Contains(a) })
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

// refuseLocal refuses an address of this machine, or of a network of one of its interfaces, unless the entry is private. Such
// an address can look public, and services there, such as an administrator's page or a neighbour in the same rack,
// often trust callers from the same network.
func (p *Proxy) refuseLocal(t Target, e *entry, a netip.Addr) *Refusal {
	if e.Private {
		return nil
	}
	own, err := p.own()
	if err != nil {
		return deniedRefusal(fmt.Sprintf("egress to %s is not allowed: the addresses of this machine cannot be told (%v)", t, err), "settings.yaml may say private: true for "+e.String()+", under network")
	}
	a = a.WithZone("").Unmap()
	if slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return deniedRefusal(fmt.Sprintf("egress to %s is not allowed: its address %s is this machine's, or of a network that it is part of", t, a), "settings.yaml may say private: true for "+e.String()+", under network")
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
