-- The latest payment of each account, by the order of its key, with the time at which it was made.
create schema shop;
create table shop.latest (account text primary key, payment text not null, at timestamptz not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.latest values (p->>'account', m.raw_id, m.produced_at)
	on conflict (account) do update set payment = excluded.payment, at = excluded.at;
end $$;
