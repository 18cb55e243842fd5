package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/outbox"
)

// childDSN is the environment variable that makes the test binary a relay, to be killed, and childTries says how many
// tries a message has.
const childDSN, childTries = "FIRSTSEEN_TEST_RELAY", "FIRSTSEEN_TEST_RELAY_TRIES"

// killer is the value of a message that takes down the process that sends it.
const killer = "killer"

// runChild sends what is in the outbox to the table received, of which it fails now and then.
func runChild(dsn string) int {
	ctx := context.Background()
	relay, err := childRelay(ctx, dsn)
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	relay.Run(ctx)
	return 0
}

func childRelay(ctx context.Context, dsn string) (*outbox.Relay, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 12
	dedup.PreparePool(config, 10*time.Second)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	receiver, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	tries, err := strconv.Atoi(os.Getenv(childTries))
	if err != nil {
		return nil, err
	}
	return outbox.New(ctx, outbox.Config{Pool: pool, Batch: 50, IdlePoll: 50 * time.Millisecond,
		LanePoll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Destinations: []outbox.Destination{{Name: "receiver", Topics: []string{"t"},
			Retry: handlers.Retry{Base: time.Millisecond, Cap: 20 * time.Millisecond, MaxAttempts: tries},
			Sender: outbox.Func(func(ctx context.Context, m dedup.Message) error {
				if string(m.Value) == killer {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
				if rand.IntN(50) == 0 {
					return errors.New("told to")
				}
				_, err := receiver.Exec(ctx, `insert into received (id, key, value) values ($1, $2, $3)`, m.ID,
					string(m.Key), string(m.Value))
				if err != nil || rand.IntN(100) > 0 {
					return err
				}
				return errors.New("it is not known to have been sent")
			})}}})
}

// receiver makes the table that children send to.
func (p *place) receiver() {
	p.exec(`create table received (n bigint generated always as identity, id uuid, key text, value text)`)
}

// child starts a process that relays. Its messages have so many tries.
func (p *place) child(log string, tries int) *child.Process {
	p.t.Helper()
	c, err := child.Start(child.Spec{Path: os.Args[0], LogFile: log,
		Env: []string{childDSN + "=" + p.DSN, childTries + "=" + strconv.Itoa(tries)}})
	require.NoError(p.t, err)
	return c
}

// Relays are killed while they send. Whoever looks at the IDs gets each message once, and each key's in order.
func TestRelaysKilledAgainAndAgainSendEveryMessageAndKeepTheOrderOfKeys(t *testing.T) {
	p := newPlace(t)
	p.receiver()
	dir := t.TempDir()
	start := func(i int) *child.Process { return p.child(filepath.Join(dir, fmt.Sprint(i)), 1000) }
	relays := []*child.Process{start(0), start(1)}
	received := func() int { return p.count(`select count(*) from received`) }
	const keys = 20
	added := 0
	for kill := range deduptest.Kills(t, 3) {
		before := received()
		p.eventually("relays send nothing", func() bool {
			for range 5 {
				ms := numbered(added+20, keys)[added:]
				p.add(ms...)
				added += len(ms)
			}
			return received() > before+200
		})
		relays[kill%2].Stop(syscall.SIGKILL, time.Minute)
		relays[kill%2] = start(kill + 2)
	}
	p.settled()
	for _, relay := range relays {
		relay.Stop(syscall.SIGKILL, time.Minute)
	}
	t.Logf("%d messages, received %d times", added, received())
	require.Equal(t, added, p.count(`select count(distinct id) from received`))
	require.Equal(t, added, p.count(`select count(distinct value) from received`))
	require.Equal(t, added, p.count(`select count(*) from firstseen.inbox`))
	require.Zero(t, p.count(`select count(*) from firstseen.dead_letters`))
	require.Zero(t, p.count(`
		select count(*) from (
			select value::int < max(value::int) over (partition by key order by n
				rows between unbounded preceding and 1 preceding) as late
			from (select key, value, min(n) as n from received group by key, value) firsts) f
		where late`), "messages that came first after a later one of their key")
}

// Whoever sends it dies, each time before anything is known of it.
func TestMessageThatKillsItsRelayIsSetApartAndGivenUpAndTheRestIsSent(t *testing.T) {
	p := newPlace(t)
	p.receiver()
	ms := numbered(200, 10)
	ms[90].Value = []byte(killer)
	p.add(ms...)
	log := filepath.Join(t.TempDir(), "log")
	deaths := 0
	settled := func() bool {
		return p.count(`select (select count(*) from firstseen.outbox) + (select count(*) from firstseen.parked)`) == 0
	}
	for !settled() {
		require.Less(t, deaths, 20, "it is not set apart")
		relay := p.child(log, 3)
		p.eventually("nothing goes on", func() bool {
			select {
			case <-relay.Done():
				deaths++
				return true
			default:
				return settled()
			}
		})
		relay.Stop(syscall.SIGKILL, time.Minute)
	}
	t.Logf("%d processes died", deaths)
	require.Equal(t, 1, p.count(`select count(*) from firstseen.dead_letters where reason = 'killed' and payload = $1`,
		[]byte(killer)))
	require.Equal(t, 199, p.count(`select count(distinct value) from received`)+
		p.count(`select count(*) from firstseen.dead_letters where reason <> 'killed'`))
}

// They take each other's shards all the time.
func TestRelaysThatLiveAreSuspectedOfNothing(t *testing.T) {
	p := newPlace(t)
	p.receiver()
	dir := t.TempDir()
	var logs []string
	var relays []*child.Process
	for i := range 3 {
		logs = append(logs, filepath.Join(dir, fmt.Sprint(i)))
		relays = append(relays, p.child(logs[i], 1000))
	}
	for range 100 {
		p.add(numbered(10, 10)...)
		time.Sleep(5 * time.Millisecond)
	}
	p.settled()
	for i, relay := range relays {
		relay.Stop(syscall.SIGKILL, time.Minute)
		text, err := os.ReadFile(logs[i])
		require.NoError(t, err)
		require.NotContains(t, string(text), "acquired again")
	}
	require.Greater(t, p.count(`select count(distinct owner) from firstseen.positions`), 1, "one has all shards")
}
