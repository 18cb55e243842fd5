package login

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// logged is a connection that is logged in. It logs in again before the first request that comes when most of the
// login's time is over, while no other is under way; brokers take that late too, as long as nothing else came before.
// What is sent and received is counted for that, request by request.
type logged struct {
	net.Conn
	by      By
	host    *sasl.Metadata // what mechanisms are told of the broker
	version int16

	mu             sync.Mutex
	sent, received frames
	again          time.Time // zero: the login lasts
	readBy         time.Time // the deadline of reads
}

// Write sends requests, whole or in parts.
func (l *logged) Write(b []byte) (int, error) {
	if err := l.before(b); err != nil {
		return 0, err
	}
	return l.Conn.Write(b)
}

// Read receives answers.
func (l *logged) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received.add(b[:n])
	return n, err
}

// before counts what is to be sent, and logs in again before it where it is time. Nobody reads then: no answer is
// outstanding.
func (l *logged) before(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.sent.add(b)
	if l.again.IsZero() || time.Now().Before(l.again) || !l.sent.between() || l.sent.whole != l.received.whole {
		return nil
	}
	return l.renew()
}

func (l *logged) renew() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.by.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if !l.readBy.IsZero() && l.readBy.Before(deadline) {
		deadline = l.readBy
	}
	if err := l.Conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if err := l.logIn(ctx); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	return l.Conn.SetReadDeadline(l.readBy)
}

// SetDeadline remembers the deadline of reads.
func (l *logged) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	return l.Conn.SetDeadline(t)
}

// SetReadDeadline remembers it.
func (l *logged) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = t
	return l.Conn.SetReadDeadline(t)
}

// frames counts what has a length of four bytes before it, as Kafka's requests and answers have.
type frames struct {
	whole int // that are complete
	head  []byte
	rest  int // bytes that the one under way lacks
}

// between says that none is under way.
func (f *frames) between() bool { return len(f.head) == 0 && f.rest == 0 }

func (f *frames) add(b []byte) {
	for len(b) > 0 {
		if f.rest == 0 {
			n := min(4-len(f.head), len(b))
			f.head, b = append(f.head, b[:n]...), b[n:]
			if len(f.head) < 4 {
				return
			}
			f.rest, f.head = int(binary.BigEndian.Uint32(f.head)), f.head[:0]
		}
		n := min(f.rest, len(b))
		f.rest, b = f.rest-n, b[n:]
		if f.rest == 0 {
			f.whole++
		}
	}
}
