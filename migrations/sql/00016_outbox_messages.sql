-- +goose Up

-- outbox_messages has each message that was added to the outbox, whatever has become of it, as long as it is kept: once it is
-- sent, until retention drops its day of the inbox. Its statuses are those of an inbox: pending ones no attempt has failed on,
-- failed ones are to be tried again, processed ones are sent, dead ones were given up. outbox_id is in the order that messages
-- were added in, and lies_in the table that has the message now. What is null is not so, or not yet.
--
-- Say lies_in: other tables are not read then. An index leads through what lies in outbox in the order of
-- (topic, shard, outbox_id), in outbox_delayed of outbox_id and of due_at, in inbox of taken_at, in dead_letters of died_at.
create view firstseen.outbox_messages as
select case when m.status <> 'parked' then m.status when m.retry_count = 0 then 'pending' else 'failed' end as status,
    m.lies_in, m.outbox_id, m.shard, m.topic, coalesce(m.tenant, s.tenant) as tenant, m.message_id,
    coalesce(m.raw_id, (select k.message_id::text from firstseen.outbox_keys k
        where k.tenant = coalesce(m.tenant, s.tenant) and k.message_id = m.message_id)) as idempotency_key,
    s.handler as destination, m.created_at, m.due_at, m.taken_at, m.processed_at, m.died_at, m.retry_count,
    coalesce(m.due_at, (select l.due_at from firstseen.lanes l where l.scope_id = m.scope_id and l.lane = m.lane))
        as next_attempt_at,
    m.reason, left(m.error, 2000) as error, m.key, m.headers, m.payload
from (
    select 'pending'::text as status, 'outbox'::text as lies_in, o.outbox_id, o.shard, o.topic, o.tenant,
        o.message_id, o.raw_id, o.added_at as created_at, o.due_at, null::timestamptz as taken_at,
        null::timestamptz as processed_at, null::timestamptz as died_at, 0 as retry_count, null::text as reason,
        null::text as error, null::int as scope_id, null::uuid as lane, o.key, o.headers, o.payload
    from firstseen.outbox o
    union all
    select 'pending'::text, 'outbox_delayed'::text, o.outbox_id, o.shard, o.topic, o.tenant, o.message_id, o.raw_id,
        o.added_at, o.due_at, null::timestamptz, null::timestamptz, null::timestamptz, 0, null::text, null::text, null::int,
        null::uuid, o.key, o.headers, o.payload
    from firstseen.outbox_delayed o
    union all
    select 'parked'::text, 'parked'::text, p."offset", least(p."partition", 16)::smallint, p.topic, null::text,
        p.message_id, p.raw_id, p.produced_at, null::timestamptz, p.received_at, null::timestamptz, null::timestamptz, p.attempts,
        p.reason, p.error, p.scope_id, p.lane, p.key, p.headers, p.payload
    from firstseen.parked p
    union all
    select 'processed'::text, 'inbox'::text, i."offset", least(i."partition", 16)::smallint, i.topic, null::text,
        i.message_id, i.raw_id, i.produced_at, null::timestamptz, i.received_at, i.processed_at, null::timestamptz, i.attempts,
        null::text, null::text, i.scope_id, null::uuid, i.key, i.headers, i.payload
    from firstseen.inbox i
    union all
    select 'dead'::text, 'dead_letters'::text, d."offset", least(d."partition", 16)::smallint, d.topic, null::text,
        d.message_id, d.raw_id, d.produced_at, null::timestamptz, d.received_at, null::timestamptz, d.died_at, d.attempts,
        d.reason, d.error, d.scope_id, null::uuid, d.key, d.headers, d.payload
    from firstseen.dead_letters d
) m
left join firstseen.scopes s on s.scope_id = m.scope_id
where m.lies_in in ('outbox', 'outbox_delayed') or s.inbox = 'outbox';

-- +goose Down
drop view firstseen.outbox_messages;
