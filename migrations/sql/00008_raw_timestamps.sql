-- +goose Up

-- A record's timestamp is any 64-bit number of milliseconds. One that is no time of the years 1 to 9999, which all
-- programs can write, is kept as the number that came, and produced_at is null: so nothing that reads a message fails
-- on it. Rows of before have whatever a timestamptz can hold in produced_at, and else plus or minus infinity.
alter table firstseen.inbox add column raw_timestamp bigint;
alter table firstseen.parked add column raw_timestamp bigint;
alter table firstseen.dead_letters add column raw_timestamp bigint;
alter table firstseen.conflicts add column raw_timestamp bigint;
comment on column firstseen.message.produced_at is
    'The record''s timestamp, in the years 1 to 9999; null where it has none, or a number that is no such time.';

-- park, bury and record_conflicts take the numbers too. Their forms without are for processes of the version before,
-- while an upgrade goes on.
-- +goose StatementBegin
create or replace function firstseen.park(
    p_position int, p_scopes int[], p_lanes uuid[], p_attempts int[], p_due_ms bigint[], p_reasons text[], p_errors text[],
    p_ids uuid[], p_raw_ids text[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[], p_raw_timestamps bigint[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into parked (scope_id, lane, attempts, reason, error, message_id, raw_id, topic, "partition", "offset",
                        produced_at, key, payload, headers, raw_timestamp)
    select * from unnest(p_scopes, p_lanes, p_attempts, p_reasons, p_errors, p_ids, p_raw_ids, p_topics, p_partitions,
                         p_offsets, p_produced, p_keys, p_payloads, p_headers, p_raw_timestamps);

    select open_lanes(p_scopes, p_lanes, p_due_ms, p_topics, p_partitions);

    update positions set has_lanes = true where position_id = p_position and not has_lanes;
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.bury(
    p_scopes int[], p_lanes uuid[], p_attempts int[], p_reasons text[], p_errors text[],
    p_ids uuid[], p_raw_ids text[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[], p_raw_timestamps bigint[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into dead_letters (scope_id, lane, attempts, reason, error, message_id, raw_id, topic, "partition", "offset",
                              produced_at, key, payload, headers, raw_timestamp)
    select * from unnest(p_scopes, p_lanes, p_attempts, p_reasons, p_errors, p_ids, p_raw_ids, p_topics, p_partitions,
                         p_offsets, p_produced, p_keys, p_payloads, p_headers, p_raw_timestamps);
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.record_conflicts(
    p_scopes int[], p_fingerprints bytea[],
    p_ids uuid[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[], p_raw_timestamps bigint[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into conflicts (scope_id, fingerprint, message_id, topic, "partition", "offset", produced_at, key, payload, headers,
                           raw_timestamp)
    select * from unnest(p_scopes, p_fingerprints, p_ids, p_topics, p_partitions, p_offsets, p_produced,
                         p_keys, p_payloads, p_headers, p_raw_timestamps)
    on conflict do nothing;
$$;
-- +goose StatementEnd

-- finish_lanes, redrive and rerun take the number along with the message. And redrive leaves letters that have no
-- message ID: the ID of their place would not make their producer's copies duplicates, which have another place.
-- +goose StatementBegin
create or replace function firstseen.finish_lanes(
    p_scopes int[], p_lanes uuid[], p_offsets bigint[], p_ids uuid[],
    p_results int[], p_attempts int[], p_reasons text[], p_errors text[],
    p_lane_scopes int[], p_lane_ids uuid[], p_due_ms bigint[])
returns void
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_scopes int[];
    v_lanes  uuid[];
begin
    with result as (
        select * from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts)
            r (scope_id, lane, "offset", message_id, result, attempts)
        where result = 1),
    gone as (
        delete from parked p using result r
        where p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id
        returning p.*, r.attempts as final)
    insert into inbox (received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", attempts, message_id, topic,
                       raw_id, key, headers, payload)
    select received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", final, message_id, topic,
           raw_id, key, headers, payload
    from gone;

    if 3 = any(p_results) then
        with result as (
            select * from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts, p_reasons, p_errors)
                r (scope_id, lane, "offset", message_id, result, attempts, reason, error)
            where result = 3),
        gone as (
            delete from parked p using result r
            where p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id
            returning p.*, r.attempts as final, r.reason as why, r.error as what)
        insert into dead_letters (received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", attempts,
                                  lane, message_id, topic, raw_id, reason, error, key, headers, payload)
        select received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", final, lane,
               message_id, topic, raw_id, why, what, key, headers, payload
        from gone;
    end if;

    if 2 = any(p_results) then
        update parked p
        set attempts = r.attempts, reason = r.reason, error = r.error,
            parked_at = case when p.reason is null then now() else p.parked_at end
        from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts, p_reasons, p_errors)
            r (scope_id, lane, "offset", message_id, result, attempts, reason, error)
        where r.result = 2
          and p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id;
    end if;

    select array_agg(e.scope_id), array_agg(e.lane) into v_scopes, v_lanes
    from (
        select l.scope_id, l.lane
        from unnest(p_lane_scopes, p_lane_ids) f (scope_id, lane)
        join lanes l using (scope_id, lane)
        where not exists (select from parked p where p.scope_id = l.scope_id and p.lane = l.lane)
        for update of l skip locked) e;
    -- A statement of its own, so that it sees what was parked before the locks were granted.
    delete from lanes l using unnest(v_scopes, v_lanes) e (scope_id, lane)
    where l.scope_id = e.scope_id and l.lane = e.lane
      and not exists (select from parked p where p.scope_id = l.scope_id and p.lane = l.lane);
    -- A first message that was never tried is due at once: it was redriven while the worker was busy with one behind it.
    update lanes l
    set due_at = clock_timestamp() + case when h.untried then 0 when h.untried is null then 100 else f.due_ms end * interval '1 ms',
        claims = 0
    from unnest(p_lane_scopes, p_lane_ids, p_due_ms) f (scope_id, lane, due_ms)
    left join lateral (
        select p.attempts = 0 and p.reason is null as untried
        from parked p
        where p.scope_id = f.scope_id and p.lane = f.lane
        order by p."offset", p.message_id
        limit 1) h on true
    where l.scope_id = f.scope_id and l.lane = f.lane;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.redrive(
    p_scopes int[], p_ids uuid[], p_actor text, p_why text,
    out redriven int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_scopes     int[];
    v_lanes      uuid[];
    v_topics     text[];
    v_partitions int[];
begin
    perform from positions p
    where (p.topic, p."partition") in (
        select d.topic, d."partition"
        from unnest(p_scopes, p_ids) m (scope_id, message_id)
        join dead_letters d using (scope_id, message_id))
    order by p.position_id
    for no key update;

    perform from unnest(p_scopes, p_ids) m (scope_id, message_id)
    join dead_letters d using (scope_id, message_id)
    order by d.scope_id, d.message_id
    for update of d;

    with gone as (
        delete from dead_letters d using unnest(p_scopes, p_ids) m (scope_id, message_id)
        where d.scope_id = m.scope_id and d.message_id = m.message_id
          and d.reason not in ('missing_id', 'ambiguous_id', 'id_too_long', 'id_not_scalar', 'nil_id', 'payload_not_json',
                               'payload_has_schema_id', 'bad_tenant')
        returning d.*),
    audited as (
        insert into audit (actor, action, why, scope_id, message_id)
        select p_actor, 'redrive', p_why, scope_id, message_id from gone),
    parked_again as (
        insert into parked (received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", lane,
                            message_id, topic, raw_id, key, headers, payload)
        select received_at, seq, coalesce("offset", seq), produced_at, raw_timestamp, scope_id, "partition", coalesce(lane, message_id),
               message_id, topic, raw_id, key, headers, payload
        from gone
        returning scope_id, lane, topic, "partition")
    select count(*), array_agg(scope_id), array_agg(lane), array_agg(topic), array_agg("partition")
    into redriven, v_scopes, v_lanes, v_topics, v_partitions
    from parked_again;
    if redriven = 0 then
        return;
    end if;

    perform open_lanes(v_scopes, v_lanes, array_fill(0::bigint, array[redriven]), v_topics, v_partitions);
    update positions p set has_lanes = true
    where (p.topic, p."partition") in (select * from unnest(v_topics, v_partitions)) and not p.has_lanes;
    select w.busy_scopes, w.busy_lanes into busy_scopes, busy_lanes from wake_lanes(v_scopes, v_lanes, 0) w;
end
$$;
-- +goose StatementEnd

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
        insert into parked (received_at, seq, "offset", produced_at, raw_timestamp, scope_id, "partition", lane,
                            message_id, topic, raw_id, key, headers, payload)
        select received_at, seq, coalesce("offset", seq), produced_at, raw_timestamp, scope_id, "partition", lane, message_id, topic,
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

-- +goose Down
drop function firstseen.park(int, int[], uuid[], int[], bigint[], text[], text[], uuid[], text[], text[], int[], bigint[],
    timestamptz[], bytea[], bytea[], bytea[], bigint[]);
drop function firstseen.bury(int[], uuid[], int[], text[], text[], uuid[], text[], text[], int[], bigint[], timestamptz[],
    bytea[], bytea[], bytea[], bigint[]);
drop function firstseen.record_conflicts(int[], bytea[], uuid[], text[], int[], bigint[], timestamptz[], bytea[], bytea[],
    bytea[], bigint[]);
-- +goose StatementBegin
create or replace function firstseen.finish_lanes(
    p_scopes int[], p_lanes uuid[], p_offsets bigint[], p_ids uuid[],
    p_results int[], p_attempts int[], p_reasons text[], p_errors text[],
    p_lane_scopes int[], p_lane_ids uuid[], p_due_ms bigint[])
returns void
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_scopes int[];
    v_lanes  uuid[];
begin
    with result as (
        select * from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts)
            r (scope_id, lane, "offset", message_id, result, attempts)
        where result = 1),
    gone as (
        delete from parked p using result r
        where p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id
        returning p.*, r.attempts as final)
    insert into inbox (received_at, seq, "offset", produced_at, scope_id, "partition", attempts, message_id, topic,
                       raw_id, key, headers, payload)
    select received_at, seq, "offset", produced_at, scope_id, "partition", final, message_id, topic,
           raw_id, key, headers, payload
    from gone;

    if 3 = any(p_results) then
        with result as (
            select * from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts, p_reasons, p_errors)
                r (scope_id, lane, "offset", message_id, result, attempts, reason, error)
            where result = 3),
        gone as (
            delete from parked p using result r
            where p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id
            returning p.*, r.attempts as final, r.reason as why, r.error as what)
        insert into dead_letters (received_at, seq, "offset", produced_at, scope_id, "partition", attempts, lane,
                                  message_id, topic, raw_id, reason, error, key, headers, payload)
        select received_at, seq, "offset", produced_at, scope_id, "partition", final, lane,
               message_id, topic, raw_id, why, what, key, headers, payload
        from gone;
    end if;

    if 2 = any(p_results) then
        update parked p
        set attempts = r.attempts, reason = r.reason, error = r.error,
            parked_at = case when p.reason is null then now() else p.parked_at end
        from unnest(p_scopes, p_lanes, p_offsets, p_ids, p_results, p_attempts, p_reasons, p_errors)
            r (scope_id, lane, "offset", message_id, result, attempts, reason, error)
        where r.result = 2
          and p.scope_id = r.scope_id and p.lane = r.lane and p."offset" = r."offset" and p.message_id = r.message_id;
    end if;

    select array_agg(e.scope_id), array_agg(e.lane) into v_scopes, v_lanes
    from (
        select l.scope_id, l.lane
        from unnest(p_lane_scopes, p_lane_ids) f (scope_id, lane)
        join lanes l using (scope_id, lane)
        where not exists (select from parked p where p.scope_id = l.scope_id and p.lane = l.lane)
        for update of l skip locked) e;
    -- A statement of its own, so that it sees what was parked before the locks were granted.
    delete from lanes l using unnest(v_scopes, v_lanes) e (scope_id, lane)
    where l.scope_id = e.scope_id and l.lane = e.lane
      and not exists (select from parked p where p.scope_id = l.scope_id and p.lane = l.lane);
    -- A first message that was never tried is due at once: it was redriven while the worker was busy with one behind it.
    update lanes l
    set due_at = clock_timestamp() + case when h.untried then 0 when h.untried is null then 100 else f.due_ms end * interval '1 ms',
        claims = 0
    from unnest(p_lane_scopes, p_lane_ids, p_due_ms) f (scope_id, lane, due_ms)
    left join lateral (
        select p.attempts = 0 and p.reason is null as untried
        from parked p
        where p.scope_id = f.scope_id and p.lane = f.lane
        order by p."offset", p.message_id
        limit 1) h on true
    where l.scope_id = f.scope_id and l.lane = f.lane;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.redrive(
    p_scopes int[], p_ids uuid[], p_actor text, p_why text,
    out redriven int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_scopes     int[];
    v_lanes      uuid[];
    v_topics     text[];
    v_partitions int[];
begin
    perform from positions p
    where (p.topic, p."partition") in (
        select d.topic, d."partition"
        from unnest(p_scopes, p_ids) m (scope_id, message_id)
        join dead_letters d using (scope_id, message_id))
    order by p.position_id
    for no key update;

    perform from unnest(p_scopes, p_ids) m (scope_id, message_id)
    join dead_letters d using (scope_id, message_id)
    order by d.scope_id, d.message_id
    for update of d;

    with gone as (
        delete from dead_letters d using unnest(p_scopes, p_ids) m (scope_id, message_id)
        where d.scope_id = m.scope_id and d.message_id = m.message_id
        returning d.*),
    audited as (
        insert into audit (actor, action, why, scope_id, message_id)
        select p_actor, 'redrive', p_why, scope_id, message_id from gone),
    parked_again as (
        insert into parked (received_at, seq, "offset", produced_at, scope_id, "partition", lane, message_id, topic,
                            raw_id, key, headers, payload)
        select received_at, seq, coalesce("offset", seq), produced_at, scope_id, "partition", coalesce(lane, message_id),
               message_id, topic, raw_id, key, headers, payload
        from gone
        returning scope_id, lane, topic, "partition")
    select count(*), array_agg(scope_id), array_agg(lane), array_agg(topic), array_agg("partition")
    into redriven, v_scopes, v_lanes, v_topics, v_partitions
    from parked_again;
    if redriven = 0 then
        return;
    end if;

    perform open_lanes(v_scopes, v_lanes, array_fill(0::bigint, array[redriven]), v_topics, v_partitions);
    update positions p set has_lanes = true
    where (p.topic, p."partition") in (select * from unnest(v_topics, v_partitions)) and not p.has_lanes;
    select w.busy_scopes, w.busy_lanes into busy_scopes, busy_lanes from wake_lanes(v_scopes, v_lanes, 0) w;
end
$$;
-- +goose StatementEnd

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

comment on column firstseen.message.produced_at is null;
alter table firstseen.conflicts drop column raw_timestamp;
alter table firstseen.dead_letters drop column raw_timestamp;
alter table firstseen.parked drop column raw_timestamp;
alter table firstseen.inbox drop column raw_timestamp;
