package consumer_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/handlers"
)

// replicated is a stage on a primary with a standby, and consumers that know both addresses and go on while the
// primary crashes and the standby takes over.
type replicated struct {
	*stage
	primary, standby *pgserver.Server
	replica          *pgxpool.Pool // the standby's
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	primary := deduptest.StartServer(t, pgserver.Config{})
	db := deduptest.Migrated(t, primary.DSN("postgres"))
	r := &replicated{primary: primary, standby: deduptest.StartStandby(t, primary)}
	r.stage = newStageOn(t, consumertest.NewFake(t).Addr, 3, db)
	r.replica = deduptest.OpenPool(t, r.standby.DSN("postgres"), nil)
	both, err := url.Parse(r.dsn)
	require.NoError(t, err)
	both.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", r.primary.Port(), r.standby.Port())
	r.dsn = both.String()
	return r
}

// small has tenants, and batches of few messages, so that a load takes many.
func (r *replicated) small() func(*consumer.Config, *handlers.Config) {
	return settings(func(c *consumer.Config) {
		c.MaxBatch = 20
		c.Topics = []consumer.Topic{{Name: r.topic, TenantHeader: "tenant"}}
	})
}

// load has so many messages, each hundred with a tenant of its own.
func (r *replicated) load(n int) []*kgo.Record {
	records := r.records(n, 30)
	for i, record := range records {
		record.Headers = append(record.Headers,
			kgo.RecordHeader{Key: "tenant", Value: fmt.Appendf(nil, "%s %d", r.t.Name(), i/100)})
	}
	return records
}

// awaitEffects waits until the primary has more effects than so many.
func (r *replicated) awaitEffects(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.count(`select count(*) from effects`) > n },
		3*time.Minute, 5*time.Millisecond)
}

// failOver has the primary crash and the standby take its place.
func (r *replicated) failOver() {
	r.t.Helper()
	require.NoError(r.t, r.primary.Stop(pgserver.Immediate))
	r.pool = r.replica
	r.exec(`select pg_promote()`)
}

func TestFailoverToASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.exec(`alter system set synchronous_standby_names = '*'`)
	r.exec(`select pg_reload_conf()`)
	require.Eventually(t, func() bool {
		return r.count(`select count(*) from pg_stat_replication where sync_state = 'sync'`) == 1
	}, 3*time.Minute, 20*time.Millisecond)
	consumertest.Produce(t, r.addr, r.load(6000)...)
	stop, other := r.start(r.consumer(r.small())), r.start(r.consumer(r.small()))
	r.awaitEffects(1500)
	r.failOver()
	r.caughtUp()
	other()
	stop()
	r.requireOnce(6000)
	r.requireNoAttempt()
}

// What the standby has not got is made again, from Kafka, by processes that go on.
func TestFailoverToAStandbyThatLacksTransactionsMakesThemAgain(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	consumertest.Produce(t, r.addr, r.load(6000)...)
	stop, other := r.start(r.consumer(r.small())), r.start(r.consumer(r.small()))
	r.awaitEffects(1000)
	r.cutOff()
	r.awaitEffects(r.count(`select count(*) from effects`) + 1000)
	before := r.count(`select count(*) from effects`)
	r.failOver()
	require.Less(t, r.count(`select count(*) from effects where seq <= $1`, before), before, "some are lost")
	r.caughtUp()
	other()
	stop()
	r.requireOnce(6000)
	r.requireNoAttempt()
}

// cutOff has the standby follow no longer.
func (r *replicated) cutOff() {
	r.t.Helper()
	hba := filepath.Join(r.primary.Dir(), "pg_hba.conf")
	rules, err := os.ReadFile(hba)
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(hba, append([]byte("host replication all all reject\n"), rules...), 0o600))
	r.exec(`select pg_reload_conf()`)
	require.Eventually(r.t, func() bool {
		r.exec(`select pg_terminate_backend(pid) from pg_stat_replication`)
		return r.count(`select count(*) from pg_stat_replication`) == 0
	}, 3*time.Minute, 20*time.Millisecond)
}
