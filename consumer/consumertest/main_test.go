package consumertest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

const parentRole = "CONSUMERTEST_PARENT"

func TestMain(m *testing.M) { os.Exit(consumertest.Main(m)) }

func TestKafkaEndsWithItsTestBinary(t *testing.T) {
	if os.Getenv(parentRole) != "" {
		fmt.Println("\naddr", consumertest.StartKafka(t).Addr)
		select {} // until the test that started this one kills it
	}
	consumertest.NeedJava(t)
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), parentRole+"=1", "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	addr := ""
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "addr "); found {
			addr = text
		}
	}
	require.True(t, listening(addr), addr)

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()

	require.Eventually(t, func() bool { return !listening(addr) }, 3*time.Minute, 10*time.Millisecond)
}

func listening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
