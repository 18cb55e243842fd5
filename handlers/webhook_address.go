package handlers

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Addresses beyond those that netip knows the kind of; from the IANA registries of special-purpose addresses.
var (
	// neverCalled are clouds' metadata outside of the link-local addresses (Azure, Oracle, Alibaba, AWS), and addresses that are
	// no host's.
	neverCalled = prefixes("168.63.129.16/32", "192.0.0.0/24", "100.100.100.200/32", "fd00:ec2::254/128", "0.0.0.0/8", "240.0.0.0/4",
		"fec0::/10", "100::/64")
	// private are shared, benchmarking and documentation addresses.
	private = prefixes("100.64.0.0/10", "198.18.0.0/15", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
	// embedding are IPv6 addresses that stand for an IPv4 one, which is not looked at: NAT64, Teredo, 6to4.
	embedding = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// refused says whether an address must not be called.
func refused(a netip.Addr, allowPrivate bool) bool {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast(), slices.ContainsFunc(neverCalled, in):
		return true
	case a.IsLoopback(), a.IsPrivate(), slices.ContainsFunc(private, in), slices.ContainsFunc(embedding, in):
		return !allowPrivate
	}
	return false
}

// guard is a net.Dialer's Control: it sees the address that is really dialled, after the name was looked up.
func guard(allowPrivate bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if refused(at.Addr(), allowPrivate) {
			return fmt.Errorf("address %s is refused: it is private, local or special", at.Addr())
		}
		return nil
	}
}
