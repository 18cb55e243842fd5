-- +goose Up

-- Names are compared by their bytes. Under the database's collation an upgrade of libc or ICU may change their order,
-- and an index then misses rows that are there: a scope that is not found is made anew, and knows no message ID.
-- Each table is locked for as long as its indexes take to build, and its lock is asked for half a second at a time, so
-- that batches wait behind this for no longer.
-- +goose StatementBegin
do $$
begin
    perform set_config('lock_timeout', '500ms', true);
    for attempt in 1 .. 1000 loop
        begin
            lock table firstseen.scopes, firstseen.positions, firstseen.pauses, firstseen.upkeep, firstseen.replays, firstseen.lanes,
                firstseen.conflicts in access exclusive mode;
            exit;
        exception when lock_not_available then
            if attempt = 1000 then
                raise;
            end if;
        end;
        perform pg_sleep(0.5);
    end loop;
    perform set_config('lock_timeout', '0', true);
end
$$;
-- +goose StatementEnd
alter table firstseen.scopes
    alter column inbox type text collate "C",
    alter column handler type text collate "C",
    alter column tenant type text collate "C";
alter table firstseen.positions
    alter column consumer type text collate "C",
    alter column topic type text collate "C";
alter table firstseen.pauses
    alter column inbox type text collate "C",
    alter column kind type text collate "C",
    alter column name type text collate "C";
alter table firstseen.upkeep
    alter column inbox type text collate "C",
    alter column handler type text collate "C";
alter table firstseen.replays
    alter column consumer type text collate "C",
    alter column topic type text collate "C";
alter table firstseen.lanes
    alter column topic type text collate "C";
alter table firstseen.conflicts
    alter column topic type text collate "C";

-- No function below waits at an advisory lock: those are everybody's who can log in, whatever he is granted. What they
-- lock instead are rows and tables of this schema. accept and reset_position follow in migration 10.

-- acquire takes a position for a new owner: it raises the epoch, which fences every transaction that an
-- older owner begins later. An older owner's transaction that is still open after p_grace is ended: the
-- broker has given the partition away, so it can only be a stopped, hung or cut-off process. Only a session is ended
-- that logged in as this one did, or as another consumer; what else holds the row for ten seconds more is named.
-- +goose StatementBegin
create or replace function firstseen.acquire(
    p_consumer text, p_topic text, p_partition int, p_owner text, p_grace interval,
    out position_id int, out epoch bigint, out next_offset bigint, out topic_id uuid, out evicted int,
    out fruitless int, out trial bigint, out trials int)
language plpgsql
set search_path = firstseen, pg_temp
as $$
#variable_conflict use_column
declare
    v_position int;
    v_holder   record;
    v_held_by  text;
begin
    evicted := 0;
    -- Insert only what is missing: an insert that meets a row waits for whoever updates it, without a limit.
    if not exists (
        select from positions p
        where p.consumer = p_consumer and p.topic = p_topic and p."partition" = p_partition) then
        insert into positions (consumer, topic, "partition") values (p_consumer, p_topic, p_partition)
        on conflict do nothing;
    end if;
    select p.position_id into v_position from positions p
    where p.consumer = p_consumer and p.topic = p_topic and p."partition" = p_partition;

    perform set_config('lock_timeout', (extract(epoch from p_grace) * 1000)::int::text, true);
    begin
        perform from positions p where p.position_id = v_position for update;
    exception when lock_not_available then
        -- The row bears the mark of the transaction that holds it, and every transaction holds a lock on its own number.
        for v_holder in
            select l.pid,
                   coalesce(format('session %s of %s (application "%s"%s)', l.pid, a.usename, a.application_name,
                                ', since ' || to_char(a.xact_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')),
                            'a prepared transaction') as session,
                   a.usename = session_user or not r.rolsuper and exists (
                       select from pg_roles f
                       where f.rolname = 'firstseen_consumer' and pg_has_role(a.usesysid, f.oid, 'member')) as consumes
            from positions p
            join pg_locks l on l.locktype = 'transactionid' and l.transactionid = p.xmax and l.mode = 'ExclusiveLock' and l.granted
            left join pg_stat_activity a on a.pid = l.pid
            left join pg_roles r on r.oid = a.usesysid
            where p.position_id = v_position
        loop
            v_held_by := v_holder.session;
            begin
                if v_holder.consumes and pg_terminate_backend(v_holder.pid) then
                    evicted := evicted + 1;
                end if;
            exception when insufficient_privilege then
                null; -- it is named below
            end;
        end loop;
        perform set_config('lock_timeout', '10s', true);
        begin
            perform from positions p where p.position_id = v_position for update;
        exception when lock_not_available then
            raise exception 'position %/% of % is locked by %', p_topic, p_partition, p_consumer, coalesce(v_held_by, 'a session not found')
                using errcode = 'FS005', hint = 'End that session, or grant pg_signal_backend to this login.';
        end;
    end;

    update positions p
    set epoch = p.epoch + 1, owner = p_owner, acquired_at = clock_timestamp(),
        fruitless = greatest(p.fruitless + (p.owner is distinct from p_owner)::int, 1), -- who acquires again lives
        has_lanes = true -- until a batch has looked: another consumer of the inbox may have left some
    where p.position_id = v_position
    returning p.position_id, p.epoch, p.next_offset, p.topic_id, p.fruitless, p.trial, p.trials
    into position_id, epoch, next_offset, topic_id, fruitless, trial, trials;
end
$$;
-- +goose StatementEnd

-- begin_topic sets the positions of all partitions of a topic that the consumer has none in, and says whether it did.
-- +goose StatementBegin
create or replace function firstseen.begin_topic(
    p_consumer text, p_topic text, p_topic_id uuid, p_partitions int[], p_next bigint[])
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    insert into positions (consumer, topic, "partition")
    select p_consumer, p_topic, b."partition"
    from unnest(p_partitions) b ("partition")
    where not exists (select from positions p
                      where p.consumer = p_consumer and p.topic = p_topic and p."partition" = b."partition")
    order by 3
    on conflict do nothing; -- who comes second waits here, and then finds the topic begun
    if exists (select from positions p
               where p.consumer = p_consumer and p.topic = p_topic and p.next_offset is not null) then
        return false;
    end if;
    perform from positions p where p.consumer = p_consumer and p.topic = p_topic order by p."partition" for no key update;
    if exists (select from positions p
               where p.consumer = p_consumer and p.topic = p_topic and p.next_offset is not null) then
        return false;
    end if;
    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
    update positions p
    set next_offset = b.next_offset, topic_id = p_topic_id
    from unnest(p_partitions, p_next) b ("partition", next_offset)
    where p.consumer = p_consumer and p.topic = p_topic and p."partition" = b."partition";
    return true;
end
$$;
-- +goose StatementEnd

-- make_partitions makes the inbox's partitions: see migration 2. Where none is missing it locks nothing.
-- +goose StatementBegin
create or replace function firstseen.make_partitions(p_days int)
returns int
language plpgsql
security definer
set search_path = firstseen, pg_temp
set timezone = 'UTC'
set lock_timeout = '3s'
as $$
declare
    v_made int := 0;
    v_day  date;
    v_name text;
begin
    if p_days not between 0 and 400 then
        raise exception 'make_partitions: % days ahead is not between 0 and 400', p_days;
    end if;
    if not exists (
        select from generate_series(0, p_days) n
        where to_regclass('firstseen.inbox_' || to_char(now()::date + n, 'YYYYMMDD')) is null) then
        return 0;
    end if;
    lock table only inbox in share update exclusive mode; -- whoever makes partitions too waits here
    for v_day in select (now()::date + n) from generate_series(0, p_days) n loop
        v_name := 'inbox_' || to_char(v_day, 'YYYYMMDD');
        continue when to_regclass('firstseen.' || v_name) is not null;
        lock table inbox_default in access exclusive mode;
        execute format('create table %I (like inbox including defaults including constraints)', v_name);
        execute format(
            'with moved as (delete from inbox_default where received_at >= %L and received_at < %L returning *)
             insert into %I select * from moved', v_day::timestamptz, (v_day + 1)::timestamptz, v_name);
        execute format('alter table inbox attach partition %I for values from (%L) to (%L)',
            v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
        v_made := v_made + 1;
    end loop;
    return v_made;
exception when lock_not_available then
    raise warning 'inbox partitions not made: the default partition is in use';
    return 0;
end
$$;
-- +goose StatementEnd

-- rerun gives processed messages back to their handlers: see migration 5. The lock of upkeep_limits keeps forget_ids
-- away, which must see the messages either in the inbox or parked.
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

    lock table upkeep_limits in share mode;
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

-- forget_ids deletes old IDs: see migration 5.
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
    begin
        lock table upkeep_limits in share update exclusive mode nowait; -- against rerun, and another of its own
    exception when lock_not_available then
        next_page := p_from;
        return;
    end;
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

-- claim_upkeep says whether nobody else runs retention on the schema, and keeps others from it until the transaction
-- ends.
-- +goose StatementBegin
create or replace function firstseen.claim_upkeep()
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    lock table upkeep in share update exclusive mode nowait;
    return true;
exception when lock_not_available then
    return false;
end
$$;
-- +goose StatementEnd
revoke execute on function firstseen.claim_upkeep from public;

-- begin_replay sets down the ranges of a replay: see migration 6.
-- +goose StatementBegin
create or replace function firstseen.begin_replay(
    p_consumer text, p_topic text, p_topic_id uuid, p_asked text, p_partitions int[], p_from bigint[], p_to bigint[], p_fresh boolean)
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
set lock_timeout = '10s'
as $$
begin
    lock table replays in share row exclusive mode; -- two that begin at once come one after the other
    if p_fresh then
        delete from replays r where r.consumer = p_consumer and r.topic = p_topic;
    elsif exists (select from replays r where r.consumer = p_consumer and r.topic = p_topic) then
        return false;
    end if;
    insert into replays (consumer, topic, "partition", from_offset, to_offset, asked)
    select p_consumer, p_topic, b."partition", b.from_offset, b.to_offset, p_asked
    from unnest(p_partitions, p_from, p_to) b ("partition", from_offset, to_offset);

    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
    update positions p
    set epoch = p.epoch + 1, next_offset = case when p."partition" = any(p_partitions) then p.next_offset end -- no leftovers
    where p.consumer = p_consumer and p.topic = p_topic;
    insert into positions (consumer, topic, "partition", topic_id, next_offset)
    select p_consumer, p_topic, b."partition", p_topic_id, b.next_offset
    from unnest(p_partitions, p_from) b ("partition", next_offset)
    order by 3
    on conflict (consumer, topic, "partition") do update
    set next_offset = excluded.next_offset, topic_id = excluded.topic_id, fruitless = 0, trial = null, trials = 0;
    return true;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- The functions stay as they are: for an older build they do the same. One is new.
drop function firstseen.claim_upkeep;
alter table firstseen.scopes
    alter column inbox type text collate "default",
    alter column handler type text collate "default",
    alter column tenant type text collate "default";
alter table firstseen.positions
    alter column consumer type text collate "default",
    alter column topic type text collate "default";
alter table firstseen.pauses
    alter column inbox type text collate "default",
    alter column kind type text collate "default",
    alter column name type text collate "default";
alter table firstseen.upkeep
    alter column inbox type text collate "default",
    alter column handler type text collate "default";
alter table firstseen.replays
    alter column consumer type text collate "default",
    alter column topic type text collate "default";
alter table firstseen.lanes
    alter column topic type text collate "default";
alter table firstseen.conflicts
    alter column topic type text collate "default";
