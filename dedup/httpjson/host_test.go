package httpjson

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThisHostIsLocalhostOrALoopbackAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost": true, "LOCALHOST:80": true, "127.0.0.1": true, "127.8.9.1:0": true, "::1": true, "[::1]": true,
		"[::1]:8080": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1": false, "localhost.": false,
		"localhost.evil.example": false, "127.0.0.1.evil.example:80": false, "evil.example": false,
	} {
		require.Equal(t, want, ThisHost(address), address)
	}
}
