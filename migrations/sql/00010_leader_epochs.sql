-- +goose Up

-- The epoch of the leader under which the last message before leader_epoch_at was written (KIP-320): by it a broker
-- says whether its log is still the one that was read. Where leader_epoch_at is not next_offset the position was moved
-- by something that knows no epochs, and nothing is known.
alter table firstseen.positions add column leader_epoch int, add column leader_epoch_at bigint;

-- accept gets a parameter. It keeps its rights, and processes of the build before go on calling it without.
-- +goose StatementBegin
do $$
begin
    perform set_config('firstseen_tx.grants', coalesce((
        select 'revoke all on function firstseen.accept from public; ' || string_agg(
            format('grant execute on function firstseen.accept to %s; ', case a.grantee when 0 then 'public' else a.grantee::regrole::text end), '')
        from pg_proc p
        cross join aclexplode(p.proacl) a
        where p.oid = to_regproc('firstseen.accept')), ''), true);
end
$$;
-- +goose StatementEnd
drop function firstseen.accept(int, bigint, bigint, bigint, int, int[], uuid[], bytea[]);

-- accept is the first statement of a batch's transaction. It moves the position from p_from to p_next
-- under the owner's epoch (a null p_position: no position) and inserts the IDs, which come sorted by
-- (scope, id) and without twins, so that two batches never wait for each other in a circle.
-- outcomes is null when every ID is new, else one number for each: 0 duplicate, 1 new, 2 conflict (seen with another
-- fingerprint, wherever the first lies), 3 buried (seen, and in the dead letters). Where fingerprints are given, twins
-- may be among the IDs.
-- has_lanes says whether the partition has unfinished messages that others may have to wait for.
-- seq is the first of a block of numbers for the batch's messages: see message_seq.
-- p_expected is what the caller expects: 1 that all IDs are new, which a plain insert finds out cheapest; 0 that all
-- are duplicates, which a look does. Where that is wrong, or null, the insert that copes with either follows.
-- p_leader_epoch is that of the last message before p_next; null: not known.
-- +goose StatementBegin
create or replace function firstseen.accept(
    p_position int, p_epoch bigint, p_from bigint, p_next bigint, p_expected int,
    p_scopes int[], p_ids uuid[], p_fingerprints bytea[], p_leader_epoch int default null,
    out outcomes smallint[], out has_lanes boolean, out seq bigint)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    v_stored     positions%rowtype;
    v_constraint text;
    v_seen       boolean := false;
    v_scopes     int[];
    v_ids        uuid[];
begin
    perform set_config('firstseen_tx.batch', pg_current_xact_id()::text, true);
    has_lanes := p_position is null;
    if p_position is not null then
        update positions p
        set next_offset = p_next, leader_epoch = p_leader_epoch, leader_epoch_at = p_next, fruitless = 0, updated_at = now()
        where p.position_id = p_position and p.epoch = p_epoch and p.next_offset = p_from
        returning p.has_lanes into has_lanes;
        if not found then
            select * into v_stored from positions where position_id = p_position;
            if v_stored.epoch = p_epoch and v_stored.next_offset is null then
                raise exception 'position %/% of % has no offset yet', v_stored.topic, v_stored.partition, v_stored.consumer
                    using errcode = 'object_not_in_prerequisite_state', hint = 'Reposition sets it.';
            end if;
            if v_stored.epoch = p_epoch then
                raise exception 'position %/% of % is at % and not at %',
                    v_stored.topic, v_stored.partition, v_stored.consumer, v_stored.next_offset, p_from
                    using errcode = 'FS002', detail = v_stored.next_offset::text;
            end if;
            raise exception 'position % is fenced: epoch % is not the current one', p_position, p_epoch
                using errcode = 'FS001';
        end if;
    else
        insert into unsealed default values;
    end if;

    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_expected = 0 and p_fingerprints is null and p_scopes[1] = p_scopes[cardinality(p_scopes)] then
        v_seen := all_seen(p_scopes[1], p_ids);
    end if;
    if not v_seen then
        seq := nextval('message_seq');
        if p_expected = 1 then
            begin
                insert into message_dedup (scope_id, message_id, fingerprint)
                select * from unnest(p_scopes, p_ids, p_fingerprints);
                return;
            exception when unique_violation then
                get stacked diagnostics v_constraint = constraint_name;
                if v_constraint <> 'message_dedup_pkey' then
                    raise;
                end if;
            end;
        end if;

        with fresh as (
            insert into message_dedup (scope_id, message_id, fingerprint)
            select * from unnest(p_scopes, p_ids, p_fingerprints)
            on conflict do nothing
            returning scope_id, message_id)
        select array_agg(scope_id), array_agg(message_id) into v_scopes, v_ids from fresh;

        if cardinality(v_ids) = cardinality(p_ids) then
            return;
        end if;
    end if;
    -- Another consumer of the inbox has seen some of them: it may have left them in lanes, and later ones wait for those.
    if not has_lanes then
        has_lanes := note_lanes(p_position);
    end if;
    if v_ids is null and not in_dead_letters(p_scopes) then
        outcomes := array_fill(0::smallint, array[cardinality(p_ids)]);
    else
        outcomes := array(
            select case
                       when f.message_id is not null
                            and row_number() over (partition by m.scope_id, m.message_id order by m.ordinal) = 1 then 1
                       when exists (select from dead_letters d
                                    where d.scope_id = m.scope_id and d.message_id = m.message_id) then 3
                       else 0
                   end::smallint
            from unnest(p_scopes, p_ids) with ordinality m (scope_id, message_id, ordinal)
            left join unnest(v_scopes, v_ids) f (scope_id, message_id) using (scope_id, message_id)
            order by m.ordinal);
    end if;
    if p_fingerprints is not null then
        outcomes := array(
            select case
                       when m.outcome in (0, 3) and exists (
                           select from message_dedup d
                           where d.scope_id = m.scope_id and d.message_id = m.message_id
                             and d.fingerprint <> m.fingerprint) then 2
                       else m.outcome
                   end::smallint
            from unnest(p_scopes, p_ids, p_fingerprints, outcomes) with ordinality
                 m (scope_id, message_id, fingerprint, outcome, ordinal)
            order by m.ordinal);
    end if;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
do $$
begin
    execute current_setting('firstseen_tx.grants');
end
$$;
-- +goose StatementEnd

-- reset_position moves a consumer's positions in a topic by an operator's decision, each with a note in the audit. The
-- epochs rise: whoever still owns one of them can commit nothing any more. A transaction that is open on one is waited
-- for.
-- It runs as the schema's owner, so that an operator needs no right to move positions otherwise. The leader epoch is
-- forgotten: somebody has decided where to go on in the log as it is.
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
    insert into positions (consumer, topic, "partition")
    select p_consumer, p_topic, b."partition"
    from unnest(p_partitions) b ("partition")
    where not exists (select from positions p
                      where p.consumer = p_consumer and p.topic = p_topic and p."partition" = b."partition")
    order by 3
    on conflict do nothing; -- a topic that is begun just now is waited for
    perform from positions p
    where p.consumer = p_consumer and p.topic = p_topic and p."partition" = any(p_partitions)
    order by p."partition"
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
    set next_offset = excluded.next_offset, topic_id = excluded.topic_id, leader_epoch = null, epoch = positions.epoch + 1, fruitless = 0,
        trial = null, trials = 0, owner = null, updated_at = now();
end
$$;
-- +goose StatementEnd

-- forget_partitions deletes a consumer's positions in partitions that a topic, made anew, does not have any more, and
-- says how many there were. It runs as the schema's owner, so that a consumer can't delete positions otherwise.
-- +goose StatementBegin
create or replace function firstseen.forget_partitions(p_consumer text, p_topic text, p_topic_id uuid, p_partitions int)
returns int
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_gone int;
begin
    delete from positions p
    where p.consumer = p_consumer and p.topic = p_topic and p."partition" >= p_partitions and p.topic_id <> p_topic_id;
    get diagnostics v_gone = row_count;
    return v_gone;
end
$$;
-- +goose StatementEnd
revoke execute on function firstseen.forget_partitions from public;

-- +goose Down
drop function firstseen.forget_partitions;
drop function firstseen.accept(int, bigint, bigint, bigint, int, int[], uuid[], bytea[], int);

-- accept is the first statement of a batch's transaction. It moves the position from p_from to p_next
-- under the owner's epoch (a null p_position: no position) and inserts the IDs, which come sorted by
-- (scope, id) and without twins, so that two batches never wait for each other in a circle.
-- outcomes is null when every ID is new, else one number for each: 0 duplicate, 1 new, 2 conflict (seen with another
-- fingerprint, wherever the first lies), 3 buried (seen, and in the dead letters). Where fingerprints are given, twins
-- may be among the IDs.
-- has_lanes says whether the partition has unfinished messages that others may have to wait for.
-- seq is the first of a block of numbers for the batch's messages: see message_seq.
-- p_expected is what the caller expects: 1 that all IDs are new, which a plain insert finds out cheapest; 0 that all
-- are duplicates, which a look does. Where that is wrong, or null, the insert that copes with either follows.
-- +goose StatementBegin
create or replace function firstseen.accept(
    p_position int, p_epoch bigint, p_from bigint, p_next bigint, p_expected int,
    p_scopes int[], p_ids uuid[], p_fingerprints bytea[],
    out outcomes smallint[], out has_lanes boolean, out seq bigint)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    v_stored     positions%rowtype;
    v_constraint text;
    v_seen       boolean := false;
    v_scopes     int[];
    v_ids        uuid[];
begin
    perform set_config('firstseen_tx.batch', pg_current_xact_id()::text, true);
    has_lanes := p_position is null;
    if p_position is not null then
        perform pg_advisory_xact_lock('positions'::regclass::oid::int, p_position);
        update positions p
        set next_offset = p_next, fruitless = 0, updated_at = now()
        where p.position_id = p_position and p.epoch = p_epoch and p.next_offset = p_from
        returning p.has_lanes into has_lanes;
        if not found then
            select * into v_stored from positions where position_id = p_position;
            if v_stored.epoch = p_epoch and v_stored.next_offset is null then
                raise exception 'position %/% of % has no offset yet', v_stored.topic, v_stored.partition, v_stored.consumer
                    using errcode = 'object_not_in_prerequisite_state', hint = 'Reposition sets it.';
            end if;
            if v_stored.epoch = p_epoch then
                raise exception 'position %/% of % is at % and not at %',
                    v_stored.topic, v_stored.partition, v_stored.consumer, v_stored.next_offset, p_from
                    using errcode = 'FS002', detail = v_stored.next_offset::text;
            end if;
            raise exception 'position % is fenced: epoch % is not the current one', p_position, p_epoch
                using errcode = 'FS001';
        end if;
    else
        insert into unsealed default values;
    end if;

    if cardinality(p_ids) = 0 then
        return;
    end if;
    if p_expected = 0 and p_fingerprints is null and p_scopes[1] = p_scopes[cardinality(p_scopes)] then
        v_seen := all_seen(p_scopes[1], p_ids);
    end if;
    if not v_seen then
        seq := nextval('message_seq');
        if p_expected = 1 then
            begin
                insert into message_dedup (scope_id, message_id, fingerprint)
                select * from unnest(p_scopes, p_ids, p_fingerprints);
                return;
            exception when unique_violation then
                get stacked diagnostics v_constraint = constraint_name;
                if v_constraint <> 'message_dedup_pkey' then
                    raise;
                end if;
            end;
        end if;

        with fresh as (
            insert into message_dedup (scope_id, message_id, fingerprint)
            select * from unnest(p_scopes, p_ids, p_fingerprints)
            on conflict do nothing
            returning scope_id, message_id)
        select array_agg(scope_id), array_agg(message_id) into v_scopes, v_ids from fresh;

        if cardinality(v_ids) = cardinality(p_ids) then
            return;
        end if;
    end if;
    -- Another consumer of the inbox has seen some of them: it may have left them in lanes, and later ones wait for those.
    if not has_lanes then
        has_lanes := note_lanes(p_position);
    end if;
    if v_ids is null and not in_dead_letters(p_scopes) then
        outcomes := array_fill(0::smallint, array[cardinality(p_ids)]);
    else
        outcomes := array(
            select case
                       when f.message_id is not null
                            and row_number() over (partition by m.scope_id, m.message_id order by m.ordinal) = 1 then 1
                       when exists (select from dead_letters d
                                    where d.scope_id = m.scope_id and d.message_id = m.message_id) then 3
                       else 0
                   end::smallint
            from unnest(p_scopes, p_ids) with ordinality m (scope_id, message_id, ordinal)
            left join unnest(v_scopes, v_ids) f (scope_id, message_id) using (scope_id, message_id)
            order by m.ordinal);
    end if;
    if p_fingerprints is not null then
        outcomes := array(
            select case
                       when m.outcome in (0, 3) and exists (
                           select from message_dedup d
                           where d.scope_id = m.scope_id and d.message_id = m.message_id
                             and d.fingerprint <> m.fingerprint) then 2
                       else m.outcome
                   end::smallint
            from unnest(p_scopes, p_ids, p_fingerprints, outcomes) with ordinality
                 m (scope_id, message_id, fingerprint, outcome, ordinal)
            order by m.ordinal);
    end if;
end
$$;
-- +goose StatementEnd

-- reset_position moves a consumer's positions in a topic by an operator's decision, each with a note in the audit. The
-- epochs rise: whoever still owns one of them can commit nothing any more. A transaction that is open on one is waited
-- for.
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

alter table firstseen.positions drop column leader_epoch, drop column leader_epoch_at;
