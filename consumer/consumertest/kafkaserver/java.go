package kafkaserver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// leastJava is the version that Kafka 4's brokers need.
const leastJava = 17

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// missingJava says what is missing, and is empty where nothing is.
func missingJava() string {
	java, err := exec.LookPath("java")
	if err != nil {
		return "java"
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	found := javaVersion.FindSubmatch(out)
	if err != nil || found == nil {
		return fmt.Sprintf("java %d or later (%s does not tell its version)", leastJava, java)
	}
	if version, err := strconv.Atoi(string(found[1])); err != nil || version < leastJava {
		return fmt.Sprintf("java %d or later (%s is version %s)", leastJava, java, found[1])
	}
	return ""
}

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
	return append(flags, b.config.Flags...)
}
