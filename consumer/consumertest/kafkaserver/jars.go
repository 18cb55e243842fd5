package kafkaserver

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Version is the Kafka that is started. It changes with the pom, so that a cache filled from an older one is
// not taken.
const Version = "4.3.1"

const jarsLimit = 10 * time.Minute

//go:embed pom.xml
var pom []byte

// jars gives the directory with Kafka's jars, which Maven fetches at the first call on a machine.
func jars() (string, error) { return child.Cache("kafka-"+Version, fetch) }

// fetch puts the jars into the directory, beside the pom that asks for them.
func fetch(dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	log := dir + ".log"
	err = child.Run(child.Spec{
		Path:    mvn,
		Args:    []string{"-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory=" + dir},
		LogFile: log,
	}, jarsLimit)
	_ = os.Remove(log)
	return err
}
