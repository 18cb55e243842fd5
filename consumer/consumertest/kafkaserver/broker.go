package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const (
	clusterID  = "Zmlyc3RzZWVuLXRlc3RzMQ" // 16 bytes in base64, as Kafka wants it
	startLimit = 5 * time.Minute
	stopLimit  = 20 * time.Second
)

// launchLimit is how long a broker that was started may take until it answers, before it is started again.
var launchLimit = 90 * time.Second

// Broker is one real Kafka node, on the same ports and log directory for as long as its cluster is not
// closed. Its methods are safe for concurrent use.
type Broker struct {
	// ID is the node's id, from 1.
	ID int
	// Addr is its listener for clients, host:port.
	Addr string
	// Secured is its listener for clients of Config.Secured; empty where there is none.
	Secured string

	controller string
	config     Config
	libs, dir  string

	mu      sync.Mutex
	process *child.Process // nil while stopped
}

func newBroker(id int, c *Cluster) (*Broker, error) {
	dir := c.scratch.Path(strconv.Itoa(id))
	b := &Broker{ID: id, config: c.config, libs: c.libs, dir: dir}
	addresses := []*string{&b.Addr, &b.controller}
	if c.config.Secured != "" {
		addresses = append(addresses, &b.Secured)
	}
	for _, address := range addresses {
		port, err := child.FreePort()
		if err != nil {
			return nil, err
		}
		*address = child.Loopback(port)
	}
	return b, os.Mkdir(dir, 0o755)
}

// Start starts a stopped broker again and waits until it answers. One that runs is left alone.
func (b *Broker) Start() error { return b.start(context.Background()) }

// Stop shuts the broker down in good order, as SIGTERM does: it hands its leaderships over first. One that
// is stopped is left alone.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil {
		return nil
	}
	killed := b.process.Stop(syscall.SIGTERM, stopLimit)
	b.process = nil
	if killed {
		return fmt.Errorf("stop kafka %d: killed, for it still ran after %s", b.ID, stopLimit)
	}
	return nil
}

// Kill ends the broker at once, as a crash does.
func (b *Broker) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		b.process.Stop(syscall.SIGKILL, stopLimit)
		b.process = nil
	}
}

// format writes the settings and prepares the log directory.
func (b *Broker) format(properties string) error {
	if err := os.WriteFile(b.propertiesFile(), []byte(properties), 0o644); err != nil {
		return err
	}
	spec, err := b.java("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", b.propertiesFile())
	if err != nil {
		return err
	}
	return child.Run(spec, startLimit)
}

// start tries more than once: now and then a node of Kafka 4.3 that comes last into its quorum lives on without
// ever becoming a broker of the cluster, and does become one when it is started again.
func (b *Broker) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		var err error
		b.process, err = b.launch(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// launch starts the process once. Its error is context.DeadlineExceeded where the process runs and is no broker of the
// cluster after launchLimit.
func (b *Broker) launch(ctx context.Context) (*child.Process, error) {
	spec, err := b.java("kafka.Kafka", b.propertiesFile())
	if err != nil {
		return nil, err
	}
	process, err := child.Start(spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, launchLimit)
	defer cancel()
	if err := b.awaitAnswer(ctx, process); err != nil {
		process.Stop(syscall.SIGKILL, stopLimit)
		return nil, fmt.Errorf("start kafka %d on %s: %w%s", b.ID, b.Addr, err, child.Tail(b.logFile()))
	}
	return process, nil
}

func (b *Broker) propertiesFile() string { return b.path("server.properties") }

func (b *Broker) logFile() string { return b.path("kafka.log") }

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }
