// Package kafkaserver starts a real Apache Kafka from jars that Maven fetches: for tests, for faults (stop a
// broker, crash it) and for measurements.
//
// In comes a [Config], out comes a [Cluster] whose brokers listen on 127.0.0.1 and end with this process. A
// machine needs Java 17 or later and Maven for it; [MissingProgram] says what it lacks.
package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

// Config says which Kafka to run. The zero value is one broker that starts fast and stays small, as tests
// want it.
type Config struct {
	// Brokers is their number, each a controller too. Of three or more, topics have three replicas by default and a
	// write needs two, so one broker can be stopped. Default 1.
	Brokers int
	// Heap is the most that each broker's heap takes, as the JVM writes it, 128m or more. Default 512m for
	// a single broker and 384m for each of several.
	Heap string
	// Settings are lines of each broker's server.properties. They win over the defaults, which trade much
	// for quick tests: no rebalance delay, cleaning and elections within a second, few threads. What tells
	// the brokers apart is refused: node.id, listeners, log.dirs, controller.quorum.voters.
	Settings map[string]string
	// Secured is the security protocol of one more listener of each broker, which Broker.Secured is the address of:
	// SASL_PLAINTEXT, SASL_SSL or SSL. Settings say the rest, with listener.name.secured. before their names. Default:
	// there is none.
	Secured string
	// Flags are more options of each broker's JVM, such as -Dname=value. Default: none.
	Flags []string
	// Optimize has the JVM use its full compiler and the garbage collector of its own choice, for
	// measurements. Default false: the first compiler and the serial collector alone, which start faster.
	Optimize bool
}

// MissingProgram names a program that is needed to start Kafka and is not installed: java, of version 17 or later, or
// mvn. It is empty where both are there.
func MissingProgram() string {
	if missing := missingJava(); missing != "" {
		return missing
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "mvn"
	}
	return ""
}

// Start starts the brokers and waits until each answers and consumer groups are served. The first start of
// a Kafka version on a machine downloads it. Close the cluster when done.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	libs, err := jars()
	if err != nil {
		return nil, fmt.Errorf("get kafka: %w", err)
	}
	scratch, err := child.NewScratch("kafka", nil)
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: config.withDefaults(), libs: libs, scratch: scratch}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c Config) validate() error {
	var faults []error
	if c.Brokers < 0 {
		faults = append(faults, fmt.Errorf("brokers: %d is negative", c.Brokers))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		if slices.Contains(ownSettings, name) {
			faults = append(faults, fmt.Errorf("settings: %s is different for each start", name))
		}
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Brokers = max(c.Brokers, 1)
	if c.Heap == "" {
		c.Heap = "512m"
		if c.Brokers > 1 {
			c.Heap = "384m"
		}
	}
	return c
}
