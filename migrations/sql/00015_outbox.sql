-- +goose Up

-- The outbox is what a transaction says that is to leave once it has committed. A relay (package handlers/outbox) takes the
-- messages from here, sends them, and in one transaction moves them to where all messages lie: to inbox when they are sent, to
-- parked while they are to be tried again, to dead_letters when they are given up. So these tables hold what was never
-- tried, and nothing else.

-- Numbers what is added, in the order that it is added in. It is not cached: a session that adds later has a higher one.
create sequence firstseen.outbox_seq;

create table firstseen.outbox (
    outbox_id  bigint not null,
    added_at   timestamptz not null default now(),
    message_id uuid not null,
    shard      smallint not null, -- of its topic and key: see add_outbox
    topic      text collate "C" not null,
    tenant     text collate "C" not null,
    raw_id     text,              -- the idempotency key, where that is no UUID
    key        bytea,
    headers    bytea,
    payload    bytea,
    due_at     timestamptz,       -- where it was not to be sent before a time, and waits since then
    primary key (topic, shard, outbox_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What is not to be sent before a time. release_outbox moves it to outbox when that has come.
create table firstseen.outbox_delayed (
    outbox_id  bigint primary key,
    added_at   timestamptz not null default now(),
    due_at     timestamptz not null,
    message_id uuid not null,
    shard      smallint not null,
    topic      text collate "C" not null,
    tenant     text collate "C" not null,
    raw_id     text,
    key        bytea,
    headers    bytea,
    payload    bytea
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index outbox_delayed_due on firstseen.outbox_delayed (due_at, outbox_id);

-- The IDs of messages that came with an idempotency key: what makes a second one a twin. Retention deletes them with the IDs of
-- messages that were sent: see forget_outbox_keys.
create table firstseen.outbox_keys (
    added_at   timestamptz not null default now(),
    message_id uuid not null,
    tenant     text collate "C" not null,
    primary key (tenant, message_id)
);

-- What relays share out: a sixteenth of a topic's keys. The right to send its messages, in their order, is a lock on its row; how
-- far they have come is in positions, as if it was a partition. Relays add the rows of topics that they send.
create table firstseen.outbox_shards (
    topic text collate "C" not null,
    shard smallint not null,
    primary key (topic, shard)
);

-- new_outbox_keys notes the IDs of messages that have a key, and says of each message whether it is the first of its ID; null:
-- all are. IDs are inserted in order, so that two transactions never wait for each other in a circle.
-- +goose StatementBegin
create or replace function firstseen.new_outbox_keys(p_tenants text[], p_ids uuid[], p_keyed boolean[])
returns boolean[]
language plpgsql
set search_path = firstseen, pg_temp
as $$
declare
    v_tenants text[];
    v_ids     uuid[];
begin
    if cardinality(p_ids) >= 100 then -- else the subtransaction costs more than it saves, and a caller may have many
        begin
            insert into outbox_keys (tenant, message_id)
            select m.tenant, m.message_id
            from unnest(p_tenants, p_ids, p_keyed) m (tenant, message_id, keyed)
            where m.keyed
            order by m.tenant collate "C", m.message_id;
            return null;
        exception when unique_violation then
            null; -- there are twins
        end;
    end if;
    with fresh as (
        insert into outbox_keys (tenant, message_id)
        select m.tenant, m.message_id
        from unnest(p_tenants, p_ids, p_keyed) m (tenant, message_id, keyed)
        where m.keyed
        order by m.tenant collate "C", m.message_id
        on conflict do nothing
        returning tenant, message_id)
    select array_agg(tenant), array_agg(message_id) into v_tenants, v_ids from fresh;
    if cardinality(v_ids) = cardinality(array_positions(p_keyed, true)) then
        return null;
    end if;
    return array(
        select not m.keyed or f.message_id is not null
               and row_number() over (partition by m.tenant, m.message_id order by m.ordinal) = 1
        from unnest(p_tenants, p_ids, p_keyed) with ordinality m (tenant, message_id, keyed, ordinal)
        left join unnest(v_tenants, v_ids) f (tenant, message_id) using (tenant, message_id)
        order by m.ordinal);
end
$$;
-- +goose StatementEnd

-- outbox_shard is where all messages of a topic and key are; those without a key are anywhere. It is made part of the
-- statements that use it, so it has no settings of its own.
-- +goose StatementBegin
create or replace function firstseen.outbox_shard(p_topic text, p_key bytea, p_id uuid)
returns int
language sql
stable
as $$
    select get_byte(sha256(convert_to(p_topic, 'UTF8') || '\x00'::bytea || coalesce(p_key, uuid_send(p_id))), 0) % 16
$$;
-- +goose StatementEnd

-- add_outbox adds messages in the caller's transaction, and says of each whether it was added: not where one of its tenant and
-- ID was before, in whatever transaction that has committed or is this one. Two transactions that add twins wait for one another,
-- as with any unique key; nothing else of them does. It runs as the schema's owner, so that who may add can do nothing else.
-- +goose StatementBegin
create or replace function firstseen.add_outbox(
    p_tenants text[], p_ids uuid[], p_keyed boolean[], p_raw_ids text[], p_topics text[],
    p_keys bytea[], p_headers bytea[], p_payloads bytea[], p_due timestamptz[])
returns boolean[]
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_new boolean[]; -- null: all are
begin
    if not (true = any (p_keyed)) then
        null;
    elsif current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
        v_new := new_outbox_keys(p_tenants, p_ids, p_keyed);
    else
        v_new := new_outbox_keys_beyond_snapshot(p_tenants, p_ids, p_keyed);
    end if;
    insert into outbox (outbox_id, message_id, shard, topic, tenant, raw_id, key, headers, payload)
    select nextval('outbox_seq'), m.id,
           outbox_shard(m.topic, m.key, m.id),
           m.topic, m.tenant, m.raw_id, m.key, m.headers, m.payload
    from unnest(p_tenants, p_ids, p_raw_ids, p_topics, p_keys, p_headers, p_payloads, p_due, v_new)
         m (tenant, id, raw_id, topic, key, headers, payload, due, new)
    where m.due is null and m.new is not false;
    if cardinality(array_remove(p_due, null)) > 0 then
        insert into outbox_delayed (outbox_id, due_at, message_id, shard, topic, tenant, raw_id, key, headers, payload)
        select nextval('outbox_seq'), m.due, m.id,
               outbox_shard(m.topic, m.key, m.id),
               m.topic, m.tenant, m.raw_id, m.key, m.headers, m.payload
        from unnest(p_tenants, p_ids, p_raw_ids, p_topics, p_keys, p_headers, p_payloads, p_due, v_new)
             m (tenant, id, raw_id, topic, key, headers, payload, due, new)
        where m.due is not null and m.new is not false;
    end if;
    return coalesce(v_new, array_fill(true, array[cardinality(p_ids)]));
end
$$;
-- +goose StatementEnd

-- add_outbox_message is add_outbox of one message, and as cheap as one can be.
-- +goose StatementBegin
create or replace function firstseen.add_outbox_message(
    p_tenant text, p_id uuid, p_keyed boolean, p_raw_id text, p_topic text,
    p_key bytea, p_headers bytea, p_payload bytea, p_due timestamptz)
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    if p_due is not null or p_keyed and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        return (add_outbox(array[p_tenant], array[p_id], array[p_keyed], array[p_raw_id], array[p_topic],
            array[p_key], array[p_headers], array[p_payload], array[p_due]))[1];
    end if;
    if p_keyed then
        insert into outbox_keys (tenant, message_id) values (p_tenant, p_id) on conflict do nothing;
        if not found then
            return false;
        end if;
    end if;
    insert into outbox (outbox_id, message_id, shard, topic, tenant, raw_id, key, headers, payload)
    values (nextval('outbox_seq'), p_id,
            outbox_shard(p_topic, p_key, p_id),
            p_topic, p_tenant, p_raw_id, p_key, p_headers, p_payload);
    return true;
end
$$;
-- +goose StatementEnd

-- new_outbox_keys_beyond_snapshot is new_outbox_keys where the transaction keeps its snapshot. There a twin that was committed
-- since is a serialization failure, and it is one of ours that would spoil the caller's transaction: it is taken back. Then
-- each message is asked for by itself.
-- +goose StatementBegin
create or replace function firstseen.new_outbox_keys_beyond_snapshot(p_tenants text[], p_ids uuid[], p_keyed boolean[])
returns boolean[]
language plpgsql
set search_path = firstseen, pg_temp
as $$
declare
    v_new boolean[] := array_fill(true, array[cardinality(p_ids)]);
    v_at  int;
begin
    begin
        return new_outbox_keys(p_tenants, p_ids, p_keyed);
    exception when serialization_failure or unique_violation then
        null;
    end;
    for v_at in
        select m.ordinal
        from unnest(p_tenants, p_ids, p_keyed) with ordinality m (tenant, message_id, keyed, ordinal)
        where m.keyed
        order by m.tenant collate "C", m.message_id, m.ordinal
    loop
        begin
            insert into outbox_keys (tenant, message_id) values (p_tenants[v_at], p_ids[v_at]) on conflict do nothing;
            v_new[v_at] := found;
        exception when serialization_failure or unique_violation then
            v_new[v_at] := false;
        end;
    end loop;
    return v_new;
end
$$;
-- +goose StatementEnd

-- outbox_bare takes off a text what leaves no mark around it, and JSON's quotes: package dedup/identity says what that is.
-- +goose StatementBegin
create or replace function firstseen.outbox_bare(p_text text)
returns text
language plpgsql immutable
set search_path = firstseen, pg_temp
as $$
declare
    v_unseen text := (
        select string_agg(chr(c), '')
        from (values (9, 13), (32, 32), (128, 160), (173, 173), (847, 847), (1564, 1564), (4447, 4448), (5760, 5760), (6158, 6158),
                     (8192, 8207), (8232, 8239), (8287, 8303), (10240, 10240), (12288, 12288), (12644, 12644),
                     (65024, 65039), (65279, 65279), (65440, 65440)) r (first, last),
             generate_series(r.first, r.last) c);
    v_text   text := btrim(p_text, v_unseen);
begin
    while length(v_text) > 1 and left(v_text, 1) = '"' and right(v_text, 1) = '"' loop
        v_text := btrim(substr(v_text, 2, length(v_text) - 2), v_unseen);
    end loop;
    return v_text;
end
$$;
-- +goose StatementEnd

-- outbox_message_id is the ID of a message with an idempotency key: the UUID that the key is in any of its spellings, else the one that
-- identity.ParseIDs gives its text. raw_id is the text then. An empty key is none: both are null.
-- +goose StatementBegin
create or replace function firstseen.outbox_message_id(p_key text, out message_id uuid, out raw_id text)
language plpgsql immutable
set search_path = firstseen, pg_temp
as $$
declare
    c_uuid constant text := '^(\{%s\}|urn:uuid:%s|%s|[0-9a-f]{32})$';
    c_rule constant bytea := '\x66697273747365656e2f746578742f31'; -- firstseen/text/1, whatever this schema's name
    c_form constant text := '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';
    v_form text := replace(c_uuid, '%s', c_form);
    -- control characters make it binary, which is not trimmed
    v_text text := case when p_key ~ '[\x01-\x08\x0e-\x1f\x7f]' then p_key else btrim(p_key, E' \t\n\v\f\r') end;
    v_bare text;
    v_data bytea;
    v_hash bytea;
begin
    if coalesce(v_text, '') = '' then
        return;
    end if;
    if v_text !~* v_form then
        v_bare := outbox_bare(v_text);
    end if;
    if coalesce(v_bare, v_text) ~* v_form then
        message_id := regexp_replace(lower(coalesce(v_bare, v_text)), '^urn:uuid:|[{}]', '', 'g')::uuid;
        if message_id in ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff') then
            raise exception 'the idempotency key is the nil or the max UUID, which stand for no ID'
                using errcode = 'invalid_parameter_value';
        end if;
        return;
    end if;
    v_data := convert_to(v_text, 'UTF8');
    if length(v_data) > 1024 then
        raise exception 'the idempotency key has % bytes, more than 1024', length(v_data)
            using errcode = 'invalid_parameter_value';
    end if;
    v_hash := substring(sha256(int8send(16) || c_rule || int8send(length(v_data)) || v_data) for 16);
    v_hash := set_byte(v_hash, 6, get_byte(v_hash, 6) & 15 | 128);
    v_hash := set_byte(v_hash, 8, get_byte(v_hash, 8) & 63 | 128);
    message_id := encode(v_hash, 'hex')::uuid;
    raw_id := v_text;
end
$$;
-- +goose StatementEnd

-- outbox_headers encodes an object of texts as headers, as dedup.AppendHeaders does, in the order of their names. A null is a
-- header without a value.
-- +goose StatementBegin
create or replace function firstseen.outbox_headers(p_headers jsonb)
returns bytea
language sql immutable
set search_path = firstseen, pg_temp
as $$
    select string_agg(int4send(length(h.name)) || h.name || case when h.value is null then '\xffffffff'::bytea
                          else int4send(length(h.value)) || h.value end, '' order by h.name)
    from (select convert_to(key, 'UTF8') as name, convert_to(value, 'UTF8') as value from jsonb_each_text(p_headers)) h
$$;
-- +goose StatementEnd

-- send adds a message to the outbox in the caller's transaction. Where one of the tenant and idempotency key was added before, it
-- gives that one's ID, and the first one's content stands. Without an idempotency key each call adds a message.
-- +goose StatementBegin
create or replace function firstseen.send(
    p_topic text, p_payload bytea, p_key text default null, p_idempotency_key text default null, p_tenant text default '',
    p_headers jsonb default null, p_not_before timestamptz default null, out message_id uuid, out already_existed boolean)
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_raw   text;
    v_keyed boolean;
begin
    if coalesce(btrim(p_topic), '') = '' then
        raise exception 'a message to send needs a topic' using errcode = 'invalid_parameter_value';
    end if;
    if p_headers ? 'message-id' then
        raise exception 'the header message-id is the outbox''s: give the ID as p_idempotency_key'
            using errcode = 'invalid_parameter_value';
    end if;
    select * into message_id, v_raw from outbox_message_id(p_idempotency_key);
    v_keyed := message_id is not null;
    message_id := coalesce(message_id, outbox_new_id());
    already_existed := not add_outbox_message(coalesce(p_tenant, ''), message_id, v_keyed, v_raw, p_topic,
        convert_to(p_key, 'UTF8'), outbox_headers(p_headers), p_payload, p_not_before);
end
$$;
-- +goose StatementEnd

-- outbox_new_id is a UUID of version 7 (RFC 9562, section 5.7).
-- +goose StatementBegin
create or replace function firstseen.outbox_new_id()
returns uuid
language sql volatile
set search_path = firstseen, pg_temp
as $$
    select encode(set_byte(
        substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) || substring(uuid_send(r.id) from 7),
        6, get_byte(uuid_send(r.id), 6) & 15 | 112), 'hex')::uuid
    from (select gen_random_uuid() as id) r
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.send(
    p_topic text, p_payload jsonb, p_key text default null, p_idempotency_key text default null, p_tenant text default '',
    p_headers jsonb default null, p_not_before timestamptz default null, out message_id uuid, out already_existed boolean)
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    select * from send(p_topic, convert_to(p_payload::text, 'UTF8'), p_key, p_idempotency_key, p_tenant, p_headers, p_not_before)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.send(
    p_topic text, p_payload text, p_key text default null, p_idempotency_key text default null, p_tenant text default '',
    p_headers jsonb default null, p_not_before timestamptz default null, out message_id uuid, out already_existed boolean)
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    select * from send(p_topic, convert_to(p_payload, 'UTF8'), p_key, p_idempotency_key, p_tenant, p_headers, p_not_before)
$$;
-- +goose StatementEnd

-- open_outbox_shards adds the shards of topics, where they are not there yet.
-- +goose StatementBegin
create or replace function firstseen.open_outbox_shards(p_topics text[])
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    insert into outbox_shards (topic, shard)
    select t.topic, s.shard
    from unnest(p_topics) t (topic)
    cross join generate_series(0, 15) s (shard)
    where not exists (select from outbox_shards o where o.topic = t.topic and o.shard = s.shard)
    order by t.topic collate "C", s.shard
    on conflict do nothing;
$$;
-- +goose StatementEnd

-- release_outbox moves up to so many messages whose time has come to where relays take them. It says how many those were, and
-- how many milliseconds it is to the next one's; null: there is none.
-- +goose StatementBegin
create or replace function firstseen.release_outbox(p_limit int, out released int, out next_ms bigint)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    with due as materialized (
        select d.outbox_id
        from outbox_delayed d
        where d.due_at <= statement_timestamp()
        order by d.due_at, d.outbox_id
        limit p_limit
        for update skip locked),
    gone as (
        delete from outbox_delayed d using due
        where d.outbox_id = due.outbox_id
        returning d.*)
    insert into outbox (outbox_id, added_at, message_id, shard, topic, tenant, raw_id, key, headers, payload, due_at)
    select outbox_id, added_at, message_id, shard, topic, tenant, raw_id, key, headers, payload, due_at
    from gone;
    get diagnostics released = row_count;
    select greatest(0, ceil(extract(epoch from d.due_at - clock_timestamp()) * 1000))::bigint into next_ms
    from outbox_delayed d
    order by d.due_at
    limit 1;
end
$$;
-- +goose StatementEnd

-- claim_outbox finds a shard of one of these topics that has messages and nobody sends, and locks it until the transaction's end:
-- the first from p_from on, where 0 is the first topic's shard 0, and 16 the second's. It names the next messages, in their order,
-- up to p_limit and of up to p_bytes, but the first however large it is: what a lower number brings that commits late is found
-- like everything else. bytes and largest are about what they take in memory, all and one. epoch is that of the shard's
-- position; null: it has none. No row: there is nothing to do.
-- +goose StatementBegin
create or replace function firstseen.claim_outbox(
    p_consumer text, p_topics text[], p_from int, p_limit int, p_bytes bigint)
returns table (number int, topic text, shard smallint, epoch bigint, ids bigint[], bytes bigint, largest bigint)
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_shard outbox_shards%rowtype;
begin
    select s.* into v_shard
    from outbox_shards s
    cross join lateral (select from outbox o where o.topic = s.topic and o.shard = s.shard limit 1) o
    where s.topic = any (p_topics)
    order by (array_position(p_topics, s.topic) * 16 - 16 + s.shard - p_from + 16 * cardinality(p_topics)) % (16 * cardinality(p_topics))
    limit 1
    for update of s skip locked;
    if not found then
        return;
    end if;
    -- A statement of its own, so that it does not see what the shard's last owner has done.
    return query
        select array_position(p_topics, v_shard.topic) * 16 - 16 + v_shard.shard, v_shard.topic, v_shard.shard,
               (select p.epoch from positions p
                where p.consumer = p_consumer and p.topic = v_shard.topic and p."partition" = v_shard.shard),
               array_agg(u.outbox_id order by u.outbox_id), sum(u.size)::bigint, max(u.size)
        from (
            select n.outbox_id, n.size, sum(n.size) over (order by n.outbox_id) as until
            from (
                select o.outbox_id, 1024 + coalesce(octet_length(o.payload), 0) + coalesce(octet_length(o.headers), 0)::bigint
                                    + coalesce(octet_length(o.key), 0) as size
                from outbox o
                where o.topic = v_shard.topic and o.shard = v_shard.shard
                order by o.outbox_id
                limit p_limit) n) u
        where u.until <= p_bytes or u.until = u.size
        having count(*) > 0;
end
$$;
-- +goose StatementEnd

-- load_outbox gives messages that claim_outbox has named.
-- +goose StatementBegin
create or replace function firstseen.load_outbox(p_topic text, p_shard smallint, p_ids bigint[])
returns setof firstseen.outbox
language sql
stable
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select o.*
    from outbox o
    where o.topic = p_topic and o.shard = p_shard and o.outbox_id = any (p_ids)
    order by o.outbox_id
$$;
-- +goose StatementEnd

-- drop_outbox deletes messages that the same transaction moves on.
-- +goose StatementBegin
create or replace function firstseen.drop_outbox(p_topic text, p_shard smallint, p_ids bigint[])
returns void
language sql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    delete from outbox o
    where o.topic = p_topic and o.shard = p_shard and o.outbox_id = any (p_ids)
$$;
-- +goose StatementEnd

-- unsent_topics lists topics, but for those that are given, of which a message lies in the outbox that was added before a time.
-- It goes from topic to topic in the index.
-- +goose StatementBegin
create or replace function firstseen.unsent_topics(p_but text[], p_before timestamptz)
returns table (topic text, since timestamptz)
language sql
stable
set search_path = firstseen, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
    with recursive topics (topic) as (
        select (select min(o.topic) from outbox o)
        union all
        select (select min(o.topic) from outbox o where o.topic > t.topic)
        from topics t
        where t.topic is not null)
    select t.topic, o.added_at
    from topics t
    cross join lateral (select o.added_at from outbox o where o.topic = t.topic order by o.topic, o.shard, o.outbox_id limit 1) o
    where t.topic is not null and t.topic <> all (p_but) and o.added_at < p_before;
$$;
-- +goose StatementEnd

-- With the ID of a message of the outbox, which forget_ids deletes, goes its idempotency key: a message of the same key is a
-- new one then. The keys of messages that are not settled yet stay, and so do those of what was deleted from the outbox.
-- +goose StatementBegin
create or replace function firstseen.forget_outbox_keys()
returns trigger
language plpgsql
set search_path = firstseen, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    delete from outbox_keys k
    using gone g
    join scopes s using (scope_id)
    where s.inbox = 'outbox' and k.tenant = s.tenant and k.message_id = g.message_id;
    return null;
end
$$;
-- +goose StatementEnd
create trigger outbox_keys_forgotten
    after delete on firstseen.message_dedup
    referencing old table as gone
    for each statement execute function firstseen.forget_outbox_keys();

revoke execute on function firstseen.send(text, bytea, text, text, text, jsonb, timestamptz),
    firstseen.send(text, jsonb, text, text, text, jsonb, timestamptz), firstseen.send(text, text, text, text, text, jsonb, timestamptz),
    firstseen.add_outbox, firstseen.add_outbox_message, firstseen.new_outbox_keys, firstseen.new_outbox_keys_beyond_snapshot,
    firstseen.outbox_bare, firstseen.outbox_message_id, firstseen.outbox_headers, firstseen.outbox_new_id,
    firstseen.open_outbox_shards, firstseen.release_outbox, firstseen.claim_outbox, firstseen.load_outbox,
    firstseen.drop_outbox, firstseen.unsent_topics, firstseen.outbox_shard, firstseen.forget_outbox_keys from public;

-- +goose Down
drop trigger outbox_keys_forgotten on firstseen.message_dedup;
drop function firstseen.forget_outbox_keys, firstseen.outbox_shard, firstseen.unsent_topics, firstseen.drop_outbox, firstseen.load_outbox, firstseen.claim_outbox,
    firstseen.release_outbox, firstseen.open_outbox_shards, firstseen.outbox_new_id,
    firstseen.outbox_headers, firstseen.outbox_message_id, firstseen.outbox_bare, firstseen.add_outbox_message, firstseen.add_outbox,
    firstseen.new_outbox_keys_beyond_snapshot, firstseen.new_outbox_keys;
drop function firstseen.send(text, text, text, text, text, jsonb, timestamptz);
drop function firstseen.send(text, jsonb, text, text, text, jsonb, timestamptz);
drop function firstseen.send(text, bytea, text, text, text, jsonb, timestamptz);
drop table firstseen.outbox_shards, firstseen.outbox_keys, firstseen.outbox_delayed, firstseen.outbox;
drop sequence firstseen.outbox_seq;
