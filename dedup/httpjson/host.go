package httpjson

import (
	"net"
	"net/netip"
	"strings"
)

// ThisHost says that an address, with a port or without, names the host that it is looked at on: localhost, or an address
// like it. A web page elsewhere can't have a browser send such a name as a request's Host, whatever DNS makes of its own.
func ThisHost(address string) bool {
	host := address
	if name, _, err := net.SplitHostPort(address); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
