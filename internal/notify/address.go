package notify

import (
	"net/netip"
	"slices"

	"bailey"
)

// metadataAddrs returns the addresses of cloud services that give credentials to any process on this machine, except those
// with link-local addresses: Amazon's and Google's over IPv6, Alibaba's, Azure's, Oracle's.
func metadataAddrs() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	}
}

// checkAddress returns why nothing is sent to an address. If near is true, the address must be one of this machine.
func checkAddress(address netip.Addr, near bool) error {
	a := embeddedIPv4(address.Unmap().WithZone(""))
	what := ""
	switch {
	case !a.IsValid() || a.IsUnspecified():
		what = "no address of a machine"
	case near && !a.IsLoopback():
		what = "not of this machine, and http goes no further"
	case a.IsLinkLocalUnicast() || slices.Contains(metadataAddrs(), a):
		what = "of the link, or of a cloud's metadata service"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		what = "of a group of machines"
	}
	if what == "" {
		return nil
	}
	return bailey.Denied.Errorf("name another url in settings.yaml, then bailey init --apply",
		"the webhook's address %s is %s", address, what)
}

// embeddedIPv4 returns the IPv4 address to which an IPv6 address leads: by NAT64 (RFC 6052), by 6to4 (RFC 3056), or in
// compatible form (RFC 4291, section 2.5.5.1).
func embeddedIPv4(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case a.Is4():
		return a
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a) &&
		!a.IsLoopback() && !a.IsUnspecified():
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}
