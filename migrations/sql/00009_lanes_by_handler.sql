-- +goose Up

-- A lane says whose it is, so that a handler's due lanes are found without a look at each of its tenants' scopes.
alter table firstseen.lanes
    add column inbox text collate "C",
    add column handler text collate "C";
update firstseen.lanes l
set inbox = s.inbox, handler = s.handler
from firstseen.scopes s
where s.scope_id = l.scope_id;
alter table firstseen.lanes
    alter column inbox set not null,
    alter column handler set not null;
drop index firstseen.lanes_due;
create index lanes_due on firstseen.lanes (inbox, handler, due_at);

-- open_lanes holds the lanes of messages that are being parked until the transaction ends, and opens those that are
-- not there. Without the hold a worker might find a lane empty and remove it before the messages are committed. A
-- key-share lock goes together with the lock of the lane's worker: its handlers are not waited for, only a removal,
-- which is the last thing that a worker does before its commit.
-- +goose StatementBegin
create or replace function firstseen.open_lanes(
    p_scopes int[], p_lanes uuid[], p_due_ms bigint[], p_topics text[], p_partitions int[])
returns void
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_wanted int := (select count(distinct (m.scope_id, m.lane)) from unnest(p_scopes, p_lanes) m (scope_id, lane));
    v_held   int;
begin
    loop
        insert into lanes (scope_id, lane, due_at, inbox, handler, topic, "partition")
        select m.scope_id, m.lane, now() + m.due_ms * interval '1 ms', s.inbox, s.handler, m.topic, m."partition"
        from (
            select u.scope_id, u.lane, min(u.due_ms) as due_ms, min(u.topic) as topic, min(u."partition") as "partition"
            from unnest(p_scopes, p_lanes, p_due_ms, p_topics, p_partitions) u (scope_id, lane, due_ms, topic, "partition")
            group by u.scope_id, u.lane) m
        join scopes s using (scope_id)
        order by m.scope_id, m.lane
        on conflict do nothing;

        select count(*) into v_held
        from (
            select l.lane
            from (select distinct u.scope_id, u.lane from unnest(p_scopes, p_lanes) u (scope_id, lane)) m
            join lanes l using (scope_id, lane)
            order by l.scope_id, l.lane
            for key share of l) held;
        exit when v_held = v_wanted; -- else one was removed in between: open it again
    end loop;
end
$$;
-- +goose StatementEnd

-- claim_lanes takes due lanes for a worker, whose transaction then locks them, but none that an operator has paused.
-- Until it does, or if it dies, p_lease keeps others away. claims counts how often a lane was taken since it last got
-- anywhere: a message that kills the process shows by it.
-- It reads the handler's lanes in the order of their time and no further than now: where nothing is due it costs
-- nothing, however many wait and whoever's they are. The planner, who can't know how few are asked for, is kept from
-- reading and sorting all of them; a volatile clock would keep it from stopping at now.
-- +goose StatementBegin
create or replace function firstseen.claim_lanes(p_inbox text, p_handler text, p_limit int, p_lease_ms bigint)
returns table (scope_id int, tenant text, lane uuid, claims int, claim int)
language sql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
    with paused as materialized (
        select coalesce(array_agg(p.name) filter (where p.kind = 'topic'), '{}') as topics,
               coalesce(array_agg(p.name || '/' || p."partition") filter (where p.kind = 'partition'), '{}') as partitions,
               coalesce(bool_or(p.kind = 'handler' and p.name = p_handler), false) as handler
        from pauses p
        where p.inbox = p_inbox),
    due as materialized (
        select l.scope_id, l.lane
        from lanes l
        where l.inbox = p_inbox and l.handler = p_handler and l.due_at <= statement_timestamp()
          and not (select p.handler from paused p)
          and l.topic <> all ((select p.topics from paused p)::text[])
          and concat(l.topic, '/', l."partition") <> all ((select p.partitions from paused p)::text[])
        order by l.due_at
        limit p_limit
        for no key update skip locked),
    claimed as (
        update lanes l
        set claims = l.claims + 1, claim = l.claim + 1, due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
        from due d
        where l.scope_id = d.scope_id and l.lane = d.lane
        returning l.scope_id, l.lane, l.claims, l.claim)
    select c.scope_id, s.tenant, c.lane, c.claims, c.claim
    from claimed c
    join scopes s using (scope_id);
$$;
-- +goose StatementEnd

-- load_lanes begins a worker's transaction: it locks the lanes that are still claimed as the worker knows, and gives
-- the first messages of each, in order, up to p_bytes in all but at least one. A lane whose messages are none, or too
-- many for that, gives one row of nulls. A lock is waited for: it can only be that of a connection that this worker
-- has just cut, or of somebody who is done in a moment.
-- +goose StatementBegin
create or replace function firstseen.load_lanes(p_scopes int[], p_lanes uuid[], p_claims int[], p_each int, p_bytes bigint)
returns table (scope_id int, lane uuid, message_id uuid, raw_id text, topic text, "partition" int, "offset" bigint,
               produced_at timestamptz, attempts int, parked_at timestamptz,
               key bytea, headers bytea, payload bytea)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_scopes       int[];
    v_lanes        uuid[];
    v_lock_timeout text := current_setting('lock_timeout');
begin
    perform set_config('firstseen_tx.batch', pg_current_xact_id()::text, true);
    insert into unsealed default values;
    perform set_config('lock_timeout', '3s', true);
    select array_agg(h.scope_id), array_agg(h.lane) into v_scopes, v_lanes
    from (
        select l.scope_id, l.lane
        from unnest(p_scopes, p_lanes, p_claims) c (scope_id, lane, claim)
        join lanes l on l.scope_id = c.scope_id and l.lane = c.lane and l.claim = c.claim
        order by l.scope_id, l.lane
        for no key update of l) h;
    perform set_config('lock_timeout', v_lock_timeout, true);
    -- A statement of its own, so that it sees what became of the messages before the locks were granted. What is sorted
    -- and summed up are keys and sizes; contents are fetched for those messages only that are given. Headers take up to
    -- six times the memory in the worker that they take here.
    return query
    with first as (
        select h.ordinal, h.scope_id, h.lane, m."offset", m.message_id,
               sum(m.size) over in_order as total,
               count(m.message_id) over in_order as place,
               lag(h.ordinal) over in_order is distinct from h.ordinal as head
        from unnest(v_scopes, v_lanes) with ordinality h (scope_id, lane, ordinal)
        left join lateral (
            select p."offset", p.message_id,
                   coalesce(octet_length(p.payload), 0) + 6 * coalesce(octet_length(p.headers), 0) + coalesce(octet_length(p.key), 0) as size
            from parked p
            where p.scope_id = h.scope_id and p.lane = h.lane
            order by p."offset", p.message_id
            limit p_each) m on true
        window in_order as (order by h.ordinal, m."offset", m.message_id rows unbounded preceding))
    select f.scope_id, f.lane, p.message_id, p.raw_id, p.topic, p."partition", p."offset",
           p.produced_at, p.attempts, p.parked_at, p.key, p.headers, p.payload
    from first f
    left join parked p on (f.total <= p_bytes or f.place <= 1)
        and p.scope_id = f.scope_id and p.lane = f.lane and p."offset" = f."offset" and p.message_id = f.message_id
    where f.head or f.total <= p_bytes or f.place <= 1
    order by f.ordinal, f."offset", f.message_id;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- load_lanes begins a worker's transaction: it locks the lanes that are still claimed as the worker knows, and gives
-- the first messages of each, in order, up to p_bytes in all but at least one. A lane whose messages are none, or too
-- many for that, gives one row of nulls. A lock is waited for: it can only be that of a connection that this worker
-- has just cut, or of somebody who is done in a moment.
-- +goose StatementBegin
create or replace function firstseen.load_lanes(p_scopes int[], p_lanes uuid[], p_claims int[], p_each int, p_bytes bigint)
returns table (scope_id int, lane uuid, message_id uuid, raw_id text, topic text, "partition" int, "offset" bigint,
               produced_at timestamptz, attempts int, parked_at timestamptz,
               key bytea, headers bytea, payload bytea)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_scopes       int[];
    v_lanes        uuid[];
    v_lock_timeout text := current_setting('lock_timeout');
begin
    perform set_config('firstseen_tx.batch', pg_current_xact_id()::text, true);
    insert into unsealed default values;
    perform set_config('lock_timeout', '3s', true);
    select array_agg(h.scope_id), array_agg(h.lane) into v_scopes, v_lanes
    from (
        select l.scope_id, l.lane
        from unnest(p_scopes, p_lanes, p_claims) c (scope_id, lane, claim)
        join lanes l on l.scope_id = c.scope_id and l.lane = c.lane and l.claim = c.claim
        order by l.scope_id, l.lane
        for no key update of l) h;
    perform set_config('lock_timeout', v_lock_timeout, true);
    -- A statement of its own, so that it sees what became of the messages before the locks were granted.
    return query
    with first as (
        select h.ordinal, h.scope_id, h.lane, m.*,
               sum(coalesce(octet_length(m.payload), 0) + coalesce(octet_length(m.headers), 0) + coalesce(octet_length(m.key), 0))
                   over (order by h.ordinal, m."offset", m.message_id rows unbounded preceding) as total,
               row_number() over (order by h.ordinal, m."offset", m.message_id) as place
        from unnest(v_scopes, v_lanes) with ordinality h (scope_id, lane, ordinal)
        cross join lateral (
            select p.message_id, p.raw_id, p.topic, p."partition", p."offset", p.produced_at, p.attempts, p.parked_at,
                   p.key, p.headers, p.payload
            from parked p
            where p.scope_id = h.scope_id and p.lane = h.lane
            order by p."offset", p.message_id
            limit p_each) m)
    select h.scope_id, h.lane, f.message_id, f.raw_id, f.topic, f."partition", f."offset",
           f.produced_at, f.attempts, f.parked_at, f.key, f.headers, f.payload
    from unnest(v_scopes, v_lanes) with ordinality h (scope_id, lane, ordinal)
    left join first f on f.ordinal = h.ordinal and (f.total <= p_bytes or f.place = 1)
    order by h.ordinal, f."offset", f.message_id;
end
$$;
-- +goose StatementEnd

-- claim_lanes takes due lanes for a worker, whose transaction then locks them, but none that an operator has paused.
-- Until it does, or if it dies, p_lease keeps others away. claims counts how often a lane was taken since it last got
-- anywhere: a message that kills the process shows by it.
-- +goose StatementBegin
create or replace function firstseen.claim_lanes(p_inbox text, p_handler text, p_limit int, p_lease_ms bigint)
returns table (scope_id int, tenant text, lane uuid, claims int, claim int)
language sql
set search_path = firstseen, pg_temp
as $$
    with paused as materialized (
        select coalesce(array_agg(p.name) filter (where p.kind = 'topic'), '{}') as topics,
               coalesce(array_agg(p.name || '/' || p."partition") filter (where p.kind = 'partition'), '{}') as partitions,
               coalesce(bool_or(p.kind = 'handler' and p.name = p_handler), false) as handler
        from pauses p
        where p.inbox = p_inbox),
    due as (
        select s.scope_id, s.tenant, l.lane
        from scopes s
        cross join lateral (
            select l.lane
            from lanes l
            where l.scope_id = s.scope_id and l.due_at <= clock_timestamp()
              and l.topic <> all ((select p.topics from paused p)::text[])
              and concat(l.topic, '/', l."partition") <> all ((select p.partitions from paused p)::text[])
            order by l.due_at
            limit p_limit
            for no key update skip locked) l
        where s.inbox = p_inbox and s.handler = p_handler and not (select p.handler from paused p)
        limit p_limit)
    update lanes l
    set claims = l.claims + 1, claim = l.claim + 1, due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
    from due d
    where l.scope_id = d.scope_id and l.lane = d.lane
    returning l.scope_id, d.tenant, l.lane, l.claims, l.claim;
$$;
-- +goose StatementEnd

-- open_lanes holds the lanes of messages that are being parked until the transaction ends, and opens those that are
-- not there. Without the hold a worker might find a lane empty and remove it before the messages are committed. A
-- key-share lock goes together with the lock of the lane's worker: its handlers are not waited for, only a removal,
-- which is the last thing that a worker does before its commit.
-- +goose StatementBegin
create or replace function firstseen.open_lanes(
    p_scopes int[], p_lanes uuid[], p_due_ms bigint[], p_topics text[], p_partitions int[])
returns void
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_wanted int := (select count(distinct (m.scope_id, m.lane)) from unnest(p_scopes, p_lanes) m (scope_id, lane));
    v_held   int;
begin
    loop
        insert into lanes (scope_id, lane, due_at, topic, "partition")
        select m.scope_id, m.lane, now() + min(m.due_ms) * interval '1 ms', min(m.topic), min(m."partition")
        from unnest(p_scopes, p_lanes, p_due_ms, p_topics, p_partitions) m (scope_id, lane, due_ms, topic, "partition")
        group by m.scope_id, m.lane
        order by m.scope_id, m.lane
        on conflict do nothing;

        select count(*) into v_held
        from (
            select l.lane
            from (select distinct u.scope_id, u.lane from unnest(p_scopes, p_lanes) u (scope_id, lane)) m
            join lanes l using (scope_id, lane)
            order by l.scope_id, l.lane
            for key share of l) held;
        exit when v_held = v_wanted; -- else one was removed in between: open it again
    end loop;
end
$$;
-- +goose StatementEnd

drop index firstseen.lanes_due;
create index lanes_due on firstseen.lanes (scope_id, due_at);
alter table firstseen.lanes drop column inbox, drop column handler;
