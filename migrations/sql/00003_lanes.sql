-- +goose Up

-- join_lanes gives the ordinals (from 1) of the messages whose key has unfinished earlier messages: they have to
-- join its lane. It holds the lanes by a key-share lock, which a worker's claim does not conflict with: a lane that
-- was found can be worked on, and can't be removed, until the transaction ends.
-- +goose StatementBegin
create or replace function firstseen.join_lanes(p_position int, p_scopes int[], p_lanes uuid[])
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
        from unnest(p_scopes, p_lanes) with ordinality m (scope_id, lane, ordinal)
        join lanes l using (scope_id, lane)
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

-- open_lanes holds the lanes of messages that are being parked until the transaction ends, and opens those that are not
-- there. Without the hold a worker might find a lane empty and remove it before the messages are committed. A key-share
-- lock goes together with the lock of the lane's worker: its handlers are not waited for, only a removal, which is the
-- last thing that a worker does before its commit.
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

-- park puts messages of one batch in their lanes.
-- +goose StatementBegin
create or replace function firstseen.park(
    p_position int, p_scopes int[], p_lanes uuid[], p_attempts int[], p_due_ms bigint[], p_reasons text[], p_errors text[],
    p_ids uuid[], p_raw_ids text[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into parked (scope_id, lane, attempts, reason, error, message_id, raw_id, topic, "partition", "offset",
                        produced_at, key, payload, headers)
    select * from unnest(p_scopes, p_lanes, p_attempts, p_reasons, p_errors, p_ids, p_raw_ids, p_topics, p_partitions,
                         p_offsets, p_produced, p_keys, p_payloads, p_headers);

    select open_lanes(p_scopes, p_lanes, p_due_ms, p_topics, p_partitions);

    update positions set has_lanes = true where position_id = p_position and not has_lanes;
$$;
-- +goose StatementEnd

-- bury puts messages of one batch in the dead letters.
-- +goose StatementBegin
create or replace function firstseen.bury(
    p_scopes int[], p_lanes uuid[], p_attempts int[], p_reasons text[], p_errors text[],
    p_ids uuid[], p_raw_ids text[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into dead_letters (scope_id, lane, attempts, reason, error, message_id, raw_id, topic, "partition", "offset",
                              produced_at, key, payload, headers)
    select * from unnest(p_scopes, p_lanes, p_attempts, p_reasons, p_errors, p_ids, p_raw_ids, p_topics, p_partitions,
                         p_offsets, p_produced, p_keys, p_payloads, p_headers);
$$;
-- +goose StatementEnd

-- record_conflicts keeps copies whose ID was seen with another content. A copy that is read again is kept once.
-- +goose StatementBegin
create or replace function firstseen.record_conflicts(
    p_scopes int[], p_fingerprints bytea[],
    p_ids uuid[], p_topics text[], p_partitions int[], p_offsets bigint[], p_produced timestamptz[],
    p_keys bytea[], p_payloads bytea[], p_headers bytea[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into conflicts (scope_id, fingerprint, message_id, topic, "partition", "offset", produced_at, key, payload, headers)
    select * from unnest(p_scopes, p_fingerprints, p_ids, p_topics, p_partitions, p_offsets, p_produced,
                         p_keys, p_payloads, p_headers)
    on conflict do nothing;
$$;
-- +goose StatementEnd

-- claim_lanes takes due lanes for a worker, whose transaction then locks them. Until it does, or if it dies, p_lease
-- keeps others away. claims counts how often a lane was taken since it last got anywhere: a message that kills the
-- process shows by it.
-- +goose StatementBegin
create or replace function firstseen.claim_lanes(p_inbox text, p_handler text, p_limit int, p_lease_ms bigint)
returns table (scope_id int, tenant text, lane uuid, claims int, claim int)
language sql
set search_path = firstseen, pg_temp
as $$
    with due as (
        select s.scope_id, s.tenant, l.lane
        from scopes s
        cross join lateral (
            select l.lane
            from lanes l
            where l.scope_id = s.scope_id and l.due_at <= clock_timestamp()
            order by l.due_at
            limit p_limit
            for no key update skip locked) l
        where s.inbox = p_inbox and s.handler = p_handler
        limit p_limit)
    update lanes l
    set claims = l.claims + 1, claim = l.claim + 1, due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
    from due d
    where l.scope_id = d.scope_id and l.lane = d.lane
    returning l.scope_id, d.tenant, l.lane, l.claims, l.claim;
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

-- finish_lanes writes down what became of a worker's messages and sets its lanes free.
-- p_results: 1 processed, 2 failed, 3 dead. Lanes get the time of their next attempt; one that is empty is removed,
-- unless somebody is adding to it: then it stays, due in a moment, and the next claim finds what was added or removes
-- it. No lock is waited for here: the handlers' locks are still held. parked_at becomes the time of the first failure.
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

-- release_lanes gives claimed lanes back that the worker did not get to: it lived, so the claim does not count. A lock is
-- waited for: it is that of a connection that the worker has just cut.
-- +goose StatementBegin
create or replace function firstseen.release_lanes(p_scopes int[], p_lanes uuid[], p_claims int[], p_due_ms bigint)
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    with mine as materialized (
        select l.scope_id, l.lane
        from unnest(p_scopes, p_lanes, p_claims) c (scope_id, lane, claim)
        join lanes l on l.scope_id = c.scope_id and l.lane = c.lane and l.claim = c.claim
        order by l.scope_id, l.lane
        for no key update of l)
    update lanes l
    set claims = greatest(l.claims - 1, 0), claim = l.claim + 1, due_at = clock_timestamp() + p_due_ms * interval '1 ms'
    from mine m
    where l.scope_id = m.scope_id and l.lane = m.lane;
$$;
-- +goose StatementEnd

-- count_attempt notes, before the call, that the first message of a claimed lane is about to be handled by itself. It
-- makes the lease last anew. It returns the message and its attempts, a null where the lane is empty, and no row where
-- somebody else has the lane by now.
-- +goose StatementBegin
create or replace function firstseen.count_attempt(p_scope int, p_lane uuid, p_claim int, p_lease_ms bigint)
returns table (message_id uuid, attempts int)
language sql
set search_path = firstseen, pg_temp
as $$
    with mine as (
        update lanes l
        set due_at = clock_timestamp() + p_lease_ms * interval '1 ms'
        where l.scope_id = p_scope and l.lane = p_lane and l.claim = p_claim
        returning l.scope_id, l.lane),
    head as (
        select p.scope_id, p.lane, p."offset", p.message_id
        from mine
        join parked p using (scope_id, lane)
        order by p."offset", p.message_id
        limit 1),
    counted as (
        update parked p
        set attempts = p.attempts + 1, reason = 'killed', error = 'the process died while the message was handled'
        from head h
        where p.scope_id = h.scope_id and p.lane = h.lane and p."offset" = h."offset" and p.message_id = h.message_id
        returning p.message_id, p.attempts)
    select c.message_id, c.attempts from mine left join counted c on true;
$$;
-- +goose StatementEnd

-- uncount_attempt takes that back where the process has survived and the message was not handled, whoever has the lane by
-- now.
-- +goose StatementBegin
create or replace function firstseen.uncount_attempt(p_scope int, p_lane uuid, p_message uuid)
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    update parked p
    set attempts = greatest(p.attempts - 1, 0)
    where p.scope_id = p_scope and p.lane = p_lane and p.message_id = p_message;
$$;
-- +goose StatementEnd

-- wake_lanes makes lanes due now, and gives back those that it could not, because a worker is at work on them. Who has
-- only claimed a lane loses the claim: what it was about to do, it would do to the lane's old first message. It has not
-- died for all that: nothing is suspected.
-- With p_wait workers are waited for; one that is through by then has not seen what was parked since, and all others
-- will see it when they finish.
-- +goose StatementBegin
create or replace function firstseen.wake_lanes(
    p_scopes int[], p_lanes uuid[], p_wait_ms int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    if p_wait_ms > 0 then
        perform set_config('lock_timeout', p_wait_ms::text, true);
        begin
            perform from unnest(p_scopes, p_lanes) m (scope_id, lane)
            join lanes l using (scope_id, lane)
            order by l.scope_id, l.lane
            for no key update of l;
        exception when lock_not_available then
            null;
        end;
    end if;
    with wanted as (
        select distinct m.scope_id, m.lane from unnest(p_scopes, p_lanes) m (scope_id, lane)),
    idle as (
        select l.scope_id, l.lane
        from wanted
        join lanes l using (scope_id, lane)
        order by l.scope_id, l.lane
        for no key update of l skip locked),
    woken as (
        update lanes l
        set due_at = least(l.due_at, now()), claim = l.claim + 1, claims = 0
        from idle i
        where l.scope_id = i.scope_id and l.lane = i.lane and (l.due_at > now() or l.claims > 0))
    select array_agg(b.scope_id), array_agg(b.lane) into busy_scopes, busy_lanes
    from (select scope_id, lane from wanted except select scope_id, lane from idle) b;
end
$$;
-- +goose StatementEnd

-- redrive gives dead letters back to their handlers, each once: whoever comes second finds nothing. It returns how many
-- were there, and the lanes that wake_lanes has to be called for after the commit.
-- The positions are locked before anything else, as a batch does: a batch that is open is waited for, because it may
-- be about to note that the partition has no lanes, and later batches have their messages wait behind the redriven
-- ones. Call it with dead letters of one partition at a time, or a slow batch of one partition stops another.
-- It runs as the schema's owner, so that an operator needs no right to delete or to insert.
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

-- discard forgets dead letters for good; their IDs stay seen. It returns how many were there, and runs as the schema's
-- owner, like redrive.
-- +goose StatementBegin
create or replace function firstseen.discard(p_scopes int[], p_ids uuid[], p_actor text, p_why text)
returns int
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with held as (
        select d.scope_id, d.message_id
        from unnest(p_scopes, p_ids) m (scope_id, message_id)
        join dead_letters d using (scope_id, message_id)
        order by d.scope_id, d.message_id
        for update of d),
    gone as (
        delete from dead_letters d using held h
        where d.scope_id = h.scope_id and d.message_id = h.message_id
        returning d.scope_id, d.message_id),
    audited as (
        insert into audit (actor, action, why, scope_id, message_id)
        select p_actor, 'discard', p_why, scope_id, message_id from gone)
    select count(*)::int from gone;
$$;
-- +goose StatementEnd

-- +goose Down
drop function firstseen.discard, firstseen.redrive, firstseen.wake_lanes, firstseen.uncount_attempt, firstseen.count_attempt, firstseen.finish_lanes,
    firstseen.load_lanes, firstseen.release_lanes, firstseen.claim_lanes, firstseen.record_conflicts,
    firstseen.bury, firstseen.park, firstseen.open_lanes, firstseen.join_lanes;
