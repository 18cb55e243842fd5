package retention

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// pantry is a topic with messages of which all were processed three days ago, as Postgres has it.
type pantry struct {
	*Keeper
	t            *testing.T
	fake         *consumertest.Fake
	db           *deduptest.DB
	topic, group string
	log          *deduptest.Log
	position     *dedup.Position
}

const stored = 10

var by = operate.By{Actor: "test", Why: "because"}

// keep2d keeps IDs for two days, which is longer than the topic keeps messages.
var keep2d = Policy{IDs: 2 * day, Interval: 10 * time.Millisecond}

func newPantry(t *testing.T, topicConfig ...string) *pantry {
	t.Helper()
	fake := consumertest.NewFake(t)
	addr := fake.Addr
	p := &pantry{t: t, fake: fake, db: deduptest.New(t), topic: consumertest.Name(t), group: consumertest.Name(t),
		log: &deduptest.Log{}}
	if topicConfig == nil {
		topicConfig = []string{"retention.ms=86400000", "segment.ms=3600000"}
	}
	consumertest.CreateTopic(t, addr, p.topic, 2, topicConfig...)
	log := slog.New(slog.NewTextHandler(p.log, nil))
	cluster, err := cluster.New(cluster.Config{Connection: consumer.Connection{Brokers: []string{addr}},
		Logger: log})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	store, err := dedup.Open(t.Context(), p.db.Pool, dedup.Config{Inbox: p.group})
	require.NoError(t, err)
	p.Keeper = &Keeper{Inbox: operate.Of(store), Cluster: cluster, Settle: time.Nanosecond, Logger: log}
	for range stored {
		consumertest.ProduceTo(t, addr, &kgo.Record{Topic: p.topic})
	}
	p.position = p.process(p.group, stored)
	p.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '3 days'`)
	return p
}

// process is what a consumer does with the first messages of partition 0, up to its commit to Kafka.
func (p *pantry) process(name string, n int64) *dedup.Position {
	p.t.Helper()
	position, err := p.Inbox.Store().Acquire(p.t.Context(), name, p.topic, 0, "owner")
	require.NoError(p.t, err)
	require.NoError(p.t, p.Inbox.Store().Reposition(p.t.Context(), position, 0, uuid.Nil, nil))
	scopes, err := p.Inbox.Store().Scopes(p.t.Context(), []dedup.ScopeKey{{Handler: "book"}})
	require.NoError(p.t, err)
	batch := &dedup.Batch{Position: position, Next: n}
	for offset := range n {
		batch.Entries = append(batch.Entries, dedup.Entry{Scope: scopes.IDs[0], Message: &dedup.Message{ID: uuid.New(),
			Topic: p.topic, Offset: offset}})
	}
	tx, err := p.Inbox.Store().Accept(p.t.Context(), batch)
	require.NoError(p.t, err)
	require.NoError(p.t, tx.Commit(p.t.Context()))
	return position
}

func (p *pantry) commit(group string, offset int64) {
	p.t.Helper()
	require.NoError(p.t, p.Cluster.CommitOffsets(p.t.Context(), group, p.topic, map[int32]int64{0: offset}))
}

func (p *pantry) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.db.Pool.Exec(p.t.Context(), sql, args...)
	require.NoError(p.t, err)
}

func (p *pantry) ids() (n int) {
	p.t.Helper()
	require.NoError(p.t, p.db.Pool.QueryRow(context.Background(),
		`select count(*) from firstseen.message_dedup`).Scan(&n))
	return n
}

// refuses requires that a run deletes nothing, for that reason.
func (p *pantry) refuses(r Policy, reason string) {
	p.t.Helper()
	done, err := p.Run(p.t.Context(), r, by)
	require.NoError(p.t, err)
	require.Zero(p.t, done.IDs)
	require.Len(p.t, done.Plan.Refused(), 1)
	require.Contains(p.t, done.Plan.Refused()[0].Text, reason)
}

func TestIDsAreForgottenWhenTheirMessagesAreCommittedAndTooOldForTheTopic(t *testing.T) {
	p := newPantry(t)
	p.refuses(keep2d, "has committed no offset to Kafka")
	p.commit(p.group, stored-1)
	p.refuses(keep2d, "has committed 9 to Kafka")
	p.commit(p.group, stored)
	short := keep2d
	short.Handlers = map[string]time.Duration{"book": 12 * time.Hour}
	p.refuses(short, "may hold messages for 26h0m0s")
	short.Handlers["book"] = 0
	done, err := p.Run(t.Context(), short, by)
	require.NoError(t, err)
	require.Zero(t, done.IDs, "its own age is for ever")
	done, err = p.Run(t.Context(), keep2d, by)
	require.NoError(t, err)
	require.EqualValues(t, stored, done.IDs)
	require.Zero(t, p.ids())
}

func TestGroupThatNeverCameBackKeepsAllIDsUntilItsPositionsAreDeleted(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	p.process("gone", 4)
	p.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '3 days'`)
	p.refuses(keep2d, "consumer gone has processed")
	p.exec(`delete from firstseen.positions where consumer = 'gone'`)
	done, err := p.Run(t.Context(), keep2d, by)
	require.NoError(t, err)
	require.EqualValues(t, stored+4, done.IDs)
}

// A process that ended before it set where to begin leaves such a position.
func TestPositionThatNothingWasProcessedToKeepsNoIDs(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	p.exec(`insert into firstseen.positions (consumer, topic, "partition") values ($1, 'deleted', 0)`, p.group)
	done, err := p.Run(t.Context(), keep2d, by)
	require.NoError(t, err)
	require.Empty(t, done.Plan.Refused())
	require.EqualValues(t, stored, done.IDs)
}

func TestReplayThatGoesOnKeepsAllIDs(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	p.exec(`insert into firstseen.positions (consumer, topic, "partition", next_offset) values ('replay/g/x', $1, 0, 3)`, p.topic)
	p.exec(`insert into firstseen.replays (consumer, topic, "partition", from_offset, to_offset, asked) values ('replay/g/x', $1, 0, 0, 8, 'all')`, p.topic)
	p.refuses(keep2d, "replay replay/g/x of "+p.topic+"/0 is going on")
	p.exec(`select set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true); update firstseen.positions set next_offset = 8 where consumer = 'replay/g/x'`)
	done, err := p.Run(t.Context(), keep2d, by)
	require.NoError(t, err)
	require.EqualValues(t, stored, done.IDs)
}

func TestTopicThatKeepsMessagesForLongerKeepsAllIDs(t *testing.T) {
	for reason, settings := range map[string][]string{
		"may hold messages for":     {"retention.ms=172800000", "segment.ms=3600000"},
		"keeps messages for ever":   {"retention.ms=-1"},
		"cleanup.policy is compact": {"cleanup.policy=compact"},
	} {
		p := newPantry(t, settings...)
		p.commit(p.group, stored)
		p.refuses(keep2d, reason)
		forced := keep2d
		forced.Force = true
		done, err := p.Run(t.Context(), forced, by)
		require.NoError(t, err)
		require.EqualValues(t, stored, done.IDs)
	}
}

// A consumer that is at work commits a moment after it has processed: here, at the second look.
func TestCommitsOfARunningConsumerAreWaitedFor(t *testing.T) {
	p := newPantry(t)
	p.Settle = time.Minute
	var looks atomic.Int32
	second := make(chan struct{})
	p.fake.Cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.Cluster.KeepControl()
		if looks.Add(1) == 2 {
			close(second)
		}
		return nil, nil, false
	})
	var commit sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	commit.Go(func() {
		select {
		case <-second:
			p.commit(p.group, stored)
		case <-ctx.Done():
		}
	})
	done, err := p.Run(t.Context(), keep2d, by)
	cancel()
	commit.Wait()
	require.NoError(t, err)
	require.GreaterOrEqual(t, looks.Load(), int32(2))
	require.EqualValues(t, stored, done.IDs)
}

func TestLoopTellsAReasonOnceAndDeletesOnceItIsGone(t *testing.T) {
	p := newPantry(t)
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	rounds := make(chan struct{})
	loop.Go(func() {
		p.loop(ctx, func() Policy {
			select {
			case rounds <- struct{}{}:
			case <-ctx.Done():
			}
			return keep2d
		}, "loop")
	})
	for range 4 {
		<-rounds
	}
	require.Equal(t, 1, bytes.Count([]byte(p.log.String()), []byte("retention: IDs are kept")), p.log.String())
	p.commit(p.group, stored)
	for p.ids() > 0 {
		<-rounds
	}
	<-rounds
	cancel()
	loop.Wait()
	require.Contains(t, p.log.String(), "retention: deleted what is older than it says")
	require.Contains(t, p.log.String(), "ids=10")
}

// The group has committed nothing, so none of the inbox's IDs may go. A message of the outbox comes from no topic.
func TestKeysOfTheOutboxAreForgottenSoLongAfterTheirMessagesWereSent(t *testing.T) {
	p := newPantry(t)
	add := func(topic, key string) outbox.Added {
		added, err := (&outbox.Writer{}).Add(t.Context(), p.db.Pool, outbox.Message{Topic: topic, IdempotencyKey: key})
		require.NoError(t, err)
		return added
	}
	add("t", "sent")
	add("later", "waits")
	p.relayed(1)
	p.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '3 days'`)
	p.exec(`update firstseen.outbox_keys set added_at = now() - interval '3 days'`)
	p.exec(`update firstseen.inbox set received_at = now() - interval '3 days'`)
	for _, r := range []Policy{{IDs: 2 * day}, {OutboxKeys: 4 * day}} {
		done, err := p.Run(t.Context(), r, by)
		require.NoError(t, err)
		require.Zero(t, done.IDs+done.OutboxIDs)
		require.True(t, add("t", "sent").AlreadyExisted)
	}
	done, err := p.Run(t.Context(), Policy{IDs: 2 * day, OutboxKeys: 2 * day, Inbox: day}, by)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1}, []int64{done.IDs, done.OutboxIDs})
	require.Equal(t, stored, p.ids())
	require.EqualValues(t, stored+1, done.Dropped.Rows, "what was sent lies in the inbox, and goes with its days")
	require.False(t, add("t", "sent").AlreadyExisted, "it is a new message")
	require.True(t, add("later", "waits").AlreadyExisted, "it is not sent yet")
	p.relayed(1)
}

// relayed has so many messages to topic "t" sent.
func (p *pantry) relayed(n int) {
	p.t.Helper()
	sent := make(chan struct{}, n)
	relay, err := outbox.New(p.t.Context(), outbox.Config{Pool: p.db.Pool, Destinations: []outbox.Destination{{Name: "events",
		Topics: []string{"t"}, Workers: 1, Sender: outbox.Func(func(context.Context, dedup.Message) error {
			sent <- struct{}{}
			return nil
		})}}})
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	for range n {
		<-sent
	}
	cancel() // what is under way is finished
	running.Wait()
}

func TestTableIsReadAgainOnlyAfterAPartOfTheAge(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	now := time.Now()
	again := func(now time.Time) map[string]time.Time {
		before, err := due(t.Context(), p.Inbox, map[string]time.Time{"book": now.Add(-2 * day)}, now)
		require.NoError(t, err)
		return before
	}
	require.NotEmpty(t, again(now))
	_, err := p.Run(t.Context(), keep2d, by)
	require.NoError(t, err)
	require.Empty(t, again(now.Add(2*day/ageParts-time.Hour)))
	require.NotEmpty(t, again(now.Add(2*day/ageParts+time.Hour)))
}

func TestLoopSaysWhichRoleIsMissing(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	role := "consumer_" + uuid.NewString()[:8]
	p.exec(`create role ` + role + `; grant usage on schema firstseen to ` + role + `; grant select on all tables in schema firstseen to ` + role + `;
		revoke execute on function firstseen.forget_ids from public`)
	t.Cleanup(func() {
		_, err := p.db.Pool.Exec(context.Background(), `drop owned by `+role+`; drop role `+role)
		require.NoError(t, err)
	})
	conf := p.db.Pool.Config().Copy()
	conf.ConnConfig.RuntimeParams["role"] = role
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	require.NoError(t, err)
	defer pool.Close()
	p.Inbox = p.Inbox.On(pool)
	told := p.round(t.Context(), keep2d, "loop", nil)
	require.Equal(t, told, p.round(t.Context(), keep2d, "loop", told))
	require.Equal(t, 1, bytes.Count([]byte(p.log.String()),
		[]byte("grant the role firstseen_retention to this login")), p.log.String())
	require.Equal(t, stored, p.ids())
}

// What could not be found out is a reason to keep IDs.
func TestIDsAreKeptWhereTheTopicsCouldNotBeAsked(t *testing.T) {
	t.Run("for their oldest messages", func(t *testing.T) {
		p := newPantry(t)
		p.commit(p.group, stored)
		p.fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets},
			Err: kerr.TopicAuthorizationFailed, Count: -1, When: func(r kmsg.Request) bool {
				return r.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp >= 0
			}})
		p.refuses(keep2d, "the oldest messages of topic "+p.topic+" could not be found out")
		require.Equal(t, stored, p.ids())
	})
	t.Run("for there is no cluster to ask", func(t *testing.T) {
		p := newPantry(t)
		p.commit(p.group, stored)
		p.Cluster = nil
		p.refuses(keep2d, "consumer "+p.group+" has read topics, and there are no brokers (kafka.brokers) to ask what these")
		require.Equal(t, stored, p.ids())
		p.exec(`delete from firstseen.positions`)
		_, err := p.Run(t.Context(), keep2d, by)
		require.NoError(t, err)
		require.Zero(t, p.ids())
	})
	t.Run("for anything once the offsets are known", func(t *testing.T) {
		p := newPantry(t)
		p.commit(p.group, stored)
		known := p.fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Observe: true, Count: -1})
		p.fake.Cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			p.fake.Cluster.KeepControl()
			return nil, errors.New("hang up"), known.Hits() > 0
		})
		p.refuses(keep2d, "how long the topics keep messages could not be found out")
		require.Equal(t, stored, p.ids())
	})
}

// That is no reason to say that it has committed nothing, nor to advise what to do about that.
func TestIDsAreKeptWhereTheOffsetsOfAConsumerCouldNotBeAsked(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	p.fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch},
		Err: kerr.GroupAuthorizationFailed, Count: -1})
	p.refuses(keep2d, "where consumer "+p.group+" stands could not be found out")
	require.Equal(t, stored, p.ids())
}

func TestIDsAreKeptWherePostgresCouldNotBeAsked(t *testing.T) {
	p := newPantry(t)
	p.commit(p.group, stored)
	p.exec(`alter table firstseen.positions rename to elsewhere`)
	_, err := p.Run(t.Context(), keep2d, by)
	require.Error(t, err)
	require.Equal(t, stored, p.ids())
}
