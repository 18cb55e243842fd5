-- The running number is kept in a temporary table, which ends with the batch.
create schema shop;
create table shop.numbers (payment text primary key, number bigint not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
	number bigint;
begin
	create temporary table if not exists counter as select 0::bigint as n;
	update counter set n = n + 1 returning n into number;
	insert into shop.numbers values (m.raw_id, number);
end $$;
