-- +goose Up

-- Where a consumer's partitions are spread over several databases: which of them this one is, as `firstseen migrate up` has
-- declared it. A consumer without a row has all of its partitions here.
create table firstseen.shards (
    consumer    text collate "C" primary key, -- as in positions
    shard       text not null,                -- the name of this database among them
    partitions  int4multirange not null,      -- those that are at home here
    spread      text not null,                -- all shards with their partitions: the same text in each database
    declared_at timestamptz not null
);

-- at_home refuses a position in a partition that is at home in another database: it would be handled a second time here. Positions
-- are moved without it.
-- +goose StatementBegin
create function firstseen.at_home() returns trigger
language plpgsql
set search_path = firstseen, pg_temp
as $$
declare
    v_shard shards%rowtype;
begin
    select s.* into v_shard from shards s
    where (s.consumer = new.consumer or starts_with(new.consumer, 'replay/' || s.consumer || '/'))
      and not s.partitions @> new."partition"
    limit 1;
    if found then
        raise exception 'partition %/% of % is not at home in this database, which is shard % of %',
            new.topic, new."partition", new.consumer, v_shard.shard, v_shard.spread
            using errcode = 'FS006', hint = 'Give all processes the same postgres.shards, and restart them.';
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger positions_at_home before insert on firstseen.positions for each row execute function firstseen.at_home();

-- declare_shard says which of a consumer's databases this one is, and which partitions are at home here. It is refused where this is
-- another one of them, where a position would lose its home, and where it was declared otherwise and p_change does not allow that:
-- then all of the databases have to be asked together. No position is begun meanwhile.
-- +goose StatementBegin
create function firstseen.declare_shard(p_consumer text, p_shard text, p_partitions int4multirange, p_spread text,
    p_change boolean) returns void
language plpgsql
set search_path = firstseen, pg_temp
as $$
declare
    v_is     text;
    v_spread text;
    v_there  text;
begin
    lock table positions in share row exclusive mode;
    select s.shard, s.spread into v_is, v_spread from shards s where s.consumer = p_consumer;
    if v_is <> p_shard then
        raise exception 'this database is shard % of %, and not %', v_is, p_consumer, p_shard
            using errcode = 'FS006', hint = 'See whether the addresses of two shards were swapped, or a shard was renamed.';
    end if;
    if v_spread <> p_spread and not p_change then
        raise exception 'the shards of % are declared as %, and not as %', p_consumer, v_spread, p_spread
            using errcode = 'FS006', hint = 'To change them run `firstseen migrate up` with the config of all shards, and without --shard.';
    end if;
    select string_agg(format('%s/%s', p.topic, p."partition"), ', ' order by p.topic, p."partition") into v_there
    from positions p
    where p.consumer = p_consumer and p.next_offset is not null and not p_partitions @> p."partition";
    if v_there is not null then
        raise exception 'these partitions of % have their positions in this database, and must stay at home in its shard %: %',
            p_consumer, p_shard, left(v_there, 500)
            using errcode = 'FS006', hint = 'Give their numbers to this shard: a partition keeps its home as long as its topic lives.';
    end if;
    insert into shards as s (consumer, shard, partitions, spread, declared_at)
    values (p_consumer, p_shard, p_partitions, p_spread, now())
    on conflict (consumer) do update
    set partitions = excluded.partitions, spread = excluded.spread, declared_at = excluded.declared_at
    where s.spread <> excluded.spread;
end
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
do $$
begin
    if exists (select from firstseen.shards) then
        raise exception 'this database is one of several shards, and an earlier version would take it for the only one';
    end if;
end
$$;
-- +goose StatementEnd
drop trigger positions_at_home on firstseen.positions;
drop function firstseen.declare_shard, firstseen.at_home;
drop table firstseen.shards;
