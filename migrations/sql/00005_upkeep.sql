-- +goose Up

-- Leads from an ID to its parked message: an ID is not forgotten while its message is unfinished.
create index parked_message on firstseen.parked (message_id);

-- What retention has deleted: the IDs of a handler that were first seen before a time, or, without names, the days of the
-- table inbox, which all inboxes share.
create table firstseen.upkeep (
    inbox   text not null,
    handler text not null,
    before  timestamptz not null, -- what is older may be gone
    swept   timestamptz,          -- what is older is gone: all was looked through
    removed bigint not null,      -- IDs, or days, since ever
    at      timestamptz not null default now(),
    actor   text not null,
    why     text not null,
    noted   timestamptz,          -- what the last entry in audit says was to go: chunks of one run share one
    primary key (inbox, handler)
);

-- The least ages that retention keeps, whoever asks for less. They are the schema owner's to change.
create table firstseen.upkeep_limits (
    one_row boolean primary key default true check (one_row),
    ids     interval not null default '1 hour',
    inbox   interval not null default '1 day'
);
insert into firstseen.upkeep_limits default values;

-- rerun gives processed messages back to their handlers, each once: whoever comes second finds nothing. The messages
-- are named by the inbox's primary key, with the lanes that they are to wait in. It returns how many were there, and the
-- lanes that wake_lanes has to be called for after the commit. A message whose ID was forgotten is not moved.
-- Positions are locked first, for the same reason as in redrive: call it with messages of one partition at a time.
-- The advisory lock keeps forget_ids away, which must see the messages either in the inbox or parked.
-- It runs as the schema's owner, so that an operator needs no right to delete or to insert.
-- +goose StatementBegin
create or replace function firstseen.rerun(
    p_received timestamptz[], p_seqs bigint[], p_lanes uuid[], p_actor text, p_why text,
    out moved int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_scopes     int[];
    v_lanes      uuid[];
    v_topics     text[];
    v_partitions int[];
begin
    perform from positions p
    where (p.topic, p."partition") in (
        select i.topic, i."partition"
        from unnest(p_received, p_seqs) m (received_at, seq)
        join inbox i using (received_at, seq))
    order by p.position_id
    for no key update;

    perform pg_advisory_xact_lock_shared('message_dedup'::regclass::oid::int, 0);
    perform from unnest(p_received, p_seqs) m (received_at, seq)
    join inbox i using (received_at, seq)
    order by i.received_at, i.seq
    for update of i;

    with gone as (
        delete from inbox i using unnest(p_received, p_seqs, p_lanes) m (received_at, seq, lane)
        where i.received_at = m.received_at and i.seq = m.seq
          and exists (select from message_dedup d
                      where d.scope_id = i.scope_id and d.message_id = i.message_id and d.first_seen_at = i.received_at)
        returning i.*, m.lane),
    audited as (
        insert into audit (actor, action, why, scope_id, message_id)
        select p_actor, 'rerun', p_why, scope_id, message_id from gone),
    parked_again as (
        insert into parked (received_at, seq, "offset", produced_at, scope_id, "partition", lane, message_id, topic,
                            raw_id, key, headers, payload)
        select received_at, seq, coalesce("offset", seq), produced_at, scope_id, "partition", lane, message_id, topic,
               raw_id, key, headers, payload
        from gone
        returning scope_id, lane, topic, "partition")
    select count(*), array_agg(scope_id), array_agg(lane), array_agg(topic), array_agg("partition")
    into moved, v_scopes, v_lanes, v_topics, v_partitions
    from parked_again;
    if moved = 0 then
        return;
    end if;

    perform open_lanes(v_scopes, v_lanes, array_fill(0::bigint, array[moved]), v_topics, v_partitions);
    update positions p set has_lanes = true
    where (p.topic, p."partition") in (select * from unnest(v_topics, v_partitions)) and not p.has_lanes;
    select w.busy_scopes, w.busy_lanes into busy_scopes, busy_lanes from wake_lanes(v_scopes, v_lanes, 0) w;
end
$$;
-- +goose StatementEnd

-- forget_ids deletes, among p_pages pages of message_dedup from page p_from on, the IDs that these handlers of the inbox first
-- saw before the handler's time. IDs whose message is parked or a dead letter stay. It returns how many were deleted and
-- the page to go on at: null after the last one, p_from where a rerun is just going on.
-- Pages, and not the primary key, because the table lies in the order of time: a few pages hold all that a chunk needs.
-- It waits for no lock, and nothing but a copy of an ID that it is just deleting waits for it: it can't be part of a
-- deadlock. A lost commit is no loss, so the disk is not waited for either.
-- What it may never do, whoever calls it, is in upkeep_limits; what it did is in upkeep, and in audit
-- once for each handler, time, actor and reason: once a run. It runs as the schema's owner, so that nobody else needs the right to delete an ID.
-- +goose StatementBegin
create or replace function firstseen.forget_ids(
    p_inbox text, p_handlers text[], p_before timestamptz[], p_from bigint, p_pages int, p_actor text, p_why text,
    out forgotten bigint, out next_page bigint)
language plpgsql
security definer
set search_path = firstseen, pg_temp
set timezone = 'UTC'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_least  interval := (select ids from upkeep_limits);
    v_latest timestamptz := (select max(b) from unnest(p_before) b);
    v_end    bigint := pg_relation_size('message_dedup') / current_setting('block_size')::int;
    v_low    tid := format('(%s,0)', p_from)::tid;
    v_high   tid := format('(%s,0)', p_from + p_pages)::tid;
    v_places tid[];
begin
    forgotten := 0;
    if v_latest is null or v_least is null or v_latest > now() - v_least then
        raise exception 'the IDs of the last % are kept, and those first seen before % were to be forgotten', v_least, v_latest
            using errcode = 'FS004', hint = 'The schema''s owner may change this in the table upkeep_limits.';
    end if;
    if p_pages not between 1 and 100000 or p_from < 0 then
        raise exception 'forget_ids: % pages from % are not from 1 to 100000', p_pages, p_from;
    end if;
    if not pg_try_advisory_xact_lock('message_dedup'::regclass::oid::int, 0) then
        next_page := p_from;
        return;
    end if;
    perform set_config('synchronous_commit', 'off', true);

    with old as materialized (
        select d.ctid as place, d.scope_id, d.message_id, d.first_seen_at
        from message_dedup d
        where d.ctid >= v_low and d.ctid < v_high and d.first_seen_at < v_latest)
    select array_agg(o.place) into v_places
    from old o
    join scopes s on s.scope_id = o.scope_id and s.inbox = p_inbox
    join unnest(p_handlers, p_before) w (handler, before) on w.handler = s.handler and o.first_seen_at < w.before
    where not exists (select from parked p where p.scope_id = o.scope_id and p.message_id = o.message_id)
      and not exists (select from dead_letters l where l.scope_id = o.scope_id and l.message_id = o.message_id);

    if v_places is not null then
        with gone as (
            delete from message_dedup d
            where d.ctid = any (v_places) and d.first_seen_at < v_latest
            returning d.scope_id),
        counted as materialized (
            select w.handler, w.before, count(*) as n
            from gone g
            join scopes s using (scope_id)
            join unnest(p_handlers, p_before) w (handler, before) on w.handler = s.handler
            group by w.handler, w.before),
        audited as (
            insert into audit (actor, action, why, inbox, subject)
            select p_actor, 'forget', p_why, p_inbox, format('IDs of handler %s first seen before %s', c.handler, c.before)
            from counted c
            where not exists (
                select from upkeep u
                where u.inbox = p_inbox and u.handler = c.handler and u.actor = p_actor and u.why = p_why and u.noted = c.before)),
        noted as (
            insert into upkeep (inbox, handler, before, removed, actor, why, noted)
            select p_inbox, c.handler, c.before, c.n, p_actor, p_why, c.before from counted c
            on conflict (inbox, handler) do update
            set before = greatest(upkeep.before, excluded.before), removed = upkeep.removed + excluded.removed,
                at = excluded.at, actor = excluded.actor, why = excluded.why, noted = excluded.noted)
        select coalesce(sum(n), 0) into forgotten from counted;
    end if;
    if p_from + p_pages < v_end then
        next_page := p_from + p_pages;
        return;
    end if;
    insert into upkeep (inbox, handler, before, swept, removed, actor, why)
    select p_inbox, w.handler, w.before, w.before, 0, p_actor, p_why
    from unnest(p_handlers, p_before) w (handler, before)
    order by w.handler
    on conflict (inbox, handler) do update
    set before = greatest(upkeep.before, excluded.before), swept = greatest(upkeep.swept, excluded.swept), at = excluded.at;
end
$$;
-- +goose StatementEnd

-- drop_inbox_day empties one day (UTC) of the inbox, and when it is empty drops its table. Emptying locks that day only,
-- which new messages have no business in; dropping locks the inbox for a moment. Neither is waited for longer than
-- accept may wait behind it: busy says to try again later.
-- +goose StatementBegin
create or replace function firstseen.drop_inbox_day(p_inbox text, p_day date, p_actor text, p_why text)
returns text -- gone, dropped, emptied or busy
language plpgsql
security definer
set search_path = firstseen, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set lock_timeout = '40ms'
as $$
declare
    v_least interval := (select inbox from upkeep_limits);
    v_name  text := 'inbox_' || to_char(p_day, 'YYYYMMDD');
begin
    if p_day is null or v_least is null or p_day < date '2000-01-01' -- to_char writes a year BC like one AD
       or (p_day + 1)::timestamptz > now() - v_least then
        raise exception 'the inbox of the last % is kept, and the day % was to be dropped', v_least, p_day
            using errcode = 'FS004', hint = 'The schema''s owner may change this in the table upkeep_limits.';
    end if;
    if to_regclass('firstseen.' || v_name) is null then
        return 'gone';
    end if;
    if pg_relation_size(to_regclass('firstseen.' || v_name)) > 0 then
        execute format('truncate table %I', v_name);
        insert into audit (actor, action, why, inbox, subject) values (p_actor, 'drop', p_why, p_inbox, 'inbox day ' || p_day);
        insert into upkeep (inbox, handler, before, removed, actor, why)
        values ('', '', (p_day + 1)::timestamptz, 1, p_actor, p_why)
        on conflict (inbox, handler) do update
        set before = greatest(upkeep.before, excluded.before), removed = upkeep.removed + 1,
            at = excluded.at, actor = excluded.actor, why = excluded.why;
        return 'emptied';
    end if;
    execute format('drop table %I', v_name);
    return 'dropped';
exception when lock_not_available then
    return 'busy';
end
$$;
-- +goose StatementEnd

-- trim_inbox deletes up to p_limit rows that were received before a time and had no day of their own, and returns how many
-- it found. It is in audit once a run, as with forget_ids.
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

-- Until roles.sql is run again nobody but the owner may call these: functions are everybody's by default.
revoke execute on function firstseen.rerun, firstseen.forget_ids, firstseen.drop_inbox_day, firstseen.trim_inbox from public;

-- +goose Down
drop function firstseen.trim_inbox, firstseen.drop_inbox_day, firstseen.forget_ids, firstseen.rerun;
drop table firstseen.upkeep_limits, firstseen.upkeep;
drop index firstseen.parked_message;
