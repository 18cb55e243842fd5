package holds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// listening is a registry in a bubble of time, with its log.
type listening struct {
	*Registry
	log bytes.Buffer
}

func inBubble(t *testing.T, f func(t *testing.T, l *listening)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &listening{}
		l.Registry = New(slog.New(slog.NewTextHandler(&l.log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		f(t, l)
		cancel()
		<-done
	})
}

// lines gives what was logged since it was last asked, after so much time.
func (l *listening) lines(after time.Duration) []string {
	time.Sleep(after)
	synctest.Wait()
	text := strings.TrimSpace(l.log.String())
	l.log.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

var errGone = errors.New("connection refused")

func TestAHoldIsLoggedWhenItBeginsAndWhenItIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		p := l.Place(PartitionKind, "orders/3")
		for range 100 { // as often as it is tried
			p.Wait(Postgres, errGone, "offset", 7)
			time.Sleep(100 * time.Millisecond)
		}
		lines := l.lines(0)
		require.Len(t, lines, 1)
		for _, text := range []string{"level=ERROR", "waiting: Postgres does not answer",
			"partition=orders/3", "offset=7", "hold=postgres", `reason="connection refused"`, "do="} {
			require.Contains(t, lines[0], text)
		}
		require.Equal(t, Hold{Subject{PartitionKind, "orders/3"}, Postgres, time.Now().Add(-10 * time.Second),
			"connection refused", 100}, l.List()[0])
		p.End()
		p.End()
		lines = l.lines(0)
		require.Len(t, lines, 1)
		for _, text := range []string{"level=INFO", "goes on again", "partition=orders/3", "hold=postgres",
			"after=10s", "tries=100"} {
			require.Contains(t, lines[0], text)
		}
		require.Empty(t, l.List())
		require.Nil(t, p.Hold())
		require.Empty(t, l.lines(time.Hour))
	})
}

func TestHoldsThatBeginTogetherShareALine(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		var places []*Place
		for n := range 50 {
			places = append(places, l.Place(PartitionKind, fmt.Sprint("orders/", n)), l.Place(HandlerKind, "book"))
		}
		for range 20 {
			for _, p := range places {
				p.Wait(Postgres, errGone)
			}
			time.Sleep(time.Second)
		}
		lines := l.lines(0)
		require.Len(t, lines, 2, "the first at once, and the others together: %s", lines)
		require.Contains(t, lines[1], "and 39 more")
		require.Contains(t, lines[1], "handler=book")
		for _, p := range places {
			p.End()
		}
		lines = l.lines(gathering + time.Second)
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "still_waiting=99")
		require.NotContains(t, lines[1], "still_waiting")
		require.Contains(t, lines[1], "after=20s", "not how long the line waited")
	})
}

func TestWhatComesAndGoesIsSaidSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		p := l.Place(BrokerKind, "2")
		for range 600 {
			p.Wait(Broker, errGone)
			time.Sleep(50 * time.Millisecond)
			p.End()
			time.Sleep(50 * time.Millisecond)
		}
		require.LessOrEqual(t, len(l.lines(time.Minute)), 2*60/5)
	})
}

func TestALongHoldIsSaidAgainNowAndThen(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		l.Place(PartitionKind, "orders/3").Wait(Lost, errGone)
		lines := l.lines(59 * time.Minute)
		require.Len(t, lines, 12)
		require.Contains(t, lines[0], "HELD: messages were deleted")
		require.Contains(t, lines[11], "for=55m0s")
	})
}

func TestAHoldOfAnotherReasonIsAnotherHold(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		p := l.Place(PartitionKind, "orders/3")
		p.Wait(Postgres, errGone)
		time.Sleep(time.Minute)
		p.Wait(Handler, errGone)
		require.Equal(t,
			Hold{Subject{PartitionKind, "orders/3"}, Handler, time.Now(), "connection refused", 1}, l.List()[0])
		lines := l.lines(0)
		require.Len(t, lines, 2)
		require.Contains(t, lines[1], "hold=handler")
		p.Leave()
		require.Empty(t, l.List())
		require.Empty(t, l.lines(time.Hour), "it is given up, and does not go on here")
	})
}

func TestOfTwoPlacesOfASubjectEachHasItsOwnHold(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		waits, stopped := l.Place(PartitionKind, "orders/3"), l.Place(PartitionKind, "orders/3")
		waits.Wait(Postgres, errGone)
		stopped.WaitSince(time.Now().Add(-time.Hour), Undecodable, errGone)
		require.Equal(t, []string{Undecodable, Postgres}, []string{l.List()[0].Code, l.List()[1].Code},
			"the oldest first")
		waits.End()
		require.Len(t, l.List(), 1)
		stopped.End()
	})
}

func TestEveryCodeSaysWhatHappenedAndWhatToDo(t *testing.T) {
	codes := map[string]bool{}
	for _, e := range Catalogue() {
		require.NotEmpty(t, e.Code)
		require.NotEmpty(t, e.Means, e.Code)
		require.NotEmpty(t, e.Do, e.Code)
		require.False(t, codes[e.Code], "%s is there twice", e.Code)
		codes[e.Code] = true
		require.Equal(t, e, EntryOf(e.Code))
	}
	require.Equal(t, Entry{Code: "new", Means: "new"}, EntryOf("new"))
}

func TestAPlaceOfNoRegistryKnowsItsHold(t *testing.T) {
	p := (*Registry)(nil).Place(TopicKind, "orders")
	require.Empty(t, p.Code())
	p.Wait(Missing, errGone)
	require.Equal(t, Missing, p.Code())
	p.End()
	require.Nil(t, p.Hold())
}

func TestTheRegistrysAttributeIsOnEachLineOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, l *listening) {
		l.LogTo(l.Registry.log, "group", "billing")
		l.Place(GroupKind, "billing").Wait(Kafka, errGone)
		l.Place(PartitionKind, "orders/3").Wait(Postgres, errGone)
		lines := l.lines(0)
		require.Len(t, lines, 2)
		for _, line := range lines {
			require.Equal(t, 1, strings.Count(line, "group=billing"), line)
		}
	})
}
