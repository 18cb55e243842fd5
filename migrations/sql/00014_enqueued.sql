-- +goose Up

-- Messages that came by HTTP: package handlers/ingress. The message itself is in inbox, parked or dead_letters, as one of
-- Kafka's is; this is what only such a one has. It is written with the message, and goes with it.
create table firstseen.enqueued (
    enqueued_id        bigint generated always as identity primary key,
    inbox              text collate "C" not null,
    tenant             text collate "C" not null,
    topic              text collate "C" not null,
    message_id         uuid not null,
    idempotency_key    text,                -- as the client gave it; null: it gave none
    request_hash       bytea not null,      -- SHA-256 of what was asked for
    template_key       text,                -- null: the content came as it is
    template_version   text,
    template_variables bytea,               -- JSON, byte for byte
    enqueued_by        text not null,       -- the client
    enqueued_at        timestamptz not null default now(),
    unique (inbox, tenant, topic, message_id)
);
create index enqueued_by_time on firstseen.enqueued (enqueued_at, enqueued_id);

-- Whom such a message is from and to.
create table firstseen.participants (
    enqueued_id bigint not null references firstseen.enqueued on delete cascade,
    ordinal     int not null, -- as the client listed them
    role        text not null check (role in ('sender', 'to', 'cc', 'bcc', 'reply-to')),
    address     text not null,
    name        text,
    primary key (enqueued_id, ordinal)
);

-- The lanes whose messages from no partition a transaction is handling. It inserts a row and deletes it, so that there never
-- is one to be seen: who inserts the same waits for that transaction's end. Unlike an advisory lock it takes a right.
create unlogged table firstseen.turns (
    scope_id int not null,
    lane     uuid not null,
    primary key (scope_id, lane)
);

-- take_turns waits for the transactions that have the turns of these lanes, and has them from then on. Each is named once.
-- +goose StatementBegin
create or replace function firstseen.take_turns(p_scopes int[], p_lanes uuid[])
returns void
language sql
set search_path = firstseen, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    insert into turns (scope_id, lane)
    select * from unnest(p_scopes, p_lanes) t (scope_id, lane)
    order by scope_id, lane; -- or two might wait for each other
    delete from turns t using unnest(p_scopes, p_lanes) d (scope_id, lane)
    where t.scope_id = d.scope_id and t.lane = d.lane;
$$;
-- +goose StatementEnd

-- enqueue notes messages that have come by HTTP, in the transaction that makes them: what only they have, their participants
-- and, in the audit, an event for each. Those that are noted already stay as they are. It runs as the schema's owner, so that
-- a consumer can neither change these nor write anything else in the audit.
-- +goose StatementBegin
create or replace function firstseen.enqueue(
    p_inbox text, p_tenant text, p_topic text, p_by text,
    p_ids uuid[], p_keys text[], p_hashes bytea[],
    p_template_keys text[], p_template_versions text[], p_template_variables bytea[],
    p_participants_of uuid[], p_ordinals int[], p_roles text[], p_addresses text[], p_names text[])
returns void
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with fresh as (
        insert into enqueued (inbox, tenant, topic, message_id, idempotency_key, request_hash,
                              template_key, template_version, template_variables, enqueued_by)
        select p_inbox, p_tenant, p_topic, m.*, p_by
        from unnest(p_ids, p_keys, p_hashes, p_template_keys, p_template_versions, p_template_variables) m
        on conflict do nothing
        returning enqueued_id, message_id),
    audited as (
        insert into audit (actor, action, why, inbox, subject, message_id)
        select p_by, 'MessageEnqueued', 'by HTTP', p_inbox, 'topic ' || p_topic, f.message_id
        from fresh f)
    insert into participants (enqueued_id, ordinal, role, address, name)
    select f.enqueued_id, p.ordinal, p.role, p.address, p.name
    from unnest(p_participants_of, p_ordinals, p_roles, p_addresses, p_names) p (message_id, ordinal, role, address, name)
    join fresh f using (message_id);
$$;
-- +goose StatementEnd
revoke execute on function firstseen.enqueue from public;

-- find_messages says what became of messages in the scopes of handlers: a row for each scope that has seen one, without a state
-- where the message is kept no more. Content comes with the first row of a message that has it. States are 0 processed,
-- 1 parked, 2 dead.
-- +goose StatementBegin
create or replace function firstseen.find_messages(p_inbox text, p_tenant text, p_handlers text[], p_ids uuid[])
returns table (message_id uuid, handler text, first_seen_at timestamptz, state int, attempts int, reason text,
               topic text, raw_id text, key bytea, headers bytea, payload bytea)
language sql
stable
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    with seen as materialized (
        select d.scope_id, d.message_id, s.handler, d.first_seen_at
        from scopes s
        cross join unnest(p_ids) w (message_id)
        join message_dedup d on d.scope_id = s.scope_id and d.message_id = w.message_id
        where s.inbox = p_inbox and s.tenant = p_tenant and s.handler = any (p_handlers)),
    found as (
        select seen.*, m.state, m.attempts, m.reason, m.topic, m.raw_id, m.key, m.headers, m.payload,
               row_number() over (partition by seen.message_id order by m.state is null, seen.handler) as nth
        from seen
        left join lateral (
            select 0 as state, i.attempts, null as reason, i.topic, i.raw_id, i.key, i.headers, i.payload
            from inbox i
            where i.received_at = seen.first_seen_at and i.scope_id = seen.scope_id and i.message_id = seen.message_id
            union all
            select 1, p.attempts, p.reason, p.topic, p.raw_id, p.key, p.headers, p.payload
            from parked p
            where p.scope_id = seen.scope_id and p.message_id = seen.message_id
            union all
            select 2, d.attempts, d.reason, d.topic, d.raw_id, d.key, d.headers, d.payload
            from dead_letters d
            where d.scope_id = seen.scope_id and d.message_id = seen.message_id
            limit 1) m on true)
    select f.message_id, f.handler, f.first_seen_at, f.state, f.attempts, f.reason, f.topic, f.raw_id,
           case when f.nth = 1 then f.key end, case when f.nth = 1 then f.headers end, case when f.nth = 1 then f.payload end
    from found f
    order by f.message_id, f.nth;
$$;
-- +goose StatementEnd

-- trim_inbox deletes up to p_limit rows that were received before a time and had no day of their own, and as many of what is
-- kept beside messages that came by HTTP before it and are done; it returns how many it found of the larger of both. It is in
-- audit once a run, as with forget_ids.
-- +goose StatementBegin
create or replace function firstseen.trim_inbox(p_inbox text, p_before timestamptz, p_limit int, p_actor text, p_why text)
returns int
language plpgsql
security definer
set search_path = firstseen, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '40ms'
as $$
declare
    v_least    interval := (select inbox from upkeep_limits);
    v_n        int;
    v_enqueued int;
begin
    if p_before is null or v_least is null or p_before > now() - v_least then
        raise exception 'the inbox of the last % is kept, and what was received before % was to be deleted', v_least, p_before
            using errcode = 'FS004', hint = 'The schema''s owner may change this in the table upkeep_limits.';
    end if;
    perform set_config('synchronous_commit', 'off', true);
    delete from inbox_default i
    using (select received_at, seq from inbox_default where received_at < p_before order by received_at, seq limit p_limit) o
    where i.received_at = o.received_at and i.seq = o.seq;
    get diagnostics v_n = row_count;
    delete from enqueued e
    using (
        select o.enqueued_id
        from enqueued o
        where o.enqueued_at < p_before
          and not exists (select from parked p where p.message_id = o.message_id)
          and not exists (select from scopes s join dead_letters d using (scope_id)
                          where s.inbox = o.inbox and s.tenant = o.tenant and d.message_id = o.message_id)
        order by o.enqueued_at, o.enqueued_id
        limit p_limit) o
    where e.enqueued_id = o.enqueued_id;
    get diagnostics v_enqueued = row_count;
    v_n := greatest(v_n, v_enqueued);
    if v_n > 0 and not exists (
        select from upkeep u
        where u.inbox = '' and u.handler = '' and u.actor = p_actor and u.why = p_why and u.noted = p_before) then
        insert into audit (actor, action, why, inbox, subject)
        values (p_actor, 'drop', p_why, p_inbox, format('inbox rows without a day, received before %s', p_before));
        insert into upkeep (inbox, handler, before, removed, actor, why, noted)
        values ('', '', p_before, 0, p_actor, p_why, p_before)
        on conflict (inbox, handler) do update
        set before = greatest(upkeep.before, excluded.before), at = excluded.at, actor = excluded.actor, why = excluded.why,
            noted = excluded.noted;
    end if;
    return v_n;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
create or replace function firstseen.trim_inbox(p_inbox text, p_before timestamptz, p_limit int, p_actor text, p_why text)
returns int
language plpgsql
security definer
set search_path = firstseen, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '40ms'
as $$
declare
    v_least interval := (select inbox from upkeep_limits);
    v_n     int;
begin
    if p_before is null or v_least is null or p_before > now() - v_least then
        raise exception 'the inbox of the last % is kept, and what was received before % was to be deleted', v_least, p_before
            using errcode = 'FS004', hint = 'The schema''s owner may change this in the table upkeep_limits.';
    end if;
    perform set_config('synchronous_commit', 'off', true);
    delete from inbox_default i
    using (select received_at, seq from inbox_default where received_at < p_before order by received_at, seq limit p_limit) o
    where i.received_at = o.received_at and i.seq = o.seq;
    get diagnostics v_n = row_count;
    if v_n > 0 and not exists (
        select from upkeep u
        where u.inbox = '' and u.handler = '' and u.actor = p_actor and u.why = p_why and u.noted = p_before) then
        insert into audit (actor, action, why, inbox, subject)
        values (p_actor, 'drop', p_why, p_inbox, format('inbox rows without a day, received before %s', p_before));
        insert into upkeep (inbox, handler, before, removed, actor, why, noted)
        values ('', '', p_before, 0, p_actor, p_why, p_before)
        on conflict (inbox, handler) do update
        set before = greatest(upkeep.before, excluded.before), at = excluded.at, actor = excluded.actor, why = excluded.why,
            noted = excluded.noted;
    end if;
    return v_n;
end
$$;
-- +goose StatementEnd
drop function firstseen.find_messages, firstseen.enqueue, firstseen.take_turns;
drop table firstseen.participants, firstseen.enqueued, firstseen.turns;
