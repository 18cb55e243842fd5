package kafkaserver

import (
	"os/exec"
	"path/filepath"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// java is a command line of Kafka's.
func (b *Broker) java(class string, args ...string) (child.Spec, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return child.Spec{}, err
	}
	return child.Spec{
		Path:    java,
		Args:    append(append(b.flags(), class), args...),
		LogFile: b.logFile(),
	}, nil
}

func (b *Broker) flags() []string {
	flags := []string{
		"-Xms128m", "-Xmx" + b.config.Heap, "-Xshare:auto",
		"-XX:-UsePerfData", "-Djava.io.tmpdir=" + b.dir, // or each JVM that is killed leaves files in /tmp
		"-Dorg.apache.logging.log4j.level=WARN",
		"-cp", filepath.Join(b.libs, "*"),
	}
	if !b.config.Optimize {
		flags = append(flags, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
	}
	return flags
}
