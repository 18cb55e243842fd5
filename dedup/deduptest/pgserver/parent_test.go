package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

const parentRole = "PGSERVER_TEST_PARENT"

// TestMain plays the parent that gets killed where the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(parentRole) == "" {
		os.Exit(m.Run())
	}
	s, err := pgserver.Start(context.Background(), pgserver.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Port(), s.Dir())
	select {}
}

func TestServerEndsWhenItsParentIsKilled(t *testing.T) {
	parent := osexec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1", "TMPDIR="+openDir(t))
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	port, dir, found := strings.Cut(strings.TrimSpace(line), " ")
	require.True(t, found, line)
	require.FileExists(t, dir+"/postmaster.pid")

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()

	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 3*time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir + "/postmaster.pid")
		return os.IsNotExist(err)
	}, 3*time.Minute, 10*time.Millisecond, "it shut down in order")
}
