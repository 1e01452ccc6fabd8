package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

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
