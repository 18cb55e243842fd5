package migrations_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// withDeadLetter adds a message that died in the inbox "test".
func withDeadLetter(t *testing.T, db roleDB) uuid.UUID {
	t.Helper()
	store, err := dedup.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	scopes, err := store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	m := dedup.Message{ID: uuid.New(), Topic: "orders"}
	tx, err := store.Accept(t.Context(), &dedup.Batch{
		Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &m, State: dedup.Dead, Reason: "failed", Lane: m.ID}}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	return m.ID
}

func TestOperatorRoleReadsRedrivesAndDiscards(t *testing.T) {
	db := withRoles(t, "")
	operator := login(t, db.DB, "firstseen_operator")
	store, err := dedup.Attach(t.Context(), operator, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	by := operate.By{Actor: "night shift", Why: "test"}

	id := withDeadLetter(t, db)
	letters, _, err := operate.Of(store).Messages(t.Context(), operate.Listing{Status: operate.StatusDead, Limit: 10})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	_, _, err = operate.Of(store).Conflicts(t.Context(), operate.Filter{}, "", 10)
	require.NoError(t, err)
	n, err := operate.Of(store).Redrive(t.Context(), operate.Filter{}, by)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	withDeadLetter(t, db)
	n, err = operate.Of(store).Discard(t.Context(), operate.Filter{}, by)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	changed, err := operate.Of(store).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"}, by)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = operate.Of(store).Resume(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"}, by)
	require.NoError(t, err)
	require.True(t, changed)
	shown, err := operate.Of(store).Unmask(t.Context(), "h", "", []uuid.UUID{id}, by)
	require.NoError(t, err)
	require.Len(t, shown.Seen, 1)
	e, err := operate.Of(store).ExplainID(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, e.Seen[0].Audit, 2)
	_, err = operate.Of(store).ExplainPlace(t.Context(), "orders", 0, 0, e.Now)
	require.NoError(t, err)
	inboxes, err := dedup.Inboxes(t.Context(), operator, "")
	require.NoError(t, err)
	require.Equal(t, []string{"test"}, inboxes)
}

func TestOperatorRoleCanDoNothingElse(t *testing.T) {
	db := withRoles(t, "")
	withDeadLetter(t, db)
	operator := login(t, db.DB, "firstseen_operator")
	for _, table := range []string{"scopes", "message_dedup", "inbox", "parked", "lanes", "dead_letters", "conflicts",
		"audit", "positions", "unsealed", "pauses", "jobs", "job_messages", "job_replays"} {
		_, err := operator.Exec(t.Context(), `select * from firstseen.`+table)
		require.NoError(t, err, table)
		for _, sql := range []string{`delete from firstseen.` + table, `truncate firstseen.` + table,
			`insert into firstseen.` + table + ` default values`} {
			_, err := operator.Exec(t.Context(), sql)
			require.Equal(t, denied, code(err), "%s: %v", sql, err)
		}
	}
	for _, sql := range []string{
		`update firstseen.dead_letters set payload = null`,
		`update firstseen.audit set actor = 'nobody'`,
		`update firstseen.positions set next_offset = 0`,
		`select nextval('firstseen.message_seq')`,
		`select firstseen.accept(null, null, null, null, null, '{}', '{}', null)`,
		`select firstseen.acquire('c', 't', 0, 'me', '1s')`,
		`select firstseen.reposition(1, 1, 1, null)`,
		`select firstseen.make_partitions(1)`,
		`select firstseen.claim_lanes('test', 'h', 1, 1)`,
		`select firstseen.work_job(gen_random_uuid(), 'me', 1, 1, null)`,
		`select firstseen.sweep_jobs()`,
		`select firstseen.take_replay(gen_random_uuid(), 'me', 1)`,
		`select firstseen.tell_replay(gen_random_uuid(), 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, false, null)`,
		`create table firstseen.mine ()`,
	} {
		_, err := operator.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
	for _, sql := range []string{`select firstseen.redrive('{1}', '{}', 'me', 'x')`,
		`select firstseen.discard('{1}', '{}', 'me', 'x')`,
		`select firstseen.cancel_job(gen_random_uuid(), 'me', 'x')`,
		`select firstseen.pause_job(gen_random_uuid(), true, 'me', 'x')`, `select firstseen.unmask('test', 'x', gen_random_uuid(), 'me', 'x')`,
		`select firstseen.create_replay(gen_random_uuid(), 'test', 'replay/test/x', 'orders', null, 'earliest', 'latest', null, null, false, 1, 'me', 'x')`,
		`insert into firstseen.job_replays default values`, `update firstseen.job_replays set rate = 1`,
		`insert into firstseen.job_messages default values`, `delete from firstseen.job_messages`,
		`insert into firstseen.jobs default values`, `update firstseen.jobs set kind = 'discard'`, `delete from firstseen.jobs`,
		`select firstseen.pause('test', 'topic', 'orders', -1, 'me', 'x')`,
		`select firstseen.resume('test', 'topic', 'orders', -1, 'me', 'x')`,
		`insert into firstseen.pauses (inbox, kind, name, actor, why) values ('test', 'topic', 'orders', 'me', 'x')`,
		`delete from firstseen.pauses`, `delete from firstseen.dead_letters`,
		`insert into firstseen.audit (actor, action, why, scope_id, message_id) select 'a', 'b', 'c', 1, gen_random_uuid()`} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "as the consumer: %s: %v", sql, err)
	}
}

// Who works on a job may neither make one nor do what it does by himself.
func TestOperatorMakesAJobAndTheConsumerDoesIt(t *testing.T) {
	db := withRoles(t, "")
	withDeadLetter(t, db)
	operator, err := operate.Open(t.Context(), login(t, db.DB, "firstseen_operator"), dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	consumer, err := operate.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	by := operate.By{Actor: "night shift", Why: "test"}
	job := operate.NewJob{ID: uuid.New(), Kind: operate.JobRedrive}
	_, _, err = consumer.CreateJob(t.Context(), job, by)
	require.Equal(t, denied, code(err), "%v", err)
	_, _, err = operator.CreateJob(t.Context(), job, by)
	require.NoError(t, err)
	require.Equal(t, denied, code(operator.WorkJobs(t.Context(), "me")))
	require.NoError(t, consumer.WorkJobs(t.Context(), "host-1"))
	n, err := consumer.SweepJobs(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	done, err := operator.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Done)
	_, changed, err := operator.CancelJob(t.Context(), job.ID, by)
	require.NoError(t, err)
	require.False(t, changed)
}
