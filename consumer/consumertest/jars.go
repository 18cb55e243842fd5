package consumertest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// jarsName changes with the pom, so that a cache filled from an older one is not taken.
const (
	jarsName    = "kafka-4.3.1"
	jarsLimit   = 10 * time.Minute
	pom         = "pom.xml"
	properties  = "server.properties"
	settingsDir = "testdata/kafka"
)

// needJava skips the test, or fails it where Kafka is required, if this machine cannot start one.
func needJava(t testing.TB) {
	t.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("FIRSTSEEN_REQUIRE_KAFKA") != "" {
			t.Fatalf("consumertest: FIRSTSEEN_REQUIRE_KAFKA is set and %s is not installed", program)
		}
		t.Skipf("real Kafka needs %s, which is not installed", program)
	}
}

// jars gives the directory with Kafka's jars, which Maven fetches at the first call on a machine.
func jars() (string, error) {
	settings, err := findSettings()
	if err != nil {
		return "", err
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", err
	}
	return child.Cache(jarsName, func(dir string) error {
		log := dir + ".log"
		err := child.Run(child.Spec{
			Path:    mvn,
			Args:    []string{"-q", "-B", "-f", filepath.Join(settings, pom), "dependency:copy-dependencies", "-DoutputDirectory=" + dir},
			LogFile: log,
		}, jarsLimit)
		_ = os.Remove(log)
		return err
	})
}

// findSettings gives the module's directory with Kafka's pom and settings, from any package within.
func findSettings() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, settingsDir), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find " + settingsDir + ": no go.mod in this directory or above")
		}
		dir = parent
	}
}
