package crashtest

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// served is a proxy, a client's connection by it, and the server's end of that.
func served(t *testing.T) (p *proxy, client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p, err = newProxy(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.close)
	client, err = net.Dial("tcp", p.addr())
	require.NoError(t, err)
	server, err = listener.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{client, server} {
		require.NoError(t, c.SetDeadline(time.Now().Add(3*time.Minute)))
		t.Cleanup(func() { _ = c.Close() })
	}
	return p, client, server
}

func say(t *testing.T, to, at net.Conn, text string) {
	t.Helper()
	_, err := to.Write([]byte(text))
	require.NoError(t, err)
	heard := make([]byte, len(text))
	_, err = io.ReadFull(at, heard)
	require.NoError(t, err)
	require.Equal(t, text, string(heard))
}

func TestCommitThatIsNotToArriveDoesNotThoughItComesInTwoPieces(t *testing.T) {
	p, client, server := served(t)
	say(t, client, server, "select seal(); commit")
	killed := false
	met := p.trap(false, func() { killed = true })
	say(t, client, server, "insert; select seal(); co")
	_, err := client.Write([]byte("mmit\x00"))
	require.NoError(t, err)
	<-met
	require.True(t, killed)
	rest, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Empty(t, rest)
}

func TestAnswerToACommitThatIsToBeLostIs(t *testing.T) {
	p, client, server := served(t)
	met := p.trap(true, func() {})
	say(t, server, client, "COMMIT\x00 of another transaction")
	say(t, client, server, "select seal(); commit")
	say(t, server, client, "ROLLBACK\x00")
	say(t, client, server, "select seal(); commit")
	_, err := server.Write([]byte("C\x00\x00\x00\x0bCOMMIT\x00"))
	require.NoError(t, err)
	<-met
	rest, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Empty(t, rest)
}
