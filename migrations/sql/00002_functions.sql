-- +goose Up

-- resolve_scopes gives the scope of each (handler, tenant) pair of an inbox, making those that are new.
-- +goose StatementBegin
create or replace function firstseen.resolve_scopes(p_inbox text, p_handlers text[], p_tenants text[])
returns table (handler text, tenant text, scope_id int)
language sql
set search_path = firstseen, pg_temp
as $$
    insert into scopes (inbox, handler, tenant)
    select p_inbox, w.handler, w.tenant
    from unnest(p_handlers, p_tenants) w (handler, tenant)
    where not exists (
        select from scopes s
        where s.inbox = p_inbox and s.handler = w.handler and s.tenant = w.tenant)
    order by w.handler, w.tenant
    on conflict do nothing;

    select s.handler, s.tenant, s.scope_id
    from unnest(p_handlers, p_tenants) w (handler, tenant)
    join scopes s on s.inbox = p_inbox and s.handler = w.handler and s.tenant = w.tenant;
$$;
-- +goose StatementEnd

-- acquire takes a position for a new owner: it raises the epoch, which fences every transaction that an
-- older owner begins later. An older owner's transaction that is still open after p_grace is ended: the
-- broker has given the partition away, so it can only be a stopped, hung or cut-off process.
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
        select count(pg_terminate_backend(l.pid)) into evicted
        from pg_locks l
        join pg_database d on d.oid = l.database and d.datname = current_database()
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.pid <> pg_backend_pid()
          and l.classid = 'positions'::regclass::oid and l.objid = v_position::oid;
        perform set_config('lock_timeout', '10s', true);
        perform from positions p where p.position_id = v_position for update;
    end;

    update positions p
    set epoch = p.epoch + 1, fruitless = p.fruitless + 1, owner = p_owner, acquired_at = clock_timestamp(),
        has_lanes = true -- until a batch has looked: another consumer of the inbox may have left some
    where p.position_id = v_position
    returning p.position_id, p.epoch, p.next_offset, p.topic_id, p.fruitless, p.trial, p.trials
    into position_id, epoch, next_offset, topic_id, fruitless, trial, trials;
end
$$;
-- +goose StatementEnd

-- reposition sets where the owner of a position starts. It is the only way a position moves back.
-- +goose StatementBegin
create or replace function firstseen.reposition(p_position int, p_epoch bigint, p_next bigint, p_topic_id uuid)
returns void
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
    update positions
    set next_offset = p_next, topic_id = p_topic_id, updated_at = now()
    where position_id = p_position and epoch = p_epoch;
    if not found then
        raise exception 'position % is fenced: epoch % is not the current one', p_position, p_epoch
            using errcode = 'FS001';
    end if;
end
$$;
-- +goose StatementEnd

-- begin_topic sets the positions of all partitions of a topic that the consumer has none in, and says whether it did.
-- The lock has two members that start at once do it once.
-- +goose StatementBegin
create or replace function firstseen.begin_topic(
    p_consumer text, p_topic text, p_topic_id uuid, p_partitions int[], p_next bigint[])
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    perform pg_advisory_xact_lock('positions'::regclass::oid::int, hashtext(p_consumer || ' ' || p_topic));
    if exists (select from positions p
               where p.consumer = p_consumer and p.topic = p_topic and p.next_offset is not null) then
        return false;
    end if;
    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
    insert into positions (consumer, topic, "partition", topic_id, next_offset)
    select p_consumer, p_topic, b."partition", p_topic_id, b.next_offset
    from unnest(p_partitions, p_next) b ("partition", next_offset)
    order by 3
    on conflict (consumer, topic, "partition") do update
    set next_offset = excluded.next_offset, topic_id = excluded.topic_id;
    return true;
end
$$;
-- +goose StatementEnd

-- all_seen says whether all of the IDs, which are in order and without twins, were seen before in a scope.
-- +goose StatementBegin
create or replace function firstseen.all_seen(p_scope int, p_ids uuid[])
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    return cardinality(p_ids) = (
        select count(*) from message_dedup d where d.scope_id = p_scope and d.message_id = any(p_ids));
end
$$;
-- +goose StatementEnd

-- in_dead_letters says whether any of the scopes, which are in order, may have dead letters.
-- +goose StatementBegin
create or replace function firstseen.in_dead_letters(p_scopes int[])
returns boolean
language sql
set search_path = firstseen, pg_temp
as $$
    select exists (
        select from dead_letters d
        where d.scope_id between p_scopes[1] and p_scopes[cardinality(p_scopes)]);
$$;
-- +goose StatementEnd

-- note_lanes notes at a position that its partition has unfinished messages, where it has, and says so.
-- +goose StatementBegin
create or replace function firstseen.note_lanes(p_position int)
returns boolean
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    update positions p
    set has_lanes = true
    where p.position_id = p_position
      and exists (select from lanes l where l.topic = p.topic and l."partition" = p."partition");
    return found;
end
$$;
-- +goose StatementEnd

-- accept is the first statement of a batch's transaction. It moves the position from p_from to p_next
-- under the owner's epoch (a null p_position: no position) and inserts the IDs, which come sorted by
-- (scope, id) and without twins, so that two batches never wait for each other in a circle.
-- outcomes is null when every ID is new, else one number for each: 0 duplicate, 1 new, 2 conflict (seen with another
-- fingerprint, wherever the first lies), 3 buried (seen, and in the dead letters). Where fingerprints are given, twins may be among the IDs.
-- has_lanes says whether the partition has unfinished messages that others may have to wait for.
-- seq is the first of a block of numbers for the batch's messages: see message_seq.
-- p_expected is what the caller expects: 1 that all IDs are new, which a plain insert finds out cheapest; 0 that all are
-- duplicates, which a look does. Where that is wrong, or null, the insert that copes with either follows.
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

-- seal is the last statement before the commit of a batch's transaction. It fails where the transaction
-- is no longer the one that accept began.
-- +goose StatementBegin
create or replace function firstseen.seal()
returns void
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    if current_setting('firstseen_tx.batch', true) is distinct from pg_current_xact_id_if_assigned()::text then
        raise exception 'a handler ended the transaction it was given'
            using errcode = 'FS003', hint = 'Handlers leave begin, commit and rollback to their caller.';
    end if;
    perform set_config('firstseen_tx.sealed', pg_current_xact_id()::text, true);
end
$$;
-- +goose StatementEnd

-- check_deferred has everybody's deferred constraints but firstseen's own checked now, as the commit would. It fails
-- where the transaction is no longer the one that accept began.
-- +goose StatementBegin
create or replace function firstseen.check_deferred()
returns void
language plpgsql
set search_path = firstseen, pg_temp
as $$
declare
    v_all      text;
    v_deferred text;
begin
    if current_setting('firstseen_tx.batch', true) is distinct from pg_current_xact_id_if_assigned()::text then
        raise exception 'a handler ended the transaction it was given'
            using errcode = 'FS003', hint = 'Handlers leave begin, commit and rollback to their caller.';
    end if;
    select string_agg(c.name, ', '), string_agg(c.name, ', ') filter (where c.condeferred)
    into v_all, v_deferred
    from (
        select format('%I.%I', n.nspname, c.conname) as name, bool_or(c.condeferred) as condeferred
        from pg_constraint c
        join pg_namespace n on n.oid = c.connamespace
        where c.condeferrable and n.oid <> (select relnamespace from pg_class where oid = 'positions'::regclass)
        group by 1) c;
    if v_all is not null then
        execute 'set constraints ' || v_all || ' immediate';
    end if;
    if v_deferred is not null then
        execute 'set constraints ' || v_deferred || ' deferred';
    end if;
end
$$;
-- +goose StatementEnd

-- No batch's transaction commits unless it was sealed: a handler's own COMMIT fails here.
-- +goose StatementBegin
create or replace function firstseen.require_seal()
returns trigger
language plpgsql
set search_path = firstseen, pg_temp
as $$
begin
    if current_setting('firstseen_tx.sealed', true) is distinct from pg_current_xact_id()::text then
        raise exception 'a handler tried to commit the transaction it was given'
            using errcode = 'FS003', hint = 'Handlers leave begin, commit and rollback to their caller, '
                'and name the constraints where they set constraints immediate.';
    end if;
    if tg_table_name = 'unsealed' then
        delete from unsealed where batch_id = new.batch_id;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create constraint trigger positions_sealed
    after update of next_offset on firstseen.positions
    deferrable initially deferred
    for each row execute function firstseen.require_seal();
create constraint trigger unsealed_sealed
    after insert on firstseen.unsealed
    deferrable initially deferred
    for each row execute function firstseen.require_seal();

-- make_partitions makes the inbox's partitions from today up to p_days ahead, by UTC days, and returns how
-- many it made. It runs as the schema's owner, so that a consumer needs no right to create tables. The default
-- partition is locked before its rows are moved, or a batch could add one in between. A reader that holds the
-- default partition (a dump, say) is not waited for: rows go there until the next call.
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
    perform pg_advisory_xact_lock('inbox'::regclass::oid::int, 0);
    for v_day in select (now()::date + n) from generate_series(0, p_days) n loop
        v_name := 'inbox_' || to_char(v_day, 'YYYYMMDD');
        continue when to_regclass('firstseen.' || v_name) is not null;
        lock table only inbox in share update exclusive mode;
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
select firstseen.make_partitions(7);

-- decode_headers gives a message's headers in their order; a null value stays null.
-- +goose StatementBegin
create or replace function firstseen.decode_headers(p_headers bytea)
returns table (ordinal int, key bytea, value bytea)
language plpgsql immutable
set search_path = firstseen, pg_temp
as $$
declare
    v_at  int := 1;
    v_len bigint;
begin
    ordinal := 0;
    while v_at <= coalesce(length(p_headers), 0) loop
        ordinal := ordinal + 1;
        v_len := ('x' || encode(substring(p_headers from v_at for 4), 'hex'))::bit(32)::bigint;
        key := substring(p_headers from v_at + 4 for v_len::int);
        v_at := v_at + 4 + v_len::int;
        v_len := ('x' || encode(substring(p_headers from v_at for 4), 'hex'))::bit(32)::bigint;
        v_at := v_at + 4;
        if v_len = 4294967295 then
            value := null;
        else
            value := substring(p_headers from v_at for v_len::int);
            v_at := v_at + v_len::int;
        end if;
        return next;
    end loop;
end
$$;
-- +goose StatementEnd

-- header gives the text of a message's first header of that name, or null.
-- +goose StatementBegin
create or replace function firstseen.header(m firstseen.message, p_name text)
returns text
language sql immutable
set search_path = firstseen, pg_temp
as $$
    select convert_from(h.value, 'UTF8')
    from decode_headers(m.headers) h
    where h.key = convert_to(p_name, 'UTF8')
    order by h.ordinal
    limit 1
$$;
-- +goose StatementEnd

-- body gives a message's payload as JSON; a null payload gives null.
-- +goose StatementBegin
create or replace function firstseen.body(m firstseen.message)
returns jsonb
language sql immutable
set search_path = firstseen, pg_temp
as $$
    select convert_from(m.payload, 'UTF8')::jsonb
$$;
-- +goose StatementEnd

-- +goose Down
drop function firstseen.body, firstseen.header, firstseen.decode_headers, firstseen.make_partitions;
drop trigger positions_sealed on firstseen.positions;
drop trigger unsealed_sealed on firstseen.unsealed;
drop function firstseen.require_seal, firstseen.check_deferred, firstseen.seal, firstseen.accept, firstseen.note_lanes, firstseen.in_dead_letters, firstseen.all_seen, firstseen.begin_topic,
    firstseen.reposition, firstseen.acquire, firstseen.resolve_scopes;
