-- +goose Up

-- A replay is a job too: a process that reads the topic takes it for a while, says how far it is, and so keeps it. Offsets are
-- what it counts.
alter table firstseen.jobs
    drop constraint jobs_kind_check,
    add constraint jobs_kind_check check (kind in ('redrive', 'discard', 'rerun', 'replay')),
    alter column expected type bigint;

-- What only replays have. The counts are what their processes have told.
create table firstseen.job_replays (
    job_id      uuid primary key references firstseen.jobs on delete cascade,
    consumer    text collate "C" not null unique, -- of its positions
    from_place  text not null,
    to_place    text not null,
    partitions  int[],                            -- null: all
    rate        int,                              -- most messages a second; null: no limit
    skip_lost   boolean not null,                 -- goes on where messages are not in Kafka any more
    taken       int not null default 0,           -- how often: who took it last has it
    taken_until timestamptz,                      -- null: nobody has it
    new         bigint not null default 0,
    duplicates  bigint not null default 0,
    conflicts   bigint not null default 0,
    parked      bigint not null default 0,
    dead        bigint not null default 0,
    buried      bigint not null default 0
) with (fillfactor = 50);

-- create_replay makes a replay, and says whether it did: where there is a job of that number, that one stands. It runs as the
-- schema's owner, like redrive.
-- +goose StatementBegin
create function firstseen.create_replay(
    p_job uuid, p_inbox text, p_consumer text, p_topic text, p_handler text, p_from text, p_to text, p_partitions int[], p_rate int,
    p_skip_lost boolean, p_expected bigint, p_actor text, p_why text)
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
begin
    insert into jobs (job_id, inbox, kind, topic, handler, moment, fixed_at, expected, expected_more, actor, why)
    values (p_job, p_inbox, 'replay', p_topic, p_handler, pg_current_snapshot(), now(), p_expected, false, p_actor, p_why)
    on conflict do nothing;
    if not found then
        return false;
    end if;
    insert into job_replays (job_id, consumer, from_place, to_place, partitions, rate, skip_lost)
    values (p_job, p_consumer, p_from, p_to, p_partitions, p_rate, p_skip_lost);
    insert into audit (actor, action, why, inbox, subject)
    values (p_actor, 'replay', p_why, p_inbox, format('job %s: topic %s from %s to %s', p_job, p_topic, p_from, p_to));
    return true;
end
$$;
-- +goose StatementEnd

-- take_replay gives a replay that nobody has to a process, for p_seconds, and the number by which it has it; null: it is not
-- to be had.
-- +goose StatementBegin
create function firstseen.take_replay(p_job uuid, p_worker text, p_seconds int)
returns int
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_taken int;
begin
    perform from jobs j where j.job_id = p_job and j.finished_at is null and j.state <> 'paused' for no key update skip locked;
    if not found then
        return null;
    end if;
    update job_replays r
    set taken = r.taken + 1, taken_until = clock_timestamp() + make_interval(secs => p_seconds)
    where r.job_id = p_job and (r.taken_until is null or r.taken_until < clock_timestamp())
    returning r.taken into v_taken;
    if found then
        update jobs set state = 'running', error = null, worked_at = clock_timestamp(), worker = p_worker where job_id = p_job;
    end if;
    return v_taken;
end
$$;
-- +goose StatementEnd

-- tell_replay says how far the replay is of who has it, and what became of its messages so far. p_seconds is
-- how long it is kept; null: not any more. p_done says that it has come to its end, and p_error why it can't go on, so
-- that it rests. It answers whether to go on.
-- +goose StatementBegin
create function firstseen.tell_replay(
    p_job uuid, p_taken int, p_seconds int, p_offsets bigint, p_expected bigint, p_new bigint, p_duplicates bigint,
    p_conflicts bigint, p_parked bigint, p_dead bigint, p_buried bigint, p_done boolean, p_error text)
returns boolean
language plpgsql
security definer
set search_path = firstseen, pg_temp
as $$
declare
    v_job jobs;
begin
    perform from jobs j where j.job_id = p_job for no key update;
    update job_replays r
    set taken_until = clock_timestamp() + make_interval(secs => p_seconds),
        new = p_new, duplicates = p_duplicates, conflicts = p_conflicts, parked = p_parked, dead = p_dead, buried = p_buried
    where r.job_id = p_job and r.taken = p_taken;
    if not found then
        return false; -- another one has it
    end if;
    update jobs j
    set done = p_offsets, expected = p_expected, worked_at = clock_timestamp(),
        error = case when j.finished_at is null then p_error else j.error end,
        state = case when j.finished_at is not null then j.state when p_done then 'done' when p_error is not null then 'paused'
                     else j.state end,
        finished_at = case when j.finished_at is null and p_done then clock_timestamp() else j.finished_at end
    where j.job_id = p_job
    returning * into v_job;
    if p_seconds is null and v_job.state = 'cancelled' then -- it may have been begun since
        perform end_replay(r.consumer) from job_replays r where r.job_id = p_job;
    end if;
    if p_done and v_job.state = 'done' then
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.actor, v_job.kind, v_job.why, v_job.inbox, format('job %s is done: %s offsets', p_job, v_job.done));
    elsif p_error is not null and v_job.state = 'paused' then
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.worker, 'pause', p_error, v_job.inbox, format('job %s, with %s done', p_job, v_job.done));
    end if;
    return v_job.state = 'running';
end
$$;
-- +goose StatementEnd

-- end_replay has a replay end where it is: it keeps no ID from being forgotten any more.
-- +goose StatementBegin
create function firstseen.end_replay(p_consumer text)
returns void
language sql
set search_path = firstseen, pg_temp
as $$
    update replays r
    set to_offset = least(r.to_offset, greatest(r.from_offset, p.next_offset))
    from positions p
    where p.consumer = p_consumer and r.consumer = p.consumer and r.topic = p.topic and r."partition" = p."partition"
        and r.to_offset > greatest(r.from_offset, p.next_offset);
$$;
-- +goose StatementEnd

-- cancel_job ends a job: see migration 18.
-- +goose StatementBegin
create or replace function firstseen.cancel_job(p_job uuid, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    select end_replay(o.consumer) from job_replays o join jobs j using (job_id) where o.job_id = p_job and j.finished_at is null;
    with cancelled as (
        update jobs
        set state = 'cancelled', finished_at = clock_timestamp()
        where job_id = p_job and finished_at is null
        returning inbox, job_id, done),
    forgotten as (
        delete from job_messages m using cancelled c where m.job_id = c.job_id),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'cancel', p_why, inbox, format('job %s, with %s done', job_id, done) from cancelled)
    select exists (select from cancelled);
$$;
-- +goose StatementEnd

-- work_job does a part of a job, but of no replay: see migration 18.
-- +goose StatementBegin
create or replace function firstseen.work_job(
    p_job uuid, p_worker text, p_looks int, p_rows int, p_failed text,
    out changed int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_job   jobs;
    v_page  record;
    v_rerun record;
    v_taken int;
    v_why   text;
begin
    select * into v_job from jobs j
    where j.job_id = p_job and j.finished_at is null and j.state <> 'paused' and j.kind <> 'replay'
    for no key update skip locked;
    if not found then
        return;
    end if;
    v_why := format('%s (job %s)', v_job.why, p_job);
    if v_job.kind = 'rerun' then
        select * into v_rerun from rerun_page(v_job, p_rows);
        select v_rerun.is_last, null::text as at_topic, null::int as at_partition, v_rerun.at_offset, null::int as at_scope,
               null::uuid as at_message into v_page;
        v_taken := coalesce(cardinality(v_rerun.seqs), 0);
    else
        select * into v_page from job_page(v_job, p_rows + 100, p_rows);
        if v_page.ids is null and not v_page.is_last then -- they lie far apart
            select * into v_page from job_page(v_job, p_looks, p_rows);
        end if;
        v_taken := coalesce(cardinality(v_page.ids), 0);
    end if;
    changed := 0;
    if v_taken = 0 or p_failed is not null then
        null;
    elsif v_job.kind = 'rerun' then
        select r.moved, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from rerun(v_rerun.received, v_rerun.seqs, v_rerun.lanes, v_job.actor, v_why) r;
    elsif v_job.kind = 'redrive' then
        select r.redriven, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from redrive(v_page.scopes, v_page.ids, v_job.actor, v_why) r;
    else
        changed := discard(v_page.scopes, v_page.ids, v_job.actor, v_why);
    end if;
    update jobs
    set state = case when v_page.is_last then 'done' else 'running' end,
        done = done + changed,
        skipped = skipped + case when p_failed is null then v_taken - changed else 0 end,
        failed = failed + case when p_failed is null then 0 else v_taken end,
        error = case when v_taken > 0 then coalesce(p_failed, error) else error end,
        at_topic = coalesce(v_page.at_topic, at_topic), at_partition = coalesce(v_page.at_partition, at_partition),
        at_offset = coalesce(v_page.at_offset, at_offset), at_scope = coalesce(v_page.at_scope, at_scope),
        at_message = coalesce(v_page.at_message, at_message),
        worked_at = clock_timestamp(), worker = p_worker,
        finished_at = case when v_page.is_last then clock_timestamp() end
    where job_id = p_job
    returning * into v_job;
    if v_page.is_last then
        delete from job_messages m where m.job_id = p_job;
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.actor, v_job.kind, v_job.why, v_job.inbox,
                format('job %s is done: %s changed, %s skipped, %s failed', p_job, v_job.done, v_job.skipped, v_job.failed));
    end if;
end
$$;
-- +goose StatementEnd

-- sweep_jobs forgets jobs: see migration 18. With a replay's go its ranges and positions. A cancelled one whose process was
-- killed as it began it ends here.
-- +goose StatementBegin
create or replace function firstseen.sweep_jobs()
returns int
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    select end_replay(o.consumer) from job_replays o join jobs j using (job_id) where j.state = 'cancelled';
    with old as (select j.job_id, o.consumer from jobs j left join job_replays o using (job_id) where j.finished_at < now() - interval '30 days'),
    ranges as (delete from replays r using old o where r.consumer = o.consumer),
    places as (delete from positions p using old o where p.consumer = o.consumer),
    gone as (delete from jobs j using old o where j.job_id = o.job_id returning 1)
    select count(*)::int from gone;
$$;
-- +goose StatementEnd

revoke execute on function firstseen.end_replay, firstseen.create_replay, firstseen.take_replay, firstseen.tell_replay from public;

-- +goose Down
-- Replays that were jobs are forgotten, and count as over; what they have read stays as it is.
select firstseen.end_replay(consumer) from firstseen.job_replays;
delete from firstseen.jobs where kind = 'replay';

-- +goose StatementBegin
create or replace function firstseen.work_job(
    p_job uuid, p_worker text, p_looks int, p_rows int, p_failed text,
    out changed int, out busy_scopes int[], out busy_lanes uuid[])
language plpgsql
security definer
set search_path = firstseen, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_job   jobs;
    v_page  record;
    v_rerun record;
    v_taken int;
    v_why   text;
begin
    select * into v_job from jobs j
    where j.job_id = p_job and j.finished_at is null and j.state <> 'paused'
    for no key update skip locked;
    if not found then
        return;
    end if;
    v_why := format('%s (job %s)', v_job.why, p_job);
    if v_job.kind = 'rerun' then
        select * into v_rerun from rerun_page(v_job, p_rows);
        select v_rerun.is_last, null::text as at_topic, null::int as at_partition, v_rerun.at_offset, null::int as at_scope,
               null::uuid as at_message into v_page;
        v_taken := coalesce(cardinality(v_rerun.seqs), 0);
    else
        select * into v_page from job_page(v_job, p_rows + 100, p_rows);
        if v_page.ids is null and not v_page.is_last then -- they lie far apart
            select * into v_page from job_page(v_job, p_looks, p_rows);
        end if;
        v_taken := coalesce(cardinality(v_page.ids), 0);
    end if;
    changed := 0;
    if v_taken = 0 or p_failed is not null then
        null;
    elsif v_job.kind = 'rerun' then
        select r.moved, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from rerun(v_rerun.received, v_rerun.seqs, v_rerun.lanes, v_job.actor, v_why) r;
    elsif v_job.kind = 'redrive' then
        select r.redriven, r.busy_scopes, r.busy_lanes into changed, busy_scopes, busy_lanes
        from redrive(v_page.scopes, v_page.ids, v_job.actor, v_why) r;
    else
        changed := discard(v_page.scopes, v_page.ids, v_job.actor, v_why);
    end if;
    update jobs
    set state = case when v_page.is_last then 'done' else 'running' end,
        done = done + changed,
        skipped = skipped + case when p_failed is null then v_taken - changed else 0 end,
        failed = failed + case when p_failed is null then 0 else v_taken end,
        error = case when v_taken > 0 then coalesce(p_failed, error) else error end,
        at_topic = coalesce(v_page.at_topic, at_topic), at_partition = coalesce(v_page.at_partition, at_partition),
        at_offset = coalesce(v_page.at_offset, at_offset), at_scope = coalesce(v_page.at_scope, at_scope),
        at_message = coalesce(v_page.at_message, at_message),
        worked_at = clock_timestamp(), worker = p_worker,
        finished_at = case when v_page.is_last then clock_timestamp() end
    where job_id = p_job
    returning * into v_job;
    if v_page.is_last then
        delete from job_messages m where m.job_id = p_job;
        insert into audit (actor, action, why, inbox, subject)
        values (v_job.actor, v_job.kind, v_job.why, v_job.inbox,
                format('job %s is done: %s changed, %s skipped, %s failed', p_job, v_job.done, v_job.skipped, v_job.failed));
    end if;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.cancel_job(p_job uuid, p_actor text, p_why text)
returns boolean
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with cancelled as (
        update jobs
        set state = 'cancelled', finished_at = clock_timestamp()
        where job_id = p_job and finished_at is null
        returning inbox, job_id, done),
    forgotten as (
        delete from job_messages m using cancelled c where m.job_id = c.job_id),
    audited as (
        insert into audit (actor, action, why, inbox, subject)
        select p_actor, 'cancel', p_why, inbox, format('job %s, with %s done', job_id, done) from cancelled)
    select exists (select from cancelled);
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function firstseen.sweep_jobs()
returns int
language sql
security definer
set search_path = firstseen, pg_temp
as $$
    with gone as (delete from jobs where finished_at < now() - interval '30 days' returning 1)
    select count(*)::int from gone;
$$;
-- +goose StatementEnd

drop function firstseen.end_replay, firstseen.create_replay, firstseen.take_replay, firstseen.tell_replay;
drop table firstseen.job_replays;
alter table firstseen.jobs
    drop constraint jobs_kind_check,
    add constraint jobs_kind_check check (kind in ('redrive', 'discard', 'rerun')),
    alter column expected type int using least(expected, 2147483647);
