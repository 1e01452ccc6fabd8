package guestagent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"bailey/internal/guestwire"
)

const maxAddresses = 8 // of an interface

// renewNetwork gives each interface its new addresses. If all is set, no interface with a device may keep its own.
func renewNetwork(list []guestwire.Interface, all bool) error {
	if all {
		known, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range known {
			_, err := os.Stat("/sys/class/net/" + i.Name + "/device") // others are not connected to anything outside
			named := slices.ContainsFunc(list, func(n guestwire.Interface) bool { return n.Name == i.Name && n.MAC != "" })
			if err == nil && !named {
				return fmt.Errorf("the interface %s would keep its address %s", i.Name, i.HardwareAddr)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for _, i := range list {
		if err := renewInterface(&route{socket: s}, i); err != nil {
			return fmt.Errorf("%s: %w", i.Name, err)
		}
	}
	return nil
}

func renewInterface(r *route, m guestwire.Interface) error {
	i, err := net.InterfaceByName(m.Name)
	if err != nil {
		return err
	}
	if len(m.Prefix) > maxAddresses {
		return fmt.Errorf("it has more than %d addresses", maxAddresses)
	}
	if err := r.setLink(i.Index, false, nil); err != nil {
		return err
	}
	if m.MAC != "" {
		mac, err := parseMAC(m.MAC)
		if err == nil {
			err = r.setLink(i.Index, false, mac)
		}
		if err != nil {
			return err
		}
	}
	if err := r.removeAddresses(i); err != nil {
		return err
	}
	if err := r.setLink(i.Index, true, nil); err != nil {
		return err
	}
	for _, text := range m.Prefix {
		p, err := netip.ParsePrefix(text)
		if err == nil {
			err = r.changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, i.Index, p)
		}
		if err != nil {
			return err
		}
	}
	if m.Gateway == "" {
		return nil
	}
	gateway, err := netip.ParseAddr(m.Gateway)
	if err != nil {
		return err
	}
	return r.setDefault(i.Index, gateway)
}

func parseMAC(text string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(text)
	if err == nil && (len(mac) != 6 || mac[0]&1 != 0) {
		err = fmt.Errorf("%s is not the address of one interface", text)
	}
	return mac, err
}

func (r *route) removeAddresses(i *net.Interface) error {
	old, err := i.Addrs()
	if err != nil {
		return err
	}
	for _, a := range old {
		p, err := netip.ParsePrefix(a.String())
		if err == nil {
			err = r.changeAddress(unix.RTM_DELADDR, 0, i.Index, p)
		}
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // that of IPv6 is gone with the link
			return err
		}
	}
	return nil
}

// route is a socket of rtnetlink(7).
type route struct {
	socket   int
	sequence uint32
}

// sendRequest sends one message and waits for its acknowledgement.
func (r *route) sendRequest(kind, flags uint16, body []byte) error {
	r.sequence++
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = binary.NativeEndian.AppendUint32(b, r.sequence)
	b = append(binary.NativeEndian.AppendUint32(b, 0), body...)
	if err := unix.Sendto(r.socket, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(r.socket, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel did not acknowledge a change of the network")
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// appendAttribute appends an attribute, padded to a multiple of four.
func appendAttribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(4+len(value)))
	to = append(binary.NativeEndian.AppendUint16(to, kind), value...)
	return append(to, make([]byte, -len(value)&3)...)
}

// setLink turns an interface on or off and, if mac is not nil, sets its address (struct ifinfomsg).
func (r *route) setLink(index int, up bool, mac net.HardwareAddr) error {
	flags := uint32(0)
	if up {
		flags = unix.IFF_UP
	}
	b := make([]byte, 4) // the family, padding, and the type
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, flags)
	b = binary.NativeEndian.AppendUint32(b, unix.IFF_UP) // only this flag changes
	if mac != nil {
		b = appendAttribute(b, unix.IFLA_ADDRESS, mac)
	}
	return r.sendRequest(unix.RTM_NEWLINK, 0, b)
}

func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// changeAddress adds or removes an address (struct ifaddrmsg).
func (r *route) changeAddress(kind, flags uint16, index int, p netip.Prefix) error {
	b := []byte{familyOf(p.Addr()), byte(p.Bits()), 0, 0}
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	address := p.Addr().AsSlice()
	b = appendAttribute(b, unix.IFA_LOCAL, address)
	return r.sendRequest(kind, flags, appendAttribute(b, unix.IFA_ADDRESS, address))
}

// setDefault sets the default route (struct rtmsg).
func (r *route) setDefault(index int, gateway netip.Addr) error {
	b := []byte{familyOf(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	b = appendAttribute(b, unix.RTA_GATEWAY, gateway.AsSlice())
	b = appendAttribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	return r.sendRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b)
}
