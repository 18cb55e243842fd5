package handlers

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The first is the published vector of Standard Webhooks, the others were computed with Python's hmac.
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	a, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	b := []byte("another-secret-of-thirty-two-byt")
	body := []byte(`{"test": 2432232314}`)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		sign([][]byte{a}, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body))
	require.Equal(t, "v1,9jmhqp/1t6BUrwR1s5BvaE93JMVo4KpMCkEctrr9INw= v1,W5bToITwgOm4DvYc5ky8RvP6BP49cboroDAUGS0/y+M=",
		sign([][]byte{a, b}, "0198f000-0000-7000-8000-000000000001", "1614265330", body))
}

func TestAddressesThatAreRefused(t *testing.T) {
	for text, want := range map[string][2]bool{ // refused by default, and where private ones are allowed
		"93.184.216.34": {}, "2606:2800:220:1::1": {}, "8.8.8.8": {}, "172.32.0.1": {},
		"127.0.0.1": {true}, "::1": {true}, "10.1.2.3": {true}, "172.16.0.1": {true}, "192.168.0.1": {true},
		"fc00::1":    {true},
		"100.64.0.1": {true}, "::ffff:127.0.0.1": {true}, "::ffff:10.0.0.1": {true}, "198.18.0.1": {true},
		"::ffff:100.64.0.1": {true}, "203.0.113.9": {true},
		"64:ff9b::a9fe:a9fe": {true}, "2002:7f00:1::": {true}, "::7f00:1": {true},
		"169.254.169.254": {true, true}, "::ffff:169.254.169.254": {true, true}, "fe80::1%eth0": {true, true},
		"224.0.0.1": {true, true},
		"ff02::1":   {true, true}, "0.0.0.0": {true, true}, "::": {true, true}, "0.1.2.3": {true, true},
		"255.255.255.255": {true, true},
		"168.63.129.16":   {true, true}, "192.0.0.192": {true, true}, "::ffff:168.63.129.16": {true, true},
		"100.100.100.200": {true, true}, "fd00:ec2::254": {true, true},
	} {
		a := netip.MustParseAddr(text)
		require.Equal(t, want, [2]bool{refused(a, false), refused(a, true)}, text)
	}
	require.ErrorContains(t, guard(false)("tcp6", "[fe80::1%lo]:80", nil), "is refused")
	require.NoError(t, guard(true)("tcp4", "127.0.0.1:80", nil))
	require.Error(t, guard(true)("tcp4", "nonsense", nil))
}

// Verdict says what an error of a handler leads to, and how long it asks to wait.
func Verdict(err error) (kind string, wait time.Duration) {
	var after *afterError
	if errors.As(err, &after) {
		wait = min(after.wait, maxAfter)
	}
	switch {
	case err == nil:
		return "done", wait
	case errors.As(err, new(*permanentError)):
		return "permanent", wait
	case errors.As(err, new(*unavailableError)):
		return "unavailable", wait
	}
	return "retry", wait
}

// OldTLS speaks nothing newer than TLS 1.1.
func OldTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // to see it refused
}

// NoLog drops what a test's server says.
func NoLog() *log.Logger { return log.New(io.Discard, "", 0) }
