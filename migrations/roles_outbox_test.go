package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/handlers/outbox"
)

func TestSenderRoleAddsToTheOutboxAndCanDoNothingElse(t *testing.T) {
	db := withRoles(t, "")
	sender := login(t, db.DB, "firstseen_sender")
	var writer outbox.Writer
	_, err := writer.Add(t.Context(), sender, outbox.Message{Topic: "t", IdempotencyKey: "k"})
	require.NoError(t, err)
	_, err = writer.AddAll(t.Context(), sender, []outbox.Message{{Topic: "t"}, {Topic: "t", IdempotencyKey: "k"}})
	require.NoError(t, err)
	for _, sql := range []string{`select firstseen.send('t', 'x')`, `select firstseen.send('t', 'x'::bytea, p_key => 'k')`,
		`select firstseen.send('t', '{}'::jsonb, p_idempotency_key => 'k', p_headers => '{"a": "b"}')`} {
		_, err := sender.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, sql := range []string{
		`select from firstseen.outbox`, `delete from firstseen.outbox`, `select from firstseen.outbox_keys`,
		`select from firstseen.outbox_delayed`, `select from firstseen.outbox_messages`, `select from firstseen.inbox`,
		`update firstseen.outbox_shards set shard = 1`, `select firstseen.open_outbox_shards('{t}')`,
		`insert into firstseen.outbox_keys (tenant, message_id) values ('', gen_random_uuid())`,
		`select firstseen.claim_outbox('r', '{t}', 0, 1, 1)`, `select firstseen.release_outbox(1)`,
		`select firstseen.drop_outbox('t', 0::smallint, '{}')`, `select nextval('firstseen.outbox_seq')`,
	} {
		_, err := sender.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
	for _, sql := range []string{`select firstseen.send('t', 'x')`, `select firstseen.open_outbox_shards('{t}')`,
		`select firstseen.load_outbox('t', 0::smallint, '{}')`, `select firstseen.unsent_topics('{}', now())`,
		`select firstseen.claim_outbox('r', '{t}', 0, 1, 1)`,
		`select firstseen.release_outbox(1)`, `select firstseen.drop_outbox('t', 0::smallint, '{}')`} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	operator := login(t, db.DB, "firstseen_operator")
	for _, pool := range []*pgxpool.Pool{db.consumer, operator} {
		var waiting int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from firstseen.outbox_messages where status = 'pending'`).Scan(&waiting))
		require.Positive(t, waiting)
	}
	for _, sql := range []string{`delete from firstseen.outbox_keys`, `update firstseen.outbox set payload = null`} {
		_, err := db.consumer.Exec(t.Context(), sql)
		require.Equal(t, denied, code(err), "%s: %v", sql, err)
	}
}
