package consumertest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMissingJavaSkipsUnlessKafkaIsRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("FIRSTSEEN_REQUIRE_KAFKA", "")
	skipped := verdict(t, func(t testing.TB) { StartKafka(t) })
	require.Equal(t, "skip: real Kafka needs java, which is not installed", skipped)

	t.Setenv("FIRSTSEEN_REQUIRE_KAFKA", "1")
	failed := verdict(t, func(t testing.TB) { StartKafka(t) })
	require.Equal(t, "fail: consumertest: FIRSTSEEN_REQUIRE_KAFKA is set and java is not installed", failed)
}

// Debian's and others' names for java lead to any version.
func TestOldJavaCountsAsMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	t.Setenv("FIRSTSEEN_REQUIRE_KAFKA", "1")
	java := filepath.Join(dir, "java")
	for version, want := range map[string]string{
		`openjdk version "11.0.2" 2019-01-15`: "java 17 or later (" + java + " is version 11) is not installed",
		`java version "1.8.0_452"`:            "java 17 or later (" + java + " is version 1) is not installed",
		`cannot tell`: "java 17 or later (" + java +
			" does not tell its version) is not installed",
		`openjdk version "17.0.15" 2025`:  "mvn is not installed",
		`openjdk version "25" 2025-09-16`: "mvn is not installed",
	} {
		require.NoError(t, os.WriteFile(java, []byte("#!/bin/sh\necho '"+version+"' >&2\n"), 0o700))
		failed := verdict(t, func(t testing.TB) { StartKafka(t) })
		require.Equal(t, "fail: consumertest: FIRSTSEEN_REQUIRE_KAFKA is set and "+want, failed)
	}
}

func TestBrokerOfTheEnvironmentNeedsNoJava(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("FIRSTSEEN_TEST_KAFKA", "127.0.0.1:1")
	require.Equal(t, "127.0.0.1:1", Kafka(t))
}

func TestFakeLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("inner", func(t *testing.T) {
		addr, topic := NewFake(t).Addr, Name(t)
		CreateTopic(t, addr, topic, 3)
	})
	goleak.VerifyNone(t, before)
}

// verdict runs a test that does not count and gives how it ended.
func verdict(t *testing.T, test func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.said
}

// recorder keeps the word that ended a test.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Skipf(format string, args ...any) { r.end("skip: "+format, args...) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("fail: "+format, args...) }

func (r *recorder) end(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
