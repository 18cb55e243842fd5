package consumertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

const (
	clusterID  = "Zmlyc3RzZWVuLXRlc3RzMQ" // 16 bytes in base64, as Kafka wants it
	startLimit = 2 * time.Minute
	stopLimit  = 20 * time.Second
	pollEvery  = 50 * time.Millisecond
)

// Broker is one real Kafka node, on the same ports and log directory for as long as its test runs. Its
// methods are safe for concurrent use.
type Broker struct {
	// ID is the node's id, from 1.
	ID int
	// Addr is where clients reach it, host:port.
	Addr string

	controller string
	libs, dir  string
	heap       string // as the JVM writes it

	mu      sync.Mutex
	process *child.Process // nil while stopped
}

func newBroker(id int, libs, dir, heap string) (*Broker, error) {
	port, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	controllerPort, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	return &Broker{
		ID:         id,
		Addr:       child.Loopback(port),
		controller: child.Loopback(controllerPort),
		libs:       libs,
		dir:        dir,
		heap:       heap,
	}, os.Mkdir(dir, 0o755)
}

// Start starts a stopped broker again and waits until it answers. One that runs is left alone.
func (b *Broker) Start() error { return b.start(context.Background()) }

// Stop shuts the broker down in good order, as SIGTERM does: it hands its leaderships over first.
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
func (b *Broker) Kill() { b.kill() }

func (b *Broker) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		b.process.Stop(syscall.SIGKILL, stopLimit)
		b.process = nil
	}
}

// format writes the settings and prepares the log directory.
func (b *Broker) format(shared string) error {
	base, err := findSettings()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(base, properties))
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\nnode.id=%d\nlog.dirs=%s\nlisteners=PLAINTEXT://%s,CONTROLLER://%s\n%s",
		b.ID, b.path("logs"), b.Addr, b.controller, shared)
	if err := os.WriteFile(b.path(properties), text, 0o644); err != nil {
		return err
	}
	spec, err := b.java("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", b.path(properties))
	if err != nil {
		return err
	}
	return child.Run(spec, startLimit)
}

func (b *Broker) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		return nil
	}
	spec, err := b.java("kafka.Kafka", b.path(properties))
	if err != nil {
		return err
	}
	process, err := child.Start(spec)
	if err != nil {
		return err
	}
	if err := b.awaitAnswer(ctx, process); err != nil {
		process.Stop(syscall.SIGKILL, stopLimit)
		return fmt.Errorf("start kafka %d on %s: %w%s", b.ID, b.Addr, err, child.Tail(spec.LogFile))
	}
	b.process = process
	return nil
}

// java is a command line of Kafka's, with a JVM that starts fast and stays small.
func (b *Broker) java(class string, args ...string) (child.Spec, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return child.Spec{}, err
	}
	flags := []string{
		"-Xms128m", "-Xmx" + b.heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-XX:-UsePerfData", "-Djava.io.tmpdir=" + b.dir, // or each JVM that is killed leaves files in /tmp
		"-Dorg.apache.logging.log4j.level=WARN",
		"-cp", filepath.Join(b.libs, "*"), class,
	}
	return child.Spec{Path: java, Args: append(flags, args...), LogFile: b.path("kafka.log")}, nil
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

// awaitAnswer waits until the broker is one of those that the cluster's metadata names.
func (b *Broker) awaitAnswer(ctx context.Context, process *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client, err := newClient(b.Addr)
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := b.answers(ctx, kadm.NewClient(client))
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return errors.Join(errors.New("it ended"), process.Err())
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-tick.C:
		}
	}
}

func (b *Broker) answers(ctx context.Context, admin *kadm.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	metadata, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	for _, node := range metadata.Brokers.NodeIDs() {
		if int(node) == b.ID {
			return nil
		}
	}
	return errors.New("the cluster does not know it yet")
}

// awaitGroups has the broker make the topic for groups' offsets, which it otherwise does at a first group's
// cost, and waits until groups are served.
func (b *Broker) awaitGroups() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	client, err := newClient(b.Addr)
	if err != nil {
		return err
	}
	defer client.Close()
	err = poll(ctx, func() error {
		_, err := committed(ctx, kadm.NewClient(client), "first", "first", 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("start kafka on %s: wait for groups: %w", b.Addr, err)
	}
	return nil
}
