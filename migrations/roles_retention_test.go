package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/operate"
)

// withOldID adds a message that was processed three days ago in the inbox "test", with a day of the inbox that old.
func withOldID(t *testing.T, db roleDB) uuid.UUID {
	t.Helper()
	store, err := dedup.Open(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	scopes, err := store.Scopes(t.Context(), []dedup.ScopeKey{{Handler: "h"}})
	require.NoError(t, err)
	m := dedup.Message{ID: uuid.New(), Topic: "orders"}
	tx, err := store.Accept(t.Context(), &dedup.Batch{Entries: []dedup.Entry{{Scope: scopes.IDs[0], Message: &m}}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	day := deduptest.InboxDay(t, db.Pool, 3)
	_, err = db.Pool.Exec(t.Context(),
		`alter table firstseen.inbox_`+day.Format("20060102")+` owner to firstseen_owner;
		update firstseen.inbox set received_at = received_at - interval '3 days';
		update firstseen.message_dedup set first_seen_at = first_seen_at - interval '3 days'`,
		pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return m.ID
}

func TestRetentionIsDoneWithTheRoleForItAndWithNoOther(t *testing.T) {
	db := withRoles(t, "")
	withOldID(t, db)
	before := time.Now().Add(-48 * time.Hour)
	by := operate.By{Actor: "night shift", Why: "test"}
	for _, member := range []string{"firstseen_consumer", "firstseen_operator"} {
		store, err := dedup.Attach(t.Context(), login(t, db.DB, member), dedup.Config{Inbox: "test"})
		require.NoError(t, err)
		_, err = operate.Of(store).ForgetIDs(t.Context(), map[string]time.Time{"h": before}, by)
		require.Equal(t, denied, code(err), "%s: %v", member, err)
		_, err = operate.Of(store).DropInbox(t.Context(), before, by)
		require.Equal(t, denied, code(err), "%s: %v", member, err)
		_, err = operate.Of(store).Size(t.Context())
		require.NoError(t, err)
	}

	name := db.login // a consumer whose operator has granted it
	_, err := db.Pool.Exec(t.Context(), `grant firstseen_retention to `+name)
	require.NoError(t, err)
	store, err := dedup.Attach(t.Context(), db.consumer, dedup.Config{Inbox: "test"})
	require.NoError(t, err)
	require.NoError(t, operate.Of(store).Exclusively(t.Context(), func(ctx context.Context) error {
		_, err := operate.Of(store).AllPositions(ctx, 0)
		require.NoError(t, err)
		n, err := operate.Of(store).ForgetIDs(ctx, map[string]time.Time{"h": before}, by)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		dropped, err := operate.Of(store).DropInbox(ctx, before, by)
		require.NoError(t, err)
		require.Equal(t, 1, dropped.Days)
		return nil
	}))
	for _, sql := range []string{`delete from firstseen.message_dedup`, `update firstseen.upkeep_limits set ids = '0'`,
		`delete from firstseen.upkeep`, `insert into firstseen.upkeep_limits (ids) values ('0')`,
		`drop table firstseen.inbox_default`, `delete from firstseen.inbox`} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
	_, err = db.consumer.Exec(t.Context(),
		`select firstseen.forget_ids('test', '{h}', array[now() - interval '59 min'], 0, 1, 'me', 'x')`)
	require.Equal(t, "FS004", code(err), "%v", err)
	_, err = db.consumer.Exec(t.Context(), `select firstseen.drop_inbox_day('test', current_date, 'me', 'x')`)
	require.Equal(t, "FS004", code(err), "%v", err)
}

func TestOperatorRoleRerunsAndConsumerRoleDoesNot(t *testing.T) {
	db := withRoles(t, "")
	id := withOldID(t, db)
	by := operate.By{Actor: "night shift", Why: "test"}
	rerun := func(member string) (int, error) {
		store, err := dedup.Attach(t.Context(), login(t, db.DB, member), dedup.Config{Inbox: "test"})
		require.NoError(t, err)
		return operate.Of(store).Rerun(t.Context(),
			operate.RerunFilter{Filter: operate.Filter{Handler: "h", IDs: []uuid.UUID{id}}}, by)
	}
	_, err := rerun("firstseen_consumer")
	require.Equal(t, denied, code(err), "%v", err)
	n, err := rerun("firstseen_operator")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
