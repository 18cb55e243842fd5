// Package consumertest gives tests a broker: a real Apache Kafka, or franz-go's kfake in this process, and
// the helpers to fill one and look into it.
//
// The real one is started once per test binary, at first use, and ends with it; a package's TestMain calls
// [Main] so that nothing is left on disk either:
//
//	func TestMain(m *testing.M) { os.Exit(consumertest.Main(m)) }
//
// FIRSTSEEN_TEST_KAFKA is the address of a broker that runs already and replaces the shared one. Java (17
// or later) and Maven are needed to start one: a test that asks for it is skipped where they are missing,
// and fails there if FIRSTSEEN_REQUIRE_KAFKA is set.
package consumertest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
)

// Runner is a *testing.M, or what wraps one.
type Runner interface{ Run() int }

// Main runs the tests and stops the shared Kafka. It gives the exit code.
func Main(m Runner) int { return Wrap(m).Run() }

// Wrap is Main as a Runner, for a TestMain that has more to do after the tests, like
// deduptest.Main(consumertest.Wrap(m)).
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ tests Runner }

func (w wrapped) Run() int {
	code := w.tests.Run()
	shared.stop()
	return code
}

// Kafka gives the address of the test binary's Kafka, host:port. Tests share it, so they name their topics
// and groups with [Name]; one that stops or breaks the broker takes [StartKafka].
func Kafka(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv("FIRSTSEEN_TEST_KAFKA"); addr != "" {
		return addr
	}
	needJava(t)
	addr, err := shared.get()
	if err != nil {
		t.Fatalf("consumertest: %v", err)
	}
	return addr
}

// OnBrokers runs a test against the embedded broker and against a real Kafka.
func OnBrokers(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("fake", func(t *testing.T) { test(t, NewFake(t).Addr) })
	t.Run("kafka", func(t *testing.T) { test(t, Kafka(t)) })
}

var shared sharedKafka

type sharedKafka struct {
	mu      sync.Mutex
	cluster *Cluster
}

func (s *sharedKafka) get() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		cluster, err := kafkaserver.Start(context.Background(), kafkaserver.Config{})
		if err != nil {
			return "", err
		}
		s.cluster = cluster
	}
	return s.cluster.Brokers[0].Addr, nil
}

func (s *sharedKafka) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster != nil {
		s.cluster.Close()
		s.cluster = nil
	}
}
