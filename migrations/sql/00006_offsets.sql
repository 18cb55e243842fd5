-- +goose Up

-- The ranges of replays: where a partition's began and where it is to end. How far it is is a position of the same
-- consumer, which is named replay/GROUP/NAME.
create table firstseen.replays (
    consumer    text not null,
    topic       text not null,
    "partition" int not null,
    from_offset bigint not null,
    to_offset   bigint not null, -- not read any more
    asked       text not null,   -- how the replay was asked for
    begun_at    timestamptz not null default now(),
    primary key (consumer, topic, "partition"),
    check (consumer like 'replay/%'),
    check (from_offset between 0 and to_offset)
);

-- begin_replay sets down the ranges of a replay, and its positions at their beginnings, and says whether it did: where
-- the consumer has some in the topic they stand, unless p_fresh. The epochs rise, which fences a process that still works
-- on the ranges of before; one that is stopped within its transaction is not waited for without end.
-- +goose StatementBegin
create or replace function firstseen.begin_replay(
    p_consumer text, p_topic text, p_topic_id uuid, p_asked text, p_partitions int[], p_from bigint[], p_to bigint[], p_fresh boolean)
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform pg_advisory_xact_lock('positions'::regclass::oid::int, hashtext(p_consumer || ' ' || p_topic));
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

-- reset_position moves a consumer's positions in a topic by an operator's decision, each with a note in the audit. The
-- epochs rise: whoever still owns one of them can commit nothing any more. A transaction that is open on one is waited for.
-- It runs as the schema's owner, so that an operator needs no right to move positions otherwise.
-- +goose StatementBegin
create or replace function firstseen.reset_position(
    p_inbox text, p_consumer text, p_topic text, p_topic_id uuid, p_partitions int[], p_next bigint[], p_actor text, p_why text)
returns void
language plpgsql
security definer
set search_path = firstseen, pg_temp
set lock_timeout = '10s'
as $$
begin
    if exists (select from unnest(p_partitions, p_next) b ("partition", next_offset)
               where least(b."partition", b.next_offset) < 0 or num_nulls(b."partition", b.next_offset) > 0) then
        raise exception 'reset_position: partitions and offsets begin at 0, and each partition needs its offset';
    end if;
    perform pg_advisory_xact_lock('positions'::regclass::oid::int, hashtext(p_consumer || ' ' || p_topic));
    perform from positions p
    where p.consumer = p_consumer and p.topic = p_topic and p."partition" = any(p_partitions)
    order by p.position_id
    for no key update;

    insert into audit (actor, action, why, inbox, subject)
    select p_actor, 'reset', p_why, p_inbox,
           format('position %s %s/%s: %s to %s', p_consumer, p_topic, b."partition", coalesce(p.next_offset::text, 'none'), b.next_offset)
    from unnest(p_partitions, p_next) b ("partition", next_offset)
    left join positions p on p.consumer = p_consumer and p.topic = p_topic and p."partition" = b."partition"
    order by b."partition";

    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
    insert into positions (consumer, topic, "partition", topic_id, next_offset)
    select p_consumer, p_topic, b."partition", p_topic_id, b.next_offset
    from unnest(p_partitions, p_next) b ("partition", next_offset)
    order by 3
    on conflict (consumer, topic, "partition") do update
    set next_offset = excluded.next_offset, topic_id = excluded.topic_id, epoch = positions.epoch + 1, fruitless = 0,
        trial = null, trials = 0, owner = null, updated_at = now();
end
$$;
-- +goose StatementEnd

-- Until roles.sql is run again nobody but the owner may call it: functions are everybody's by default.
revoke execute on function firstseen.reset_position from public;

-- look says what accept would answer for IDs, one number for each, and changes nothing. The IDs come as accept wants them.
-- +goose StatementBegin
create or replace function firstseen.look(p_scopes int[], p_ids uuid[], p_fingerprints bytea[])
returns smallint[]
language plpgsql
stable
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return array(
        select case
                   when coalesce(d.fingerprint <> m.fingerprint, false) then 2
                   when d.message_id is null and m.copy = 1 then 1
                   when d.message_id is null and m.first_fingerprint <> m.fingerprint then 2
                   when exists (select from dead_letters l
                                where l.scope_id = d.scope_id and l.message_id = d.message_id) then 3
                   else 0
               end::smallint
        from (
            select u.*, row_number() over same_id as copy, first_value(u.fingerprint) over same_id as first_fingerprint
            from unnest(p_scopes, p_ids, p_fingerprints) with ordinality u (scope_id, message_id, fingerprint, ordinal)
            window same_id as (partition by u.scope_id, u.message_id order by u.ordinal)) m
        left join message_dedup d on d.scope_id = m.scope_id and d.message_id = m.message_id
        order by m.ordinal);
end
$$;
-- +goose StatementEnd

-- join_older_lanes is join_lanes for messages that are read again: one joins a lane only behind older messages. Behind
-- newer ones it would wait for what comes after it.
-- +goose StatementBegin
create or replace function firstseen.join_older_lanes(p_position int, p_scopes int[], p_lanes uuid[], p_offsets bigint[])
returns int[]
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_found int[];
begin
    select array_agg(j.ordinal order by j.ordinal) into v_found
    from (
        select m.ordinal::int
        from unnest(p_scopes, p_lanes, p_offsets) with ordinality m (scope_id, lane, "offset", ordinal)
        join lanes l using (scope_id, lane)
        where exists (select from parked p
                      where p.scope_id = m.scope_id and p.lane = m.lane and p."offset" < m."offset")
        order by l.scope_id, l.lane
        for key share of l) j;
    if v_found is null then
        update positions p
        set has_lanes = false
        where p.position_id = p_position
          and not exists (select from lanes l where l.topic = p.topic and l.partition = p.partition);
    end if;
    return coalesce(v_found, '{}');
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function firstseen.join_older_lanes, firstseen.look, firstseen.reset_position, firstseen.begin_replay;
delete from firstseen.positions where consumer like 'replay/%';
drop table firstseen.replays;
