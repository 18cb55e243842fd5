package login_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/firstseen/firstseen/consumer/internal/login"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers one connection, and takes down what it was asked for.
type broker struct {
	conn    net.Conn
	life    time.Duration // of a login
	refuses int16         // with this code
	silent  bool          // to who logs in
	hangsUp bool          // then

	mu    sync.Mutex
	asked []int16
}

func (b *broker) serve() {
	for {
		head := make([]byte, 12)
		if _, err := io.ReadFull(b.conn, head); err != nil {
			return
		}
		r := kbin.Reader{Src: head}
		size, key, version, id := r.Int32(), r.Int16(), r.Int16(), r.Int32()
		if _, err := io.CopyN(io.Discard, b.conn, int64(size)-8); err != nil {
			return
		}
		b.mu.Lock()
		b.asked = append(b.asked, key)
		b.mu.Unlock()
		if b.hangsUp && key == int16(kmsg.SASLAuthenticate) {
			_ = b.conn.Close()
			return
		}
		if answer := b.answer(key); answer != nil {
			answer.SetVersion(version)
			body := answer.AppendTo(kbin.AppendInt32(nil, id))
			if _, err := b.conn.Write(append(kbin.AppendInt32(nil, int32(len(body))), body...)); err != nil {
				return
			}
		}
	}
}

func (b *broker) answer(key int16) kmsg.Response {
	switch kmsg.Key(key) {
	case kmsg.ApiVersions:
		answer := kmsg.NewPtrApiVersionsResponse()
		answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.SASLAuthenticate), MaxVersion: 2}}
		return answer
	case kmsg.SASLHandshake:
		return kmsg.NewPtrSASLHandshakeResponse()
	case kmsg.SASLAuthenticate:
		if b.silent {
			return nil
		}
		answer := kmsg.NewPtrSASLAuthenticateResponse()
		answer.SessionLifetimeMillis, answer.ErrorCode = b.life.Milliseconds(), b.refuses
		if b.refuses != 0 {
			answer.ErrorMessage = kmsg.StringPtr("nobody knows you")
		}
		return answer
	}
	return kmsg.NewPtrMetadataResponse()
}

// since gives what was asked for since it was last called.
func (b *broker) since() (asked []int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, b.asked = b.asked, nil
	return asked
}

var (
	first = []int16{int16(kmsg.ApiVersions), int16(kmsg.SASLHandshake), int16(kmsg.SASLAuthenticate)}
	again = first[1:]
	ask   = int16(kmsg.Metadata)
)

func logIn(t *testing.T, b *broker, m sasl.Mechanism) (net.Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	b.conn = theirs
	done := make(chan struct{})
	go func() { defer close(done); b.serve() }()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close(); <-done })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return login.By{Mechanism: m, ClientID: "test", Timeout: time.Second}.Over(ctx, ours, "kafka-1:9092")
}

var eve = plain.Mechanism{Username: "eve", Password: "hunter2"}

// question is a request for metadata, as it is sent.
func question() []byte {
	return kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 3)
}

func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, login.Ask(conn, "test", kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()))
}

func TestLoginIsMadeAgainBeforeARequestThatComesLate(t *testing.T) {
	b := &broker{life: time.Second}
	conn, err := logIn(t, b, eve)
	require.NoError(t, err)
	require.Equal(t, first, b.since())
	exchange(t, conn)
	require.Equal(t, []int16{ask}, b.since())
	for range 2 {
		time.Sleep(b.life)
		exchange(t, conn)
		require.Equal(t, append(again[:2:2], ask), b.since())
	}
}

// Nothing may come between a request and its answer, nor between the parts of a request.
func TestLoginIsNotMadeAgainWhileARequestIsUnderWay(t *testing.T) {
	b := &broker{life: 100 * time.Millisecond}
	conn, err := logIn(t, b, eve)
	require.NoError(t, err)
	time.Sleep(b.life)
	sent := question()
	_, err = conn.Write(sent[:5])
	require.NoError(t, err)
	require.Equal(t, append(first[:3:3], again...), b.since(), "before it")
	time.Sleep(b.life)
	go func() { _, _ = conn.Write(append(sent[5:], sent...)) }()
	head := make([]byte, 4)
	for range 2 {
		_, err = io.ReadFull(conn, head)
		require.NoError(t, err)
		size := (&kbin.Reader{Src: head}).Int32()
		_, err = io.CopyN(io.Discard, conn, int64(size))
		require.NoError(t, err)
	}
	require.Equal(t, []int16{ask, ask}, b.since())
	exchange(t, conn)
	require.Equal(t, append(again[:2:2], ask), b.since(), "when all is answered")
}

func TestLoginThatLastsIsMadeOnce(t *testing.T) {
	b := &broker{}
	conn, err := logIn(t, b, eve)
	require.NoError(t, err)
	for range 3 {
		exchange(t, conn)
	}
	require.Equal(t, append(first[:3:3], ask, ask, ask), b.since())
}

func TestRefusalHasTheBrokersWordsAndIsNoLostConnection(t *testing.T) {
	_, err := logIn(t, &broker{refuses: 58}, eve)
	require.ErrorContains(t, err, "log in by plain: SASL_AUTHENTICATION_FAILED")
	require.ErrorContains(t, err, "nobody knows you")
	require.NotContains(t, err.Error(), eve.Password)

	_, err = logIn(t, &broker{hangsUp: true}, eve)
	require.ErrorContains(t, err, "EOF")
	require.NotErrorIs(t, err, io.EOF)
}

func TestSilentBrokerIsLeftWhenTheTimeIsOver(t *testing.T) {
	ours, theirs := net.Pipe()
	b := &broker{conn: theirs, silent: true}
	done := make(chan struct{})
	go func() { defer close(done); b.serve() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("over")) })
	_, err := login.By{Mechanism: eve, ClientID: "test"}.Over(ctx, ours, "kafka-1:9092")
	require.ErrorContains(t, err, "i/o timeout")
	<-done // for the connection is closed
}
