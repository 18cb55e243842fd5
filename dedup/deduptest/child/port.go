package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Below the ports that Linux and macOS hand to outgoing connections: one of those could be taken, even by
// a client that dials it and so meets itself, while the server that owns it restarts.
const (
	firstPort = 15000
	lastPort  = 32000
)

// given are the ports that this process has, whether their servers listen already or not.
var given sync.Map

// FreePort finds a loopback port that nobody listens on, and gives each to this process once only.
func FreePort() (int, error) {
	last := errors.New("all are given")
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			last = err
			continue
		}
		_ = listener.Close()
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// Loopback is a port's address on this machine.
func Loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
